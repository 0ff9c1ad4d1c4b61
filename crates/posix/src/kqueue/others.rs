//! Notes without a descriptor of the program's: EVFILT_USER, EVFILT_SIGNAL, and their common part.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::Ordering;

use rustix::event::epoll;
use slipstack_mem::Descriptor;

use crate::errno::Errno;
use crate::kqueue::at::KqueueRef;
use crate::kqueue::note::{After, Note};
use crate::kqueue::queue::{Inner, Key, OTHERS_MAX, Queue};
use crate::kqueue::regular::{self, is_of_file};
use crate::kqueue::{
    EV_ADD, EV_CLEAR, EV_DELETE, EVFILT_PROC, EVFILT_READ, EVFILT_SIGNAL, EVFILT_TIMER,
    EVFILT_USER, EVFILT_VNODE, EVFILT_WRITE, Kevent, NOTE_CHILD, NOTE_FFAND, NOTE_FFCOPY,
    NOTE_FFCTRLMASK, NOTE_FFLAGSMASK, NOTE_FFOR, NOTE_TRIGGER,
};

/// The data of descriptors of the queue's own in its set; the program's have their numbers, of 32
/// bits.
const INSIDE: u64 = 1 << 32;
pub(super) const ALARM: u64 = INSIDE;
pub(super) const BELL: u64 = INSIDE + 1;
pub(super) const FILES: u64 = INSIDE + 2;
pub(super) const TRACE: u64 = INSIDE + 3;
/// Marks a key that holds a process id.
pub(super) const PROCESS: u64 = INSIDE << 1;

const SIGNAL_MAX: usize = 64;

impl KqueueRef<'_> {
    pub(super) fn register_other(self, change: &Kevent) -> Result<(), Errno> {
        let key = (change.filter, change.ident);
        let mut inner = self.queue.inner.lock();
        let is_known = inner.others.contains_key(&key);
        if change.flags & EV_DELETE != 0 {
            if !is_known && change.flags & EV_ADD == 0 {
                return Err(Errno::ENOENT);
            }
            self.forget_other(&mut inner, key);
            return Ok(());
        }
        if !is_known {
            if change.flags & EV_ADD == 0 {
                return Err(Errno::ENOENT);
            }
            if inner.others.len() >= OTHERS_MAX {
                return Err(Errno::ENOMEM);
            }
            self.add_other(&mut inner, change)?;
        } else if change.filter == EVFILT_TIMER && change.flags & EV_ADD != 0 {
            self.set_timer(&mut inner, change)?;
        } else if change.filter == EVFILT_PROC {
            self.change_process(&mut inner, change)?;
        } else if let Some(note) = inner.others.get_mut(&key) {
            note.change(change);
            match change.filter {
                EVFILT_USER => touch(note, change),
                EVFILT_READ | EVFILT_WRITE | EVFILT_VNODE => note.fflags = change.fflags,
                _ => {}
            }
        }
        let is_reported = inner.others.get(&key).is_some_and(|note| note.is_forced)
            || (change.filter == EVFILT_USER && change.fflags & NOTE_TRIGGER != 0)
            || is_of_file(change.filter);
        if is_reported {
            inner.activate(key);
        }
        self.queue.note_active(&inner);
        drop(inner);
        if self.queue.is_active() {
            self.set.wake();
        }
        Ok(())
    }

    fn add_other(self, inner: &mut Inner, change: &Kevent) -> Result<(), Errno> {
        let key = (change.filter, change.ident);
        let mut note = Note::new(change);
        match change.filter {
            EVFILT_TIMER => return self.set_timer(inner, change),
            EVFILT_USER => {
                note.fflags = 0;
                touch(&mut note, change);
            }
            EVFILT_SIGNAL => {
                self.watch_signal(inner, change.ident)?;
                note.flags |= EV_CLEAR;
            }
            EVFILT_PROC => {
                self.watch_process(inner, change)?;
                note.flags |= EV_CLEAR;
            }
            EVFILT_READ | EVFILT_WRITE => self.watch_contents(inner, change)?,
            _ => self.watch_file(inner, change)?,
        }
        inner.others.insert(key, note);
        Ok(())
    }

    fn forget_other(self, inner: &mut Inner, key: Key) {
        inner.forget(key);
        match key.0 {
            EVFILT_TIMER => self.rearm(inner),
            // Closing it takes it out of the set.
            EVFILT_PROC => inner.forget_process(key.1),
            EVFILT_SIGNAL => _ = inner.signals.remove(&key.1),
            EVFILT_READ | EVFILT_WRITE | EVFILT_VNODE => {
                inner.release_file(i32::try_from(key.1).unwrap_or(-1));
            }
            _ => {}
        }
        self.queue.note_active(inner);
    }

    /// Adds a descriptor of the queue's own to its set. It ends sleeps once for each thing that
    /// happens.
    pub(super) fn watch_inside(self, fd: BorrowedFd<'_>, data: u64) -> Result<(), Errno> {
        let set = Descriptor::new(self.number).ok_or(Errno::EBADF)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(set.as_fd(), fd, epoll::EventData::new_u64(data), flags)?;
        self.set.kernel_members.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn watch_signal(self, inner: &mut Inner, signal: usize) -> Result<(), Errno> {
        if signal == 0 || signal > SIGNAL_MAX {
            return Err(Errno::EINVAL);
        }
        let number = i32::try_from(signal).map_err(|_| Errno::EINVAL)?;
        let bell = self.host.signal_bell()?;
        self.host.kernel().watch_signal(number, bell.as_raw_fd())?;
        if !inner.is_bell_in_set {
            self.watch_inside(bell.as_fd(), BELL)?;
            inner.is_bell_in_set = true;
        }
        inner
            .signals
            .insert(signal, self.host.kernel().signals_seen(number));
        self.queue.has_signals.store(true, Ordering::Release);
        Ok(())
    }

    /// Counts signals that have arrived since the last report.
    pub(super) fn count_signals(self, inner: &mut Inner) {
        let mut come = Vec::new();
        for (signal, reported) in &mut inner.signals {
            let number = i32::try_from(*signal).unwrap_or(0);
            let now = self.host.kernel().signals_seen(number);
            let more = now.wrapping_sub(*reported);
            if more != 0 {
                *reported = now;
                come.push((*signal, more));
            }
        }
        for (signal, more) in come {
            if let Some(note) = inner.others.get_mut(&(EVFILT_SIGNAL, signal)) {
                note.count = note.count.saturating_add(more.cast_signed());
            }
            inner.activate((EVFILT_SIGNAL, signal));
        }
    }
}

