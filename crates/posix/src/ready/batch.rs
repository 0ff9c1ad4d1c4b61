//! Holding of sends: the time at which sent data leaves.
//!
//! While a thread works through the events of one wait, its sends are held: they leave together
//! once as many descriptions have been sent on as there were events, with the next wait, or before
//! the first call that moves bytes 20 µs later. The answer to a single event and a send outside a
//! batch leave at once.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use slipstack_channel::{Heuristics, Rule};

/// A send that is held for longer leaves before the next call of the program's that moves bytes.
const HOLD_NS: u64 = 20_000;

/// Value of [`Batch::answered`] that no description has.
const NOBODY: u64 = 0;

/// The batch of events that one thread works through. Another thread's batch takes its place: the
/// first thread's sends then leave one by one.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The thread; 0 = none.
    owner: AtomicUsize,
    /// Events of the batch that have not been answered; at one, every send leaves.
    left: AtomicUsize,
    /// The description that was sent on last.
    answered: AtomicU64,
    /// Time since when a send is held; 0 = none is.
    held_ns: AtomicU64,
    /// Set if the batch was held for longer than [`HOLD_NS`].
    is_overdue: AtomicBool,
    /// The thread that sends the messages of one call; 0 = none.
    bursting: AtomicUsize,
    /// A stand-in sends held data if the thread comes back late.
    has_net: AtomicBool,
    rules: Heuristics,
}

impl Batch {
    pub(crate) fn new(rules: Heuristics) -> Batch {
        Batch {
            rules,
            ..Batch::default()
        }
    }

    /// Whether a thread that comes back late is stood in for.
    pub(crate) fn set_net(&self, has_net: bool) {
        self.has_net.store(has_net, Ordering::Relaxed);
    }

    /// `thread` has been given `count` events.
    pub(crate) fn begin(&self, thread: usize, count: usize) {
        let left = if self.holds() { count } else { 1 };
        self.left.store(left, Ordering::Relaxed);
        self.answered.store(NOBODY, Ordering::Relaxed);
        self.held_ns.store(0, Ordering::Relaxed);
        self.is_overdue.store(false, Ordering::Relaxed);
        self.owner.store(thread, Ordering::Relaxed);
    }

    /// Whether sends are held at all.
    pub(crate) fn holds(&self) -> bool {
        self.rules.has(Rule::Holds)
    }

    /// Several sends of `thread` follow at once, which are held until [`Batch::end_burst`].
    pub(crate) fn begin_burst(&self, thread: usize) {
        self.bursting.store(thread, Ordering::Relaxed);
    }

