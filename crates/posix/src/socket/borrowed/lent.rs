//! The number of children that may use a connection.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A connection's children.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    /// Number of processes that may use it.
    shares: AtomicUsize,
    is_left_unread: AtomicBool,
    /// Number of pumps that have bytes for the peer in hand.
    movers: AtomicUsize,
    /// A call of this process could not write because of that.
    is_awaited: AtomicBool,
}

impl Lent {
    pub(crate) fn is_lent(&self) -> bool {
        self.shares.load(Ordering::SeqCst) > 0
    }

    /// Returns whether a child has ended with unread bytes: they are lost, so the last close resets
    /// the connection, whichever process makes it.
    pub(crate) fn is_left_unread(&self) -> bool {
        self.is_left_unread.load(Ordering::Acquire)
    }

    pub(crate) fn leave_unread(&self) {
        self.is_left_unread.store(true, Ordering::Release);
    }

    /// Whether exactly one process may use it beside this one.
    pub(crate) fn is_lent_once(&self) -> bool {
        self.shares.load(Ordering::SeqCst) == 1
    }

    pub(crate) fn begin_move(&self) {
        self.movers.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether [`Lent::await_moved`] was called meanwhile.
    pub(crate) fn end_move(&self) -> bool {
        self.movers.fetch_sub(1, Ordering::SeqCst) == 1
            && self.is_awaited.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn is_moving(&self) -> bool {
        self.movers.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn await_moved(&self) {
        self.is_awaited.store(true, Ordering::SeqCst);
    }

    pub(crate) fn add(&self) {
        self.shares.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns true if no process borrows it any more.
    pub(crate) fn remove(&self) -> bool {
        self.shares.fetch_sub(1, Ordering::SeqCst) == 1
    }
}
