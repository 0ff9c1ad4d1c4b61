//! The notes of a kqueue, beside its epoll set.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use slipstack_mem::{Lock, PrivateFd};

use crate::kqueue::files::Files;
use crate::kqueue::note::Note;
use crate::kqueue::watched::Processes;
use crate::kqueue::{EVFILT_EMPTY, EVFILT_READ, EVFILT_TIMER, EVFILT_WRITE};

/// Filter and ident of a note that has no descriptor.
pub(crate) type Key = (i16, usize);

/// Notes of one kqueue that have no descriptor, at most.
pub(crate) const OTHERS_MAX: usize = 1 << 20;

/// A descriptor with notes.
#[derive(Debug, Default)]
pub(crate) struct Member {
    pub(crate) notes: [Option<Note>; 3],
    /// The events that its epoll item has.
    pub(crate) events: u32,
    /// Whether it is a kernel listener, whose queue length can be queried.
    pub(crate) is_kernels_listener: bool,
    /// The note that found no room last time comes first.
    pub(crate) first: usize,
}

/// The place of a descriptor's filter among its notes.
pub(crate) fn place_of(filter: i16) -> Option<usize> {
    match filter {
        EVFILT_READ => Some(0),
        EVFILT_WRITE => Some(1),
        EVFILT_EMPTY => Some(2),
        _ => None,
    }
}

impl Member {
    pub(crate) fn is_empty(&self) -> bool {
        self.notes.iter().all(Option::is_none)
    }

    /// Returns whether its epoll item reports only changes.
    pub(crate) fn is_edge(&self) -> bool {
        self.events & libc::EPOLLET as u32 != 0
    }

    pub(crate) fn enabled(&self) -> impl Iterator<Item = &Note> {
        self.notes.iter().flatten().filter(|note| note.is_enabled)
    }
}

/// A note with a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) due_ns: u64,
    /// 0: once.
    pub(crate) period_ns: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) members: HashMap<i32, Member>,
    pub(crate) others: HashMap<Key, Note>,
    /// Keys of `others` with a pending event, each once.
    pub(crate) active: VecDeque<Key>,
    /// Number of the scan: it returns each note's event once.
    pub(crate) scans: u64,
    pub(crate) clocks: HashMap<usize, Clock>,
    pub(crate) due: BTreeSet<(u64, usize)>,
    /// Ends a sleep, of this queue's or of a set that it is in, when the first timer is due.
    pub(crate) alarm: Option<PrivateFd>,
    pub(crate) alarm_ns: u64,
    /// Signal counts at the last report.
    pub(crate) signals: HashMap<usize, u64>,
    pub(crate) is_bell_in_set: bool,
    pub(crate) processes: Processes,
    pub(crate) files: Files,
}

/// The notes of one kqueue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) inner: Lock<Inner>,
    /// A note without a descriptor has a pending event.
    is_active: AtomicBool,
    /// Deadline of the first timer; `u64::MAX`: none.
    pub(crate) next_due_ns: AtomicU64,
    pub(crate) has_signals: AtomicBool,
}

impl Queue {
    pub(crate) fn new() -> Self {
        let queue = Queue::default();
        queue.next_due_ns.store(u64::MAX, Ordering::Relaxed);
        queue
    }

    /// Returns whether a note without a descriptor is known to have a pending event.
    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    pub(crate) fn note_active(&self, inner: &Inner) {
        let tells = |key: &Key| inner.others.get(key).is_some_and(|note| note.is_enabled);
        let is_active = inner.active.iter().any(tells);
        self.is_active.store(is_active, Ordering::Release);
    }

    /// Over a fork.
    pub(crate) fn hold(&self) {
        self.inner.hold();
    }

    pub(crate) fn release(&self) {
        self.inner.release();
    }
}

impl Inner {
    /// Marks a note's event as pending.
    pub(crate) fn activate(&mut self, key: Key) {
        if let Some(note) = self.others.get_mut(&key)
            && !note.is_active
        {
            note.is_active = true;
            self.active.push_back(key);
        }
    }

    /// Forgets a note without a descriptor; whether there was one.
    pub(crate) fn forget(&mut self, key: Key) -> Option<Note> {
        let note = self.others.remove(&key)?;
        self.active.retain(|other| *other != key);
        if let Some(clock) = self.clocks.remove(&key.1).filter(|_| key.0 == EVFILT_TIMER) {
            self.due.remove(&(clock.due_ns, key.1));
        }
        Some(note)
    }
}
