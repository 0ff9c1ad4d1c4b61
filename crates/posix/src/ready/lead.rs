//! The lead: the right of one of a program's threads to drive the engine.
//!
//! One waiting thread spins, makes the turns and sleeps on the device; it has the *lead*. All
//! others sleep on their own doorbells at once, so the engine's lock is nearly always free. A
//! thread keeps the lead while it is in the program's code, as long as such absences are short:
//! until it waits again no other thread is woken in its place. A thread that finds it away for
//! longer takes the lead over, and the engine's stand-in has a sleeper woken. Where absences are
//! long, the lead is free as soon as its thread leaves, and a sleeper is woken to take it.
//!
//! A leader that sleeps and is woken only for another thread's socket gives that thread the lead,
//! because the next event is likely to be for it too. A leader that is about to sleep while another
//! thread sends gives the lead to that thread, which is about to wait, instead of waiting for the
//! engine.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// A leader that is away for longer may be replaced.
const ABSENT_NS: u64 = 50_000;
/// Absences up to this are short.
const SHORT_NS: u64 = 100_000;
/// Short absences after which the next is expected to be one; how many are remembered, and how many
/// a long one undoes: a thread that lost its processor once is not distrusted for it.
const TRUST: u32 = 8;
const TRUST_MAX: u32 = 32;
const LATE: u32 = 12;

/// Values of [`Lead::away_since`]: it waits; it is away, and no thread slept when it left.
const HERE: u64 = 0;
const LONG_AGO: u64 = 1;

/// Way in which a thread leaves a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// No other thread sleeps.
    Alone,
    /// The leader is likely to be back at once.
    Shortly { now_ns: u64 },
    /// Left for longer than that.
    ForLong { now_ns: u64 },
}

#[derive(Debug, Default)]
pub(crate) struct Lead {
    /// The thread; 0 = none.
    thread: AtomicUsize,
    away_since: AtomicU64,
    /// The thread that left last while others slept, and when.
    left: AtomicUsize,
    left_ns: AtomicU64,
    /// Short absences, less a penalty for long ones.
    short: AtomicU32,
    /// The thread that has the engine send for it, if one does; 0 = none.
    sender: AtomicUsize,
    /// A stand-in notices if the leader stays away.
    has_net: AtomicBool,
}

impl Lead {
    /// A thread waits: whether it is the one that drives.
    #[inline]
    pub(crate) fn enter(&self, thread: usize, now_ns: u64) -> bool {
        if self.left.load(Ordering::Relaxed) == thread {
            self.on_return(now_ns);
        }
        let holder = self.thread.load(Ordering::SeqCst);
        if holder == thread {
            self.away_since.store(HERE, Ordering::Relaxed);
            return true;
        }
        let is_free = holder == 0 || self.is_absent(now_ns);
        let (made, else_read) = (Ordering::SeqCst, Ordering::Relaxed);
        let has_it = is_free
            && self
                .thread
                .compare_exchange(holder, thread, made, else_read)
                .is_ok();
        if has_it {
            self.away_since.store(HERE, Ordering::SeqCst);
        }
        has_it
    }

    /// Whether the leader is in the program's code, for however short.
    pub(crate) fn is_away(&self) -> bool {
        self.away_since.load(Ordering::SeqCst) != HERE
    }

    fn is_absent(&self, now_ns: u64) -> bool {
        let since = self.away_since.load(Ordering::SeqCst);
        since != HERE && now_ns.saturating_sub(since) > ABSENT_NS
    }

    /// Returns whether no thread drives, or is about to be back.
    pub(crate) fn is_vacant(&self, now_ns: impl FnOnce() -> u64) -> bool {
        self.thread.load(Ordering::SeqCst) == 0 || self.is_away() && self.is_absent(now_ns())
    }

    /// Runs `send`, with which the thread has the engine for a while.
    #[inline]
    pub(crate) fn while_sending(&self, thread: usize, send: impl FnOnce()) {
        self.sender.store(thread, Ordering::Relaxed);
        send();
        self.sender.store(0, Ordering::Relaxed);
    }

    pub(crate) fn sender(&self) -> usize {
        self.sender.load(Ordering::Relaxed)
    }

    pub(crate) fn set_net(&self, has_net: bool) {
        self.has_net.store(has_net, Ordering::Relaxed);
    }

