//! Decides when a borrowed connection has been used enough to be requested from its owner.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Answers after which a connection is requested.
const LONG_TURNS: u32 = 16;
/// Time of use after which a connection is requested. Children that end sooner would pay more for
/// an engine of their own than they gain.
const LONG_USE_NS: u64 = 200_000_000;
/// A connection that was refused this often is not requested any more.
const ASKED_MAX: u32 = 8;

/// Use of a borrowed connection: questions and answers in turns, or otherwise.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    has_read: AtomicBool,
    /// Writes that have followed a read.
    count: AtomicU32,
    /// Number of requests.
    asked: AtomicU32,
    /// Time of the first call; 0 = there has been none.
    begun_ns: AtomicU64,
    /// Calls on one that has come in a message.
    uses: AtomicU32,
    /// Waits for it are known.
    is_noted: AtomicBool,
    /// The last thread that has made a call on it; 0 = none has.
    user: AtomicUsize,
    has_several_users: AtomicBool,
}

/// Calls on a connection that has come in a message, with which it is asked for again.
const USES_MAX: u32 = 64;

impl Turns {
    pub(crate) fn on_read(&self) {
        self.has_read.store(true, Ordering::Relaxed);
    }

    pub(crate) fn on_write(&self) {
        if self.has_read.swap(false, Ordering::Relaxed) {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns whether to request the connection: each time after twice as many answers, or twice
    /// as long a use.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        if asked >= ASKED_MAX {
            return false;
        }
        let begun = match self.begun_ns.load(Ordering::Relaxed) {
            0 => {
                self.begun_ns.store(now_ns, Ordering::Relaxed);
                now_ns
            }
            begun => begun,
        };
        self.count.load(Ordering::Relaxed) >= LONG_TURNS << asked
            || now_ns.saturating_sub(begun) >= LONG_USE_NS << asked
    }

    /// Returns the time at which the connection is to be requested, if it was used before and is
    /// used until then.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let asked = self.asked.load(Ordering::Relaxed);
        let begun = self.begun_ns.load(Ordering::Relaxed);
        (asked < ASKED_MAX && begun != 0).then(|| begun.saturating_add(LONG_USE_NS << asked))
    }

    /// The connection is requested.
    pub(crate) fn note_asked(&self) {
        let asked = self.asked.load(Ordering::Relaxed);
        self.asked
            .store((asked + 1).min(ASKED_MAX), Ordering::Relaxed);
    }

    /// Counts a call on a connection that has come in a message. Returns whether it is to be asked
    /// for: with the first call, the second, the fourth and so on.
    pub(crate) fn is_use_due(&self) -> bool {
        if self.asked.load(Ordering::Relaxed) == ASKED_MAX {
            return false;
        }
        let uses = self.uses.load(Ordering::Relaxed).saturating_add(1);
        self.uses.store(uses, Ordering::Relaxed);
        uses <= USES_MAX && uses.is_power_of_two()
    }

    /// A call of `thread` on it begins.
    pub(crate) fn note_user(&self, thread: usize) {
        let before = self.user.load(Ordering::Relaxed);
        if before != thread {
            self.user.store(thread, Ordering::Relaxed);
            self.has_several_users
                .fetch_or(before != 0, Ordering::Relaxed);
        }
    }

    /// Whether more than one thread makes calls on it.
    pub(crate) fn has_several_users(&self) -> bool {
        self.has_several_users.load(Ordering::Relaxed)
    }

    /// Returns true once, after the first call.
    pub(crate) fn is_first_use(&self) -> bool {
        self.begun_ns.load(Ordering::Relaxed) != 0 && !self.is_noted.swap(true, Ordering::Relaxed)
    }

    /// Whether `thread` has made the last call on it.
    pub(crate) fn is_user(&self, thread: usize) -> bool {
        self.user.load(Ordering::Relaxed) == thread
    }

    /// Counts a call. Returns true once there have been many.
    pub(crate) fn are_many(&self) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed) >= LONG_TURNS
    }

    pub(crate) fn never_ask(&self) {
        self.asked.store(ASKED_MAX, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_from_a_message_is_requested_ever_more_rarely() {
        let turns = Turns::default();
        let asked: Vec<u32> = (1..1000).filter(|_| turns.is_use_due()).collect();
        assert_eq!(asked, [1, 2, 4, 8, 16, 32, 64]);
        let turns = Turns::default();
        turns.never_ask();
        assert!(!turns.is_use_due());
    }

    #[test]
    fn the_user_is_the_thread_that_has_made_the_last_call() {
        let turns = Turns::default();
        assert!(!turns.is_user(3));
        turns.note_user(3);
        turns.note_user(3);
        assert!(turns.is_user(3) && !turns.has_several_users());
        turns.note_user(4);
        assert!(turns.is_user(4) && turns.has_several_users());
        turns.note_user(3);
        assert!(turns.is_user(3) && turns.has_several_users());
    }

    #[test]
    fn a_child_that_answers_often_requests_the_connection_at_growing_intervals() {
        let turns = Turns::default();
        let mut asked = Vec::new();
        for turn in 1..100_000 {
            turns.on_read();
            turns.on_read();
            turns.on_write();
            turns.on_write();
            if turns.is_due(1) {
                turns.note_asked();
                asked.push(turn);
            }
        }
        let expected: Vec<u32> = (0..ASKED_MAX).map(|at| LONG_TURNS << at).collect();
        assert_eq!(asked, expected);
    }

    #[test]
    fn a_wait_ends_when_the_connection_is_to_be_requested() {
        let turns = Turns::default();
        assert_eq!(turns.due_ns(), None, "not used");
        for _ in 0..ASKED_MAX {
            assert!(!turns.is_due(turns.due_ns().map_or(7, |due| due - 1)));
            let due = turns.due_ns().unwrap();
            assert!(turns.is_due(due));
            turns.note_asked();
        }
        assert_eq!(turns.due_ns(), None, "refused too often");
    }

    #[test]
    fn a_connection_in_use_for_long_is_requested_at_growing_intervals() {
        let turns = Turns::default();
        let begun = 7;
        let mut asked = Vec::new();
        for tenths in 0..1000 {
            if turns.is_due(begun + tenths * LONG_USE_NS / 2) {
                turns.note_asked();
                asked.push(tenths);
            }
        }
        let expected: Vec<u64> = (0..ASKED_MAX).map(|at| 2 << at).collect();
        assert_eq!(asked, expected);
    }
}
