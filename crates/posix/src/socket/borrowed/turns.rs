//! The decision that a borrowed connection is a long one.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Answers after which a connection is requested.
const LONG_TURNS: u32 = 16;
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
    /// Calls on one that has come in a message.
    uses: AtomicU32,
    /// The thread that makes calls on it; 0 = none has, [`SEVERAL`] = more than one do.
    user: AtomicUsize,
}

const SEVERAL: usize = usize::MAX;
/// Calls on a connection that has come in a message, with which it is asked for again.
const USES_MAX: u32 = 64;

impl Turns {
    pub(crate) fn on_read(&self) {
        self.has_read.store(true, Ordering::Relaxed);
    }

    /// Returns whether to request the connection: each time after twice as many turns.
    pub(crate) fn on_write(&self) -> bool {
        if !self.has_read.swap(false, Ordering::Relaxed) {
            return false;
        }
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let asked = self.asked.load(Ordering::Relaxed);
        let is_due = asked < ASKED_MAX && count >= LONG_TURNS << asked;
        if is_due {
            self.asked.store(asked + 1, Ordering::Relaxed);
        }
        is_due
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
        let known = self.user.load(Ordering::Relaxed);
        if known != thread && known != SEVERAL {
            let user = if known == 0 { thread } else { SEVERAL };
            self.user.store(user, Ordering::Relaxed);
        }
    }

    /// Whether no other thread has made a call on it.
    pub(crate) fn is_users_alone(&self, thread: usize) -> bool {
        let known = self.user.load(Ordering::Relaxed);
        known == 0 || known == thread
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
    fn a_second_thread_ends_the_exclusive_use() {
        let turns = Turns::default();
        assert!(turns.is_users_alone(3));
        turns.note_user(3);
        turns.note_user(3);
        assert!(turns.is_users_alone(3) && !turns.is_users_alone(4));
        turns.note_user(4);
        turns.note_user(3);
        assert!(!turns.is_users_alone(3) && !turns.is_users_alone(4));
    }

    #[test]
    fn a_child_that_answers_often_requests_the_connection_at_growing_intervals() {
        let turns = Turns::default();
        let mut asked = Vec::new();
        for turn in 1..100_000 {
            turns.on_read();
            turns.on_read();
            asked.extend(turns.on_write().then_some(turn));
            assert!(!turns.on_write());
        }
        let expected: Vec<u32> = (0..ASKED_MAX).map(|at| LONG_TURNS << at).collect();
        assert_eq!(asked, expected);
    }
}