    /// Returns whether the last absences were short, so that the leader keeps the lead. If not, any
    /// waiting thread drives.
    #[inline]
    pub(crate) fn is_trusted(&self) -> bool {
        self.short.load(Ordering::Relaxed) >= TRUST && self.has_net.load(Ordering::Relaxed)
    }

    /// `thread` leaves a wait; false if it does not have the lead.
    #[inline]
    pub(crate) fn leave(&self, thread: usize, how: Leave) -> bool {
        if self.thread.load(Ordering::Relaxed) != thread {
            return false;
        }
        let now_ns = match how {
            // A thread that falls asleep now sees this, or is seen by the thread that looks for
            // sleepers.
            Leave::Alone => {
                self.away_since.store(LONG_AGO, Ordering::SeqCst);
                return true;
            }
            Leave::Shortly { now_ns } => {
                self.away_since.store(now_ns, Ordering::SeqCst);
                now_ns
            }
            Leave::ForLong { now_ns } => {
                self.vacate();
                now_ns
            }
        };
        self.left_ns.store(now_ns, Ordering::Relaxed);
        self.left.store(thread, Ordering::Relaxed);
        true
    }

    #[cold]
    fn on_return(&self, now_ns: u64) {
        self.left.store(0, Ordering::Relaxed);
        let away_ns = now_ns.saturating_sub(self.left_ns.load(Ordering::Relaxed));
        let short = self.short.load(Ordering::Relaxed);
        let short = match away_ns <= SHORT_NS {
            true => (short + 1).min(TRUST_MAX),
            false => short.saturating_sub(LATE),
        };
        self.short.store(short, Ordering::Relaxed);
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

    /// `to`, which has been woken, drives from now on; false if `from` had not the lead.
    pub(crate) fn hand_on(&self, from: usize, to: usize, now_ns: u64) -> bool {
        let (made, else_read) = (Ordering::SeqCst, Ordering::Relaxed);
        let is_given = self
            .thread
            .compare_exchange(from, to, made, else_read)
            .is_ok();
        if is_given {
            self.away_since.store(now_ns, Ordering::SeqCst);
        }
        is_given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: u64 = 1_000_000;

    fn trusted() -> Lead {
        let lead = Lead::default();
        lead.set_net(true);
        for at in 0..u64::from(TRUST) {
            assert!(!lead.is_trusted());
            assert!(lead.enter(1, SOON + 2 * at));
            let now_ns = SOON + 2 * at + 1;
            assert!(lead.leave(1, Leave::ForLong { now_ns }));
        }
        assert!(lead.enter(1, SOON + 100));
        assert!(lead.is_trusted());
        lead
    }

    #[test]
    fn one_thread_has_the_lead_until_it_is_away_for_long() {
        let lead = trusted();
        let now_ns = 2 * SOON;
        assert!(!lead.enter(2, now_ns));
        assert!(lead.leave(1, Leave::Shortly { now_ns }));
        assert!(!lead.enter(2, now_ns + ABSENT_NS));
        assert!(!lead.is_vacant(|| now_ns + ABSENT_NS));
        assert!(lead.enter(2, now_ns + ABSENT_NS + 1));
        assert!(!lead.enter(1, now_ns + ABSENT_NS + 2));
    }

    #[test]
    fn long_absences_end_the_lead() {
        let lead = trusted();
        for at in 2..2 + u64::from(TRUST_MAX) {
            let now_ns = at * SOON;
            lead.leave(1, Leave::Shortly { now_ns });
            assert!(lead.enter(1, now_ns + SHORT_NS));
        }
        for (at, is_trusted) in [(40, true), (41, true), (42, false)] {
            let now_ns = at * SOON;
            lead.leave(1, Leave::Shortly { now_ns });
            assert!(lead.enter(1, now_ns + SHORT_NS + 1));
            assert_eq!(lead.is_trusted(), is_trusted, "{at}");
        }
    }

    #[test]
    fn a_leader_that_leaves_is_replaced_by_the_next_waiting_thread() {
        let lead = Lead::default();
        assert!(lead.enter(1, SOON));
        assert!(lead.leave(1, Leave::Alone));
        assert!(lead.enter(2, SOON));
        assert!(!lead.leave(1, Leave::Alone), "it is another's");
    }

    #[test]
    fn a_thread_that_is_given_the_lead_has_it_when_it_waits() {
        let lead = trusted();
        assert!(lead.hand_on(1, 2, SOON));
        assert!(!lead.hand_on(1, 3, SOON));
        assert!(!lead.enter(1, SOON));
        assert!(lead.enter(2, SOON));
    }
}
