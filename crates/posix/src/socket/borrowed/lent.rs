//! The number of children that may use a connection.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// One process that may use a connection.
const SHARE: u64 = 1;
/// One of these that has not used it, beside [`SHARE`].
const UNUSED: u64 = 1 << 32;

/// A connection's children.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    /// Number of processes that may use it, and of those among them that have not used it.
    shares: AtomicU64,
    is_left_unread: AtomicBool,
    /// Number of pumps that have bytes for the peer in hand.
    movers: AtomicUsize,
    /// Number of pairs to which writes succeed until the direction is shut down.
    writers: AtomicUsize,
    /// A call of this process could not write because of bytes in hand.
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
        self.shares.load(Ordering::SeqCst) % UNUSED == SHARE
    }

    /// The number of processes beside this one that use it, or may without saying so.
    pub(crate) fn users(&self) -> u64 {
        let shares = self.shares.load(Ordering::SeqCst);
        shares % UNUSED - shares / UNUSED
    }

    /// Whether there are some that have not used it.
    pub(crate) fn has_unused(&self) -> bool {
        self.shares.load(Ordering::SeqCst) >= UNUSED
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

    pub(crate) fn note_writer(&self, is_writer: bool) {
        match is_writer {
            true => self.writers.fetch_add(1, Ordering::SeqCst),
            false => self.writers.fetch_sub(1, Ordering::SeqCst),
        };
    }

    /// Whether another process may still write, for all that the steward has done.
    pub(crate) fn has_writers(&self) -> bool {
        self.writers.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn await_moved(&self) {
        self.is_awaited.store(true, Ordering::SeqCst);
    }

    pub(crate) fn add(&self) {
        self.shares.fetch_add(SHARE, Ordering::AcqRel);
    }

    /// As [`Lent::add`], of a child that says so before it uses the connection.
    pub(crate) fn add_unused(&self) {
        self.shares.fetch_add(SHARE + UNUSED, Ordering::AcqRel);
    }

    /// One of those that have not used it does, or is about to be removed.
    pub(crate) fn begin_use(&self) {
        self.shares.fetch_sub(UNUSED, Ordering::AcqRel);
    }

    /// Returns true if no process borrows it any more.
    pub(crate) fn remove(&self) -> bool {
        self.shares.fetch_sub(SHARE, Ordering::SeqCst) == SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_not_used_a_connection_is_no_user_of_it() {
        let lent = Lent::default();
        lent.add_unused();
        assert!(lent.is_lent() && lent.is_lent_once() && lent.users() == 0);
        lent.add_unused();
        lent.begin_use();
        assert!(!lent.is_lent_once() && lent.users() == 1);
        lent.add();
        assert_eq!(lent.users(), 2);
        assert!(!lent.remove() && !lent.remove());
        assert!(lent.is_lent_once() && lent.users() == 0);
        lent.begin_use();
        assert!(lent.remove() && !lent.is_lent());
    }
}
