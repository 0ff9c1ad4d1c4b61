//! Listeners that nobody watches although connections wait at them.
//!
//! On the kernel any process that holds the socket could take such a connection. Here it has landed on
//! the engine of one: of a worker that waits for its turn to accept, or serves somebody else. When that
//! worker sleeps without having looked at it for a moment, or stays away from our calls (it waits for the
//! lock by which Apache's prefork accepts), it goes to another listener of the address,
//! and so do later ones until somebody watches again. Without another listener it waits.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Weak};

use slipstack_mem::{Lock, now_ns};

use crate::description::{Decided, Description};
use crate::epoll::Target;
use crate::link::Link;
use crate::place::sets_of;
use crate::process::Process;
use crate::wait::Subject;

/// How long a connection waits for its own worker: one that is only busy takes it within that time.
const PATIENCE_NS: u64 = 2_000_000;
/// While nobody else listens it is asked again this often.
const AGAIN_NS: u64 = 10_000_000;
/// As [`PATIENCE_NS`], for a worker that is away: most are back soon, and to part with connections has its price.
const PATIENCE_AWAY_NS: u64 = 10_000_000;

/// The listeners, each with the time at which something is done about it.
#[derive(Debug, Default)]
pub(crate) struct Neglected {
    is_any: AtomicBool,
    list: Lock<Vec<(u64, Arc<Description>)>>,
    /// All that the process listens on.
    listeners: Lock<Vec<Weak<Description>>>,
}

impl Neglected {
    /// A connection has come to a listener that nobody watches.
    pub(crate) fn note(&self, socket: &Arc<Description>) {
        self.note_for(socket, PATIENCE_NS);
    }

    fn note_for(&self, socket: &Arc<Description>, patience_ns: u64) {
        let mut list = self.list.lock();
        if !list.iter().any(|(_, other)| Arc::ptr_eq(other, socket)) {
            list.push((now_ns() + patience_ns, Arc::clone(socket)));
        }
        self.is_any.store(true, Ordering::Release);
    }

    /// The process listens on it from now on.
    pub(crate) fn look_after(&self, socket: &Arc<Description>) {
        let mut listeners = self.listeners.lock();
        listeners.retain(|other| other.strong_count() > 0);
        listeners.push(Arc::downgrade(socket));
    }

    /// Nobody is there to take connections, whoever would hear of them.
    fn note_all_waiting(&self) {
        let listeners = self.listeners.lock().clone();
        for socket in listeners.iter().filter_map(Weak::upgrade) {
            if let Some(Decided::Listener(listener)) = socket.decided()
                && listener.has_waiting()
            {
                self.note_for(&socket, PATIENCE_AWAY_NS);
            }
        }
    }

    /// Takes out what is due at `now`.
    fn take_due(&self, now: u64) -> Vec<Arc<Description>> {
        let mut list = self.list.lock();
        let (due, later) = std::mem::take(&mut *list)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        *list = later;
        self.is_any.store(!list.is_empty(), Ordering::Release);
        let due: Vec<(u64, Arc<Description>)> = due;
        due.into_iter().map(|(_, socket)| socket).collect()
    }

    fn put_off(&self, socket: Arc<Description>, until: u64) {
        self.list.lock().push((until, socket));
        self.is_any.store(true, Ordering::Release);
    }

    fn next_ns(&self) -> Option<u64> {
        self.list.lock().iter().map(|(at, _)| *at).min()
    }
}

impl Process {
    /// Does the same while no thread is in a call: of processes that take turns at accepting, all but one wait for a lock.
    pub(crate) fn tend_when_away(&'static self, link: &Arc<Link>) {
        // The engine's thread must not be what keeps the engine.
        let link_to = Arc::downgrade(link);
        link.when_away(Box::new(move || {
            let link = link_to.upgrade()?;
            link.pump();
            link.neglected.note_all_waiting();
            self.tend(&link, true)
        }));
    }

    /// Before a thread sleeps: finds others for connections that this process does not look at. How
    /// long it may sleep until it is to look again.
    pub(crate) fn tend_neglected(&self, link: &Link) -> Option<u64> {
        self.tend(link, false)
    }

    fn tend(&self, link: &Link, is_away: bool) -> Option<u64> {
        if !link.neglected.is_any.load(Ordering::Acquire) {
            return None;
        }
        let now = now_ns();
        for socket in link.neglected.take_due(now) {
            let Some(Decided::Listener(listener)) = socket.decided() else {
                continue;
            };
            // A set that nobody waits on tells nobody.
            let is_attended = socket.is_watched() && !is_away;
            if is_attended || listener.is_shut() || !listener.has_waiting() {
                continue;
            }
            if is_away {
                for (set, _) in sets_of(&socket) {
                    set.has_intents.store(true, Ordering::SeqCst);
                }
                fence(Ordering::SeqCst);
            }
            if !listener.leave_to_others() {
                link.neglected.put_off(socket, now + AGAIN_NS);
            } else if socket.is_watched() && (!is_away || self.sleepers.is_any()) {
                // Since the look above: who came did not find that it yields.
                listener.come_back();
            }
        }
        let next = link.neglected.next_ns()?;
        Some(next.saturating_sub(now))
    }

    /// A thread that has begun to watch: the listener was looked after by others until then, or is to be from a moment ago.
    pub(crate) fn come_back_to(&self, subject: Subject<'_>) {
        let come_back = |socket: &Arc<Description>| {
            if let Some(Decided::Listener(listener)) = socket.decided() {
                listener.come_back();
            }
        };
        match subject {
            Subject::Socket(socket) => come_back(socket),
            // Its members are watched before it is waited for; while nobody did so they may have been left to others.
            Subject::Set(set) => {
                fence(Ordering::SeqCst);
                if set.has_intents.load(Ordering::SeqCst) {
                    self.realize_set(set);
                }
            }
            Subject::Many(targets) => {
                for target in targets {
                    if let Target::Socket(socket) = target {
                        come_back(socket);
                    }
                }
            }
        }
    }

    /// A socket has lost a watcher. While it was watched nothing was noted of what came: a thread that
    /// takes one connection of two leaves the other.
    pub(crate) fn note_if_neglected(&self, socket: &Arc<Description>) {
        let Some(Decided::Listener(listener)) = socket.decided() else {
            return;
        };
        // Who brings a connection counts it first and looks for watchers then.
        fence(Ordering::SeqCst);
        if listener.has_waiting()
            && !socket.is_watched()
            && let Some(link) = self.link()
        {
            link.neglected.note(socket);
        }
    }
}