/// filt_usertouch()
fn touch(note: &mut Note, change: &Kevent) {
    let flags = change.fflags & NOTE_FFLAGSMASK;
    match change.fflags & NOTE_FFCTRLMASK {
        NOTE_FFAND => note.fflags &= flags,
        NOTE_FFOR => note.fflags |= flags,
        NOTE_FFCOPY => note.fflags = flags,
        _ => {}
    }
    note.data = change.data;
}

/// Returns the number of events from filters without a descriptor.
pub(super) fn tell_others(
    queue: &Queue,
    inner: &mut Inner,
    put: &mut dyn FnMut(Kevent) -> bool,
) -> usize {
    let mut count = 0;
    let scan = inner.scans;
    for _ in 0..inner.active.len() {
        let Some(key) = inner.active.pop_front() else {
            break;
        };
        let Some(note) = inner.others.get_mut(&key) else {
            continue;
        };
        if note.told_in == scan || (!note.is_enabled && !note.is_forced) {
            inner.active.push_back(key);
            continue;
        }
        let (flags, fflags, data) = match note.filter {
            EVFILT_USER => (0, note.fflags & NOTE_FFLAGSMASK, note.data),
            EVFILT_READ | EVFILT_WRITE => match regular::data_of(note) {
                Some(data) => (0, 0, data),
                None => {
                    note.is_active = false;
                    continue;
                }
            },
            // A tracked child is told of by itself, with its parent.
            EVFILT_PROC if note.fired & NOTE_CHILD != 0 => (0, NOTE_CHILD, note.data),
            _ => (0, note.fired, note.count),
        };
        if !put(note.event(flags, fflags, data)) {
            inner.active.push_front(key);
            break;
        }
        count += 1;
        note.told_in = scan;
        match note.filter == EVFILT_PROC && fflags == NOTE_CHILD {
            true => settle_child(inner, key),
            false => settle(inner, key),
        }
    }
    queue.note_active(inner);
    count
}

/// Updates a note whose event was reported.
fn settle(inner: &mut Inner, key: Key) {
    let Some(note) = inner.others.get_mut(&key) else {
        return;
    };
    let after = note.on_reported();
    // filt_usertouch(): a trigger stays until EV_CLEAR takes it. A file is looked at again.
    let is_level = note.filter == EVFILT_USER || is_of_file(note.filter);
    let stays = is_level && !note.is_clear() && after != After::Gone;
    if !stays {
        note.is_active = false;
        (note.count, note.fired) = (0, 0);
    }
    match after {
        After::Gone => {
            inner.forget(key);
            if key.0 == EVFILT_PROC {
                inner.forget_process(key.1);
            }
        }
        _ if stays => inner.active.push_back(key),
        After::Level | After::Edge | After::Disabled => {}
    }
}

/// Updates the note of a tracked child that was announced: what it has done since then is next.
fn settle_child(inner: &mut Inner, key: Key) {
    let Some(note) = inner.others.get_mut(&key) else {
        return;
    };
    note.fired &= !NOTE_CHILD;
    note.is_active = false;
    if note.fired != 0 {
        inner.activate(key);
    } else if note.is_over() {
        inner.forget(key);
    }
}
