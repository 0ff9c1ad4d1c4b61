//! When what was sent leaves.
//!
//! While a thread works through the events that a wait gave it, its sends are held: they leave
//! together with the last of them, with the next wait, or with the first send 20 µs on. A send
//! outside a batch leaves at once.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A held send leaves with the first that comes so much later.
const HOLD_NS: u64 = 20_000;

/// The batch of events that one thread works through. Another thread's batch takes its place: the
/// first thread's sends then leave one by one.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The thread; 0 = none.
    owner: AtomicUsize,
    /// The description whose event is the last of the batch.
    last: AtomicU64,
    /// Since when a send is held; 0 = none is.
    held_ns: AtomicU64,
}

impl Batch {
    /// `thread` has been given several events, the last one for description `last`.
    pub(crate) fn begin(&self, thread: usize, last: u64) {
        self.last.store(last, Ordering::Relaxed);
        self.held_ns.store(0, Ordering::Relaxed);
        self.owner.store(thread, Ordering::Relaxed);
    }

    /// The thread waits again, which lets everything leave.
    pub(crate) fn end(&self, thread: usize) {
        if self.owner.load(Ordering::Relaxed) == thread {
            self.owner.store(0, Ordering::Relaxed);
        }
    }

    /// Whether a send on description `id` by `thread` is to leave now.
    pub(crate) fn is_due(&self, thread: usize, id: u64, now_ns: impl FnOnce() -> u64) -> bool {
        if self.owner.load(Ordering::Relaxed) != thread {
            return true;
        }
        if self.last.load(Ordering::Relaxed) == id {
            self.owner.store(0, Ordering::Relaxed);
            return true;
        }
        let now = now_ns();
        let held = self.held_ns.load(Ordering::Relaxed);
        if held != 0 && now.wrapping_sub(held) < HOLD_NS {
            return false;
        }
        self.held_ns.store(now, Ordering::Relaxed);
        held != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_of_a_batch_leave_with_its_last_event() {
        let batch = Batch::default();
        batch.begin(1, 30);
        assert!(!batch.is_due(1, 10, || 1_000));
        assert!(!batch.is_due(1, 20, || 2_000));
        assert!(batch.is_due(1, 30, || 3_000));
        assert!(batch.is_due(1, 10, || 4_000), "the batch is over");
    }

    #[test]
    fn a_held_send_leaves_after_twenty_microseconds() {
        let batch = Batch::default();
        batch.begin(1, 30);
        assert!(!batch.is_due(1, 10, || 1_000));
        assert!(batch.is_due(1, 20, || 21_000));
        assert!(!batch.is_due(1, 20, || 22_000));
    }

    #[test]
    fn other_threads_hold_nothing() {
        let batch = Batch::default();
        batch.begin(1, 30);
        assert!(batch.is_due(2, 10, || 0));
    }
}
