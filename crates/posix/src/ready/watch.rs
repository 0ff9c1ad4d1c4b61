//! The traits between a socket and its watchers.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use crate::ready::waiter::{Rings, Waiter};

/// An object that watches many subjects, each under a number of its own choice.
pub(crate) trait Watcher: Any + Debug + Send + Sync {
    /// The subject `item` has the new events `edges`. A lock of the subject is held; threads are
    /// woken when `rings` is dropped.
    fn on_ready(&self, item: u64, edges: u32, rings: &mut Rings);

    /// Returns true if a thread waits for input of the subject `item` now.
    fn is_attended(&self, item: u64) -> bool;

    /// Returns true if a thread sleeps on the watcher now, for whichever subject.
    fn has_sleepers(&self) -> bool;

    /// The subject `item` has ended.
    fn forget(&self, item: u64);

    /// A subject has an intent to be carried out before a thread waits on the watcher.
    fn note_intents(&self);
}

/// A recipient of an engine's events about one socket.
pub(crate) trait Recipient: Debug + Send + Sync {
    /// The socket's state, its bytes or its room have changed.
    fn note_change(&self, rings: &mut Rings);

    /// A connection waits at the listening socket.
    fn on_arrival(&self, rings: &mut Rings);

    /// An unaccepted connection was given to another listening socket.
    fn on_withdrawal(&self);
}

/// An object on which threads sleep.
pub(crate) trait Awaited: Any + Debug + Send + Sync {
    /// Returns false if the stack has nothing for a thread that sleeps on this object.
    fn is_of_stack(&self) -> bool {
        true
    }

    fn watch(&self, watch: Watch);

    /// Removes the watches that `is_it` names.
    fn unwatch(&self, is_it: &dyn Fn(&Watch) -> bool);

    /// A thread is about to sleep on this object alone.
    fn begin_wait(&self, waiter: &Arc<Waiter>);

    /// The counterpart of [`Awaited::begin_wait`]. Returns true if the object has counted its
    /// sleeping threads and this one was the last.
    fn end_wait(&self, waiter: &Arc<Waiter>) -> bool;

    /// As [`Awaited::end_wait`], in a forked child of the thread's process.
    fn forget_wait(&self) {}

    /// As [`Awaited::end_poll`], in a forked child of the thread's process.
    fn forget_poll(&self) {}

    /// A thread is about to sleep on this object and others.
    fn begin_poll(&self, waiter: &Arc<Waiter>) {
        self.watch(Watch::Thread(Arc::clone(waiter)));
    }

    /// The counterpart of [`Awaited::begin_poll`], with the result of [`Awaited::end_wait`].
    fn end_poll(&self, waiter: &Arc<Waiter>) -> bool {
        self.unwatch(&|watch| watch.is_thread(waiter));
        false
    }
}

/// A watcher of the readiness of a socket or a set.
#[derive(Clone, Debug)]
pub(crate) enum Watch {
    /// A watcher that knows the subject as `item`.
    Item {
        watcher: Arc<dyn Watcher>,
        item: u64,
    },
    /// A thread that sleeps in a call.
    Thread(Arc<Waiter>),
}

impl Watch {
    /// Returns true if a thread waits for input.
    pub(crate) fn is_attended(&self) -> bool {
        match self {
            Watch::Item { watcher, item } => watcher.is_attended(*item),
            Watch::Thread(_) => true,
        }
    }

    /// Returns true if a thread sleeps now, for whichever reason.
    pub(crate) fn has_sleepers(&self) -> bool {
        match self {
            Watch::Item { watcher, .. } => watcher.has_sleepers(),
            Watch::Thread(_) => true,
        }
    }

    pub(crate) fn note_intents(&self) {
        if let Watch::Item { watcher, .. } = self {
            watcher.note_intents();
        }
    }

    /// The watched object has ended: a watcher forgets it, a thread looks again.
    pub(crate) fn end(&self) {
        match self {
            Watch::Item { watcher, item } => watcher.forget(*item),
            Watch::Thread(waiter) => _ = waiter.notify(),
        }
    }

    /// Returns true if this is item `item` of `watcher`.
    pub(crate) fn is_item(&self, watcher: &Arc<impl Watcher>, item: u64) -> bool {
        match self {
            Watch::Item {
                watcher: other,
                item: it,
            } => std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(watcher)) && *it == item,
            Watch::Thread(_) => false,
        }
    }

    /// Returns true if this is the thread of `waiter`.
    pub(crate) fn is_thread(&self, waiter: &Arc<Waiter>) -> bool {
        matches!(self, Watch::Thread(other) if Arc::ptr_eq(other, waiter))
    }
}

/// As [`notify_all`], but of the threads that sleep only the first one is woken. Those that are
/// awake look again.
pub(crate) fn notify_one_thread(watches: &[Watch], edges: u32, rings: &mut Rings) {
    let mut is_one_woken = false;
    for watch in watches {
        match watch {
            Watch::Item { watcher, item } => watcher.on_ready(*item, edges, rings),
            Watch::Thread(_) if is_one_woken => {}
            Watch::Thread(waiter) => is_one_woken = rings.notify(waiter),
        }
    }
}

/// Tells every watcher. The caller holds the lock of the list; watchers take their own inside it.
pub(crate) fn notify_all(watches: &[Watch], edges: u32, rings: &mut Rings) {
    for watch in watches {
        match watch {
            Watch::Item { watcher, item } => watcher.on_ready(*item, edges, rings),
            Watch::Thread(waiter) => _ = rings.notify(waiter),
        }
    }
}
