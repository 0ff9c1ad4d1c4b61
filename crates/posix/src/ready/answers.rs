//! Holding of datagrams: when the answers to a queue of datagrams leave.
//!
//! A thread that works through a queue of datagrams sends one after the other. Each one that leaves
//! by itself costs a system call, and wakes the peer for one answer. So while more input waits for
//! the thread, and its datagrams follow each other closely, they are held and leave together: with
//! the last answer, when nothing is left to be read, with the next wait, or with one that is sent
//! after they have been held for 50 µs. If the thread makes no call for some milliseconds, a
//! stand-in or the instance sends them. The first datagram after a pause leaves at once.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Datagrams follow each other closely if the pause between them is at most this; the first of
/// those that are held is held no longer.
const CLOSE_NS: u64 = 50_000;
/// Datagrams that are held at most.
const HELD_MAX: usize = 32;

/// The held datagrams of one thread. Another thread's take their place: those of the first leave
/// with them.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// The thread; 0 = none.
    thread: AtomicUsize,
    /// Datagrams that it has received in one call and not answered yet.
    unanswered: AtomicUsize,
    held: AtomicUsize,
    /// Time since when the first of them is held.
    held_ns: AtomicU64,
    /// Time of the last datagram that was sent or held.
    sent_ns: AtomicU64,
}

impl Answers {
    /// `thread` has received so many datagrams in one call.
    pub(crate) fn on_received(&self, thread: usize, count: usize) {
        let is_others = self.thread.load(Ordering::Relaxed) != thread;
        if is_others && self.held.load(Ordering::Relaxed) > 0 {
            return;
        }
        self.enter(thread);
        self.unanswered.store(count, Ordering::Relaxed);
    }

    /// `thread` sends `count` datagrams on a socket. Returns whether they are held; otherwise they
    /// leave now, with those that were held before. `has_more`: input waits at the socket.
    pub(crate) fn are_held(
        &self,
        thread: usize,
        count: usize,
        has_more: bool,
        now_ns: u64,
    ) -> bool {
        self.enter(thread);
        let unanswered = self.unanswered.load(Ordering::Relaxed);
        let unanswered = unanswered.saturating_sub(count);
        self.unanswered.store(unanswered, Ordering::Relaxed);
        let pause_ns = now_ns.wrapping_sub(self.sent_ns.load(Ordering::Relaxed));
        self.sent_ns.store(now_ns, Ordering::Relaxed);
        let held = self.held.load(Ordering::Relaxed) + count;
        if held == count {
            self.held_ns.store(now_ns, Ordering::Relaxed);
        }
        let are_held = (has_more || unanswered > 0)
            && pause_ns <= CLOSE_NS
            && held < HELD_MAX
            && !self.is_late(now_ns);
        self.held
            .store(if are_held { held } else { 0 }, Ordering::Relaxed);
        are_held
    }

    /// Returns whether `thread` has held datagrams that may be held longer.
    pub(crate) fn may_wait(&self, thread: usize, now_ns: u64) -> bool {
        self.thread.load(Ordering::Relaxed) == thread
            && self.held.load(Ordering::Relaxed) > 0
            && !self.is_late(now_ns)
    }

    /// Returns whether `thread` has held datagrams. They leave now.
    pub(crate) fn take(&self, thread: usize) -> bool {
        if self.thread.load(Ordering::Relaxed) != thread {
            return false;
        }
        self.unanswered.store(0, Ordering::Relaxed);
        let has_any = self.held.load(Ordering::Relaxed) > 0;
        if has_any {
            self.held.store(0, Ordering::Relaxed);
        }
        has_any
    }

    fn is_late(&self, now_ns: u64) -> bool {
        now_ns.wrapping_sub(self.held_ns.load(Ordering::Relaxed)) > CLOSE_NS
    }

    fn enter(&self, thread: usize) {
        if self.thread.load(Ordering::Relaxed) != thread {
            self.thread.store(thread, Ordering::Relaxed);
            self.unanswered.store(0, Ordering::Relaxed);
            self.held.store(0, Ordering::Relaxed);
            self.sent_ns.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000_000;

    #[test]
    fn answers_to_a_queue_leave_with_the_last_and_the_first_leaves_at_once() {
        let answers = Answers::default();
        assert!(!answers.are_held(1, 1, true, NOW), "after a pause");
        assert!(answers.are_held(1, 1, true, NOW + 10));
        assert!(answers.may_wait(1, NOW + 20));
        assert!(answers.are_held(1, 1, true, NOW + 20));
        assert!(!answers.are_held(1, 1, false, NOW + 30), "nothing is left");
        assert!(!answers.may_wait(1, NOW + 30) && !answers.take(1));
    }

    #[test]
    fn slow_answers_leave_at_once() {
        let answers = Answers::default();
        for at in 1..10 {
            assert!(!answers.are_held(1, 1, true, NOW + at * (CLOSE_NS + 1)));
        }
    }

    #[test]
    fn answers_are_held_for_a_time_and_up_to_a_number() {
        let answers = Answers::default();
        assert!(!answers.are_held(1, 1, true, NOW));
        assert!(answers.are_held(1, 1, true, NOW + CLOSE_NS));
        assert!(answers.are_held(1, 1, true, NOW + 2 * CLOSE_NS));
        assert!(!answers.may_wait(1, NOW + 2 * CLOSE_NS + 1));
        assert!(!answers.are_held(1, 1, true, NOW + 2 * CLOSE_NS + 1));
        let now = NOW + 2 * CLOSE_NS + 2;
        assert!((1..HELD_MAX).all(|_| answers.are_held(1, 1, true, now)));
        assert!(!answers.are_held(1, 1, true, now));
    }

    #[test]
    fn datagrams_of_one_call_are_answered_together() {
        let answers = Answers::default();
        answers.on_received(1, 3);
        assert!(!answers.are_held(1, 1, false, NOW), "after a pause");
        assert!(answers.are_held(1, 1, false, NOW + 1));
        assert!(!answers.are_held(1, 1, false, NOW + 2));
        answers.on_received(1, 8);
        assert!(!answers.are_held(1, 8, false, NOW + 3));
    }

    #[test]
    fn what_another_thread_receives_changes_nothing_for_held_answers() {
        let answers = Answers::default();
        assert!(!answers.are_held(1, 1, true, NOW) && answers.are_held(1, 1, true, NOW + 1));
        answers.on_received(2, 8);
        assert!(answers.take(1));
    }

    #[test]
    fn what_is_held_leaves_when_its_thread_waits() {
        let answers = Answers::default();
        assert!(!answers.are_held(1, 1, true, NOW) && !answers.take(1));
        assert!(answers.are_held(1, 1, true, NOW + 1));
        assert!(!answers.take(2), "another thread");
        assert!(answers.take(1) && !answers.take(1));
        assert!(answers.are_held(1, 1, true, NOW + 2));
        assert!(!answers.are_held(2, 1, true, NOW + 3) && !answers.take(1));
    }
}
