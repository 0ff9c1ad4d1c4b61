//! When what was sent leaves.
//!
//! While a thread works through the events that a wait gave it, its sends are held: they leave
//! together with the last of them, with the next wait, or before the first call that moves bytes 20
//! µs on. The sends of a program that usually waits again at once leave with that wait, whichever
//! event they are for: all answers share one call. The answer to a lone event leaves at once, what
//! is sent after it with the wait. With spinning off it waits too if something was sent after the
//! last such answer: an answer and the end of its connection then share a frame, which costs the
//! former some microseconds. A send outside a batch leaves at once.
//!
//! With spinning off, sends of such a program are held for up to 100 µs. There, and where the
//! program is behind, what the engine has to say after a sleep leaves with them, and for 50 µs
//! events that are known are handed out before anything leaves.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use slipstack_channel::{Heuristics, Rule};

use crate::promptness::Promptness;
use crate::spin::Coalescing;

/// A send that is held for longer leaves before the next call of the program's that moves bytes.
const HOLD_NS: u64 = 20_000;
/// As [`HOLD_NS`], with spinning off and for who answers and waits at once. Where all processors
/// are busy it would keep the peers from theirs.
const HOLD_LONG_NS: u64 = 100_000;

/// Events that are there are handed out before what is held leaves, for so long.
const GATHER_NS: u64 = 50_000;
/// A program that comes back so much later has kept the wire waiting, whether it has sent or not.
const GATHER_LATE_NS: u64 = 1_000_000;

/// Values of [`Batch::last`] that no description has: every send leaves, and none does.
const NOBODY: u64 = 0;
const THE_WAIT: u64 = u64::MAX;

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
    /// For how long it is.
    hold_ns: AtomicU64,
    /// It was held for longer.
    is_overdue: AtomicBool,
    /// When the batch's latest send was made; 0 = there was none.
    sent_ns: AtomicU64,
    /// It is a lone event.
    is_lone: AtomicBool,
    /// Since when the engine may hold what it has to say for the program's answers; 0 = it does
    /// not.
    gathering_ns: AtomicU64,
    /// More than one send followed the last lone event that any followed.
    has_sequel: AtomicBool,
    /// Somebody lets a held send leave if the thread comes back late.
    has_net: AtomicBool,
    promptness: Promptness,
    rules: Heuristics,
}

impl Batch {
    pub(crate) fn new(rules: Heuristics) -> Batch {
        Batch {
            rules,
            ..Batch::default()
        }
    }

    /// Whether a thread that comes back late is stood in for. Without that, its promptness is not
    /// relied on.
    pub(crate) fn set_net(&self, has_net: bool) {
        self.has_net.store(has_net, Ordering::Relaxed);
    }

    /// Whether the program usually answers and waits again at once.
    pub(crate) fn is_prompt(&self) -> bool {
        self.has_net.load(Ordering::Relaxed)
            && self.promptness.is_prompt()
            && self.rules.has(Rule::Prompt)
    }

    /// Whether answers are lately followed by the end of their connection.
    pub(crate) fn has_sequel(&self) -> bool {
        self.has_sequel.load(Ordering::Relaxed) && self.rules.has(Rule::Lone)
    }