    pub(crate) fn end_burst(&self, thread: usize) {
        if self.is_in_burst(thread) {
            self.bursting.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_in_burst(&self, thread: usize) -> bool {
        self.bursting.load(Ordering::Relaxed) == thread
    }

    /// `thread` waits again, and sends everything.
    pub(crate) fn end(&self, thread: usize) {
        if self.owner.load(Ordering::Relaxed) == thread {
            self.owner.store(0, Ordering::Relaxed);
        }
        // A thread that has left a call by a jump may have left a burst open.
        self.end_burst(thread);
    }

    /// Whether a send on description `id` by `thread` is to leave now.
    pub(crate) fn is_due(&self, thread: usize, id: u64, now_ns: impl FnOnce() -> u64) -> bool {
        if self.is_in_burst(thread) {
            return false;
        }
        if self.owner.load(Ordering::Relaxed) != thread {
            return true;
        }
        let left = self.left.load(Ordering::Relaxed);
        if left <= 1 {
            return true;
        }
        let before = self.answered.load(Ordering::Relaxed);
        if before != id {
            self.answered.store(id, Ordering::Relaxed);
            if before != NOBODY {
                self.left.store(left - 1, Ordering::Relaxed);
                if left == 2 {
                    return true;
                }
            }
        }
        self.is_held_for_long(now_ns())
    }

    /// Returns whether a send has been held for long and there is no stand-in.
    fn is_held_for_long(&self, now: u64) -> bool {
        let held = self.held_ns.load(Ordering::Relaxed);
        if held == 0 {
            self.held_ns.store(now, Ordering::Relaxed);
        } else if now.wrapping_sub(held) >= HOLD_NS {
            if !self.has_net.load(Ordering::Relaxed) {
                // Without a stand-in the next call may come much later.
                self.held_ns.store(now, Ordering::Relaxed);
                return true;
            }
            // Not at once: the connection's FIN may follow, and then shares its frame.
            self.is_overdue.store(true, Ordering::Relaxed);
        }
        false
    }

    /// Whether something was held for too long by `thread`, once.
    #[inline]
    pub(crate) fn take_overdue(&self, thread: impl FnOnce() -> usize) -> bool {
        self.is_overdue.load(Ordering::Relaxed) && self.end_hold(thread())
    }

    #[cold]
    fn end_hold(&self, thread: usize) -> bool {
        let is_ours = self.owner.load(Ordering::Relaxed) == thread;
        if is_ours {
            self.is_overdue.store(false, Ordering::Relaxed);
            self.held_ns.store(0, Ordering::Relaxed);
        }
        is_ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_of_a_batch_leave_with_its_last_answer() {
        let batch = Batch::default();
        batch.begin(1, 3);
        assert!(!batch.is_due(1, 10, || 1_000));
        assert!(
            !batch.is_due(1, 10, || 1_500),
            "a second send for one event"
        );
        assert!(!batch.is_due(1, 20, || 2_000));
        assert!(batch.is_due(1, 30, || 3_000));
        assert!(batch.is_due(1, 10, || 4_000), "the batch is over");
    }

    #[test]
    fn a_batch_ends_after_its_last_answer_in_any_order() {
        let batch = Batch::default();
        batch.begin(1, 3);
        assert!(!batch.is_due(1, 30, || 1_000));
        assert!(!batch.is_due(1, 20, || 2_000));
        assert!(batch.is_due(1, 10, || 3_000));
    }

    #[test]
    fn without_the_heuristic_every_send_leaves_at_once() {
        let batch = Batch::new(Heuristics::without("holds").unwrap());
        batch.begin(1, 3);
        assert!(batch.is_due(1, 10, || 1_000));
        assert!(batch.is_due(1, 20, || 1_000));
    }

    #[test]
    fn sends_held_for_twenty_microseconds_leave_before_the_next_call() {
        let batch = Batch::default();
        batch.set_net(true);
        batch.begin(1, 9);
        assert!(!batch.is_due(1, 10, || 1_000));
        assert!(!batch.is_due(1, 20, || 20_999));
        assert!(!batch.take_overdue(|| 1));
        assert!(!batch.is_due(1, 20, || 21_000), "its end may follow");
        assert!(!batch.take_overdue(|| 2), "another thread's call");
        assert!(batch.take_overdue(|| 1));
        assert!(!batch.take_overdue(|| 1));
        assert!(!batch.is_due(1, 20, || 22_000), "held again");
        assert!(!batch.take_overdue(|| 1));
    }

    #[test]
    fn without_a_ticker_held_data_leaves_with_the_next_send() {
        let batch = Batch::default();
        batch.begin(1, 9);
        assert!(!batch.is_due(1, 10, || 1_000));
        assert!(batch.is_due(1, 20, || 21_000));
        assert!(!batch.take_overdue(|| 1));
        assert!(!batch.is_due(1, 20, || 22_000));
    }

    #[test]
    fn a_burst_is_held_until_its_end_also_in_a_batch() {
        let batch = Batch::default();
        batch.begin_burst(1);
        assert!((10..30).all(|id| !batch.is_due(1, id, || 1_000)));
        assert!(batch.is_due(2, 10, || 1_000), "another thread's");
        batch.end_burst(1);
        assert!(batch.is_due(1, 10, || 2_000));
        batch.begin(1, 1);
        batch.begin_burst(1);
        assert!(!batch.is_due(1, 10, || 3_000));
        batch.end_burst(1);
        assert!(batch.is_due(1, 10, || 4_000));
    }

    #[test]
    fn sends_of_other_threads_are_not_held() {
        let batch = Batch::default();
        batch.begin(1, 3);
        assert!(batch.is_due(2, 10, || 0));
    }

    #[test]
    fn a_single_event_is_answered_at_once() {
        let batch = Batch::default();
        batch.begin(1, 1);
        assert!(batch.is_due(1, 10, || 1_000));
        assert!(batch.is_due(1, 20, || 1_000));
    }
}
