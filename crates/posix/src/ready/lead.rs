//! The lead: which of a program's threads drives a shared engine.
//!
//! A thread that waits makes the turns, spins and then sleeps; of those that sleep one waits for
//! the device. When a thread leaves its wait, one of the sleepers is woken to take its place,
//! unless another thread has the lead by then.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Lead {
    /// The thread; 0 = none.
    thread: AtomicUsize,
    /// The thread has left its wait, at a time when no other one slept.
    is_away: AtomicBool,
}

impl Lead {
    /// Gives the lead to a thread that waits, unless another waiting one has it. A bystander, for
    /// which the stack has nothing, gets it only if no thread has had it. Returns whether the
    /// thread may drive when it sleeps.
    #[inline]
    pub(crate) fn enter(&self, thread: usize, is_bystander: impl FnOnce() -> bool) -> bool {
        let holder = self.thread.load(Ordering::SeqCst);
        if holder == thread {
            self.is_away.store(false, Ordering::Relaxed);
            return true;
        }
        let is_bystander = is_bystander();
        let is_free = holder == 0 || !is_bystander && self.is_away.load(Ordering::SeqCst);
        let (made, else_read) = (Ordering::SeqCst, Ordering::Relaxed);
        let is_given = is_free
            && self
                .thread
                .compare_exchange(holder, thread, made, else_read)
                .is_ok();
        if is_given {
            self.is_away.store(false, Ordering::SeqCst);
        }
        is_given || !is_bystander
    }

    /// Gives the lead to a thread that waits, whichever has it.
    pub(crate) fn take(&self, thread: usize) {
        self.thread.store(thread, Ordering::SeqCst);
        self.is_away.store(false, Ordering::SeqCst);
    }

    /// Returns whether a thread has the lead, which may be away.
    pub(crate) fn is_held(&self) -> bool {
        self.thread.load(Ordering::SeqCst) != 0
    }

    /// Returns whether no waiting thread has the lead.
    pub(crate) fn is_vacant(&self) -> bool {
        self.thread.load(Ordering::SeqCst) == 0 || self.is_away.load(Ordering::SeqCst)
    }

    /// Notes that `thread` leaves a wait; false if it does not have the lead.
    #[inline]
    pub(crate) fn leave(&self, thread: usize) -> bool {
        if self.thread.load(Ordering::Relaxed) != thread {
            return false;
        }
        // A thread that falls asleep now sees this, or is seen by the thread that looks for
        // sleepers.
        self.is_away.store(true, Ordering::SeqCst);
        true
    }

    /// Takes the lead from the thread that has it.
    pub(crate) fn vacate(&self) {
        self.thread.store(0, Ordering::SeqCst);
    }

    /// `to` sleeps on the device: it drives.
    pub(crate) fn give(&self, from: usize, to: usize) {
        let (made, else_read) = (Ordering::SeqCst, Ordering::Relaxed);
        let _ = self.thread.compare_exchange(from, to, made, else_read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_lead_until_it_leaves_its_wait() {
        let lead = Lead::default();
        assert!(lead.is_vacant());
        lead.enter(1, || false);
        lead.enter(2, || false);
        assert!(!lead.is_vacant());
        assert!(!lead.leave(2), "it is another's");
        assert!(!lead.is_vacant());
        assert!(lead.leave(1));
        assert!(lead.is_vacant());
        lead.enter(2, || false);
        assert!(!lead.is_vacant());
        assert!(!lead.leave(1), "it is another's");
    }

    #[test]
    fn the_lead_goes_to_the_thread_that_sleeps_on_the_device() {
        let lead = Lead::default();
        lead.enter(1, || false);
        lead.give(2, 3);
        assert!(lead.leave(1), "only its holder gives it");
        lead.enter(1, || false);
        lead.give(1, 2);
        assert!(!lead.leave(1));
        lead.vacate();
        assert!(lead.is_vacant());
    }
}