    /// Begins a batch: later sends may leave together.
    pub(crate) fn begin_gathering(&self, now_ns: u64) {
        self.gathering_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Whether that is so short a while ago that what is known to have come may be answered first.
    pub(crate) fn is_gathering(&self, now_ns: u64) -> bool {
        now_ns.wrapping_sub(self.gathering_ns.load(Ordering::Relaxed)) < GATHER_NS
    }

    /// `thread` has been given `count` events, the last one for description `last`.
    pub(crate) fn begin(&self, thread: usize, count: usize, last: u64, coalescing: Coalescing) {
        let is_lone = count == 1;
        let is_worth = !is_lone || coalescing != Coalescing::None && self.has_sequel();
        let last = match is_worth {
            true if self.is_prompt() => THE_WAIT,
            _ if is_lone || !self.rules.has(Rule::Holds) => NOBODY,
            _ => last,
        };
        self.is_lone.store(is_lone, Ordering::Relaxed);
        let is_long = coalescing == Coalescing::Always && last == THE_WAIT;
        let hold_ns = if is_long { HOLD_LONG_NS } else { HOLD_NS };
        self.hold(thread, last, hold_ns);
    }

    fn hold(&self, thread: usize, last: u64, hold_ns: u64) {
        self.last.store(last, Ordering::Relaxed);
        self.hold_ns.store(hold_ns, Ordering::Relaxed);
        self.held_ns.store(0, Ordering::Relaxed);
        self.is_overdue.store(false, Ordering::Relaxed);
        self.sent_ns.store(0, Ordering::Relaxed);
        self.owner.store(thread, Ordering::Relaxed);
    }

    /// Several sends of `thread` follow at once: they are held, unless it is in a batch already.
    /// `true`: [`Batch::end_burst`] has to follow.
    pub(crate) fn begin_burst(&self, thread: usize) -> bool {
        let begins = self.owner.load(Ordering::Relaxed) != thread;
        if begins {
            self.is_lone.store(false, Ordering::Relaxed);
            self.hold(thread, THE_WAIT, HOLD_NS);
        }
        begins
    }

    /// The last of them was made, and all are to leave. It says nothing of how prompt the thread
    /// is.
    pub(crate) fn end_burst(&self) {
        self.owner.store(0, Ordering::Relaxed);
    }

    /// The thread waits again, which lets everything leave.
    pub(crate) fn end(&self, thread: usize, now_ns: impl FnOnce() -> u64) {
        if self.owner.load(Ordering::Relaxed) != thread {
            return;
        }
        self.owner.store(0, Ordering::Relaxed);
        let sent = self.sent_ns.load(Ordering::Relaxed);
        let gathering = self.gathering_ns.load(Ordering::Relaxed);
        if sent == 0 && gathering == 0 {
            return;
        }
        let now = now_ns();
        if gathering != 0 && now.saturating_sub(gathering) > GATHER_LATE_NS {
            self.gathering_ns.store(0, Ordering::Relaxed);
            self.promptness.on_late();
        } else if sent != 0 {
            self.promptness.on_return(now.saturating_sub(sent));
        }
    }

    /// Whether a send on description `id` by `thread` is to leave now.
    pub(crate) fn is_due(&self, thread: usize, id: u64, now_ns: impl FnOnce() -> u64) -> bool {
        if self.owner.load(Ordering::Relaxed) != thread {
            return true;
        }
        let now = now_ns();
        let is_sequel = self.sent_ns.swap(now, Ordering::Relaxed) != 0;
        if self.is_lone.load(Ordering::Relaxed) {
            self.has_sequel.store(is_sequel, Ordering::Relaxed);
        }
        let last = self.last.load(Ordering::Relaxed);
        if last == NOBODY || last == id {
            let sequels = match self.is_prompt() {
                true => THE_WAIT,
                false => NOBODY,
            };
            self.last.store(sequels, Ordering::Relaxed);
            return true;
        }
        let held = self.held_ns.load(Ordering::Relaxed);
        if held == 0 {
            self.held_ns.store(now, Ordering::Relaxed);
        } else if now.wrapping_sub(held) >= self.hold_ns.load(Ordering::Relaxed) {
            if !self.has_net.load(Ordering::Relaxed) {
                // Without anybody to stand in the next call may be a long time off.
                self.held_ns.store(now, Ordering::Relaxed);
                return true;
            }
            // Not at once: what ends this connection may follow, and shares its frame.
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

    /// A send of `thread` has left. How long that took says nothing of the program.
    pub(crate) fn on_left(&self, thread: usize, now_ns: impl FnOnce() -> u64) {
        if self.owner.load(Ordering::Relaxed) == thread {
            self.sent_ns.store(now_ns(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promptness::{LEARN_MIN, PROMPT_NS};

    /// A batch of one event that is answered with so many sends; whether each of them left at once.
    fn answer(batch: &Batch, sends: usize, coalescing: Coalescing) -> Vec<bool> {
        batch.begin(1, 1, 10, coalescing);
        let due = (0..sends).map(|_| batch.is_due(1, 10, || 1_000)).collect();
        batch.end(1, || 2_000);
        due
    }

    fn prompt() -> Batch {
        let batch = Batch::default();
        batch.set_net(true);
        for _ in 0..LEARN_MIN {
            assert_eq!(
                answer(&batch, 2, Coalescing::Always),
                [true; 2],
                "not learned yet"
            );
        }
        batch
    }

    #[test]
    fn sends_of_a_batch_leave_with_its_last_event() {
        let batch = Batch::default();
        batch.begin(1, 3, 30, Coalescing::None);
        assert!(!batch.is_due(1, 10, || 1_000));
        assert!(!batch.is_due(1, 20, || 2_000));
        assert!(batch.is_due(1, 30, || 3_000));
        assert!(batch.is_due(1, 10, || 4_000), "the batch is over");
    }

    #[test]
    fn what_is_held_for_twenty_microseconds_leaves_before_the_next_call() {
        let batch = Batch::default();
        batch.set_net(true);
        batch.begin(1, 3, 30, Coalescing::None);
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
    fn where_nobody_stands_in_it_leaves_with_the_send_that_finds_it() {
        let batch = Batch::default();
        batch.begin(1, 3, 30, Coalescing::None);
        assert!(!batch.is_due(1, 10, || 1_000));
        assert!(batch.is_due(1, 20, || 21_000));
        assert!(!batch.take_overdue(|| 1));
        assert!(!batch.is_due(1, 20, || 22_000));
    }

    #[test]
    fn a_burst_is_held_until_its_end_and_leaves_a_batch_alone() {
        let batch = Batch::default();
        assert!(batch.begin_burst(1));
        assert!(!batch.is_due(1, 10, || 1_000));
        batch.end_burst();
        assert!(batch.is_due(1, 10, || 2_000));
        batch.begin(1, 2, 30, Coalescing::None);
        assert!(!batch.begin_burst(1));
    }

    #[test]
    fn other_threads_hold_nothing() {
        let batch = prompt();
        batch.begin(1, 3, 30, Coalescing::None);
        assert!(batch.is_due(2, 10, || 0));
    }

    #[test]
    fn a_lone_event_is_answered_at_once() {
        let batch = Batch::default();
        batch.begin(1, 1, 10, Coalescing::None);
        assert!(batch.is_due(1, 10, || 1_000));
        assert!(batch.is_due(1, 20, || 1_000));
    }

    #[test]
    fn who_always_comes_back_at_once_sends_with_the_wait() {
        let batch = prompt();
        batch.begin(1, 3, 30, Coalescing::None);
        assert!(!batch.is_due(1, 30, || 4_000), "in whatever order");
        assert!(!batch.is_due(1, 10, || 5_000));
        assert!(!batch.is_due(1, 20, || 30_000));
        assert!(batch.take_overdue(|| 1), "but not for long");
    }

    #[test]
    fn what_sending_takes_is_not_the_programs_lateness() {
        let batch = prompt();
        batch.begin(1, 1, 10, Coalescing::None);
        assert!(batch.is_due(1, 10, || 1_000));
        batch.on_left(1, || 2_000_000);
        batch.end(1, || 2_000_000 + PROMPT_NS);
        assert!(batch.is_prompt());
    }

    #[test]
    fn a_coalescing_program_holds_longer() {
        let batch = prompt();
        batch.begin(1, 9, 90, Coalescing::Always);
        assert!(!batch.is_due(1, 10, || 1_000));
        assert!(!batch.is_due(1, 20, || 100_000));
        assert!(!batch.take_overdue(|| 1));
        assert!(!batch.is_due(1, 30, || 101_000));
        assert!(batch.take_overdue(|| 1), "but not for ever");
    }

    #[test]
    fn what_follows_a_lone_answer_waits() {
        let batch = prompt();
        assert_eq!(answer(&batch, 3, Coalescing::None), [true, false, false]);
    }

    #[test]
    fn a_coalescing_program_lets_a_lone_answer_wait_for_what_followed_the_last_one() {
        let batch = prompt();
        assert_eq!(answer(&batch, 2, Coalescing::Always), [false; 2]);
        assert_eq!(answer(&batch, 1, Coalescing::Always), [false]);
        assert_eq!(answer(&batch, 1, Coalescing::Always), [true]);
        assert!(answer(&batch, 0, Coalescing::Always).is_empty());
        assert_eq!(answer(&batch, 2, Coalescing::Always), [true, false]);
        assert_eq!(answer(&batch, 2, Coalescing::Always), [false; 2]);
    }

    #[test]
    fn outside_of_a_batch_nothing_is_held() {
        let batch = prompt();
        assert!(batch.is_due(1, 10, || 1_000));
    }

    #[test]
    fn where_nobody_stands_in_promptness_is_not_relied_on() {
        let batch = prompt();
        batch.set_net(false);
        batch.begin(1, 3, 30, Coalescing::None);
        assert!(batch.is_due(1, 30, || 1_000));
        assert!(batch.is_due(1, 30, || 2_000));
    }

    #[test]
    fn who_keeps_the_wire_waiting_is_not_trusted() {
        let batch = prompt();
        batch.begin_gathering(1_000);
        assert!(batch.is_gathering(1_000 + GATHER_NS - 1));
        assert!(!batch.is_gathering(1_000 + GATHER_NS));
        batch.begin(1, 1, 10, Coalescing::Always);
        batch.end(1, || 1_000 + GATHER_LATE_NS);
        assert!(batch.is_prompt());
        batch.begin(1, 1, 10, Coalescing::Always);
        batch.end(1, || 1_001 + GATHER_LATE_NS);
        assert!(!batch.is_prompt(), "nothing was sent in that time");
        batch.begin(1, 1, 10, Coalescing::Always);
        batch.end(1, || 1_002 + GATHER_LATE_NS);
    }

    #[test]
    fn one_late_return_ends_the_trust() {
        let batch = prompt();
        batch.begin(1, 3, 30, Coalescing::None);
        assert!(!batch.is_due(1, 30, || 1_000));
        batch.end(1, || 1_000 + PROMPT_NS + 1);
        batch.begin(1, 3, 30, Coalescing::None);
        assert!(batch.is_due(1, 30, || 1_000_000));
    }
}
