//! The decision that a borrowed connection is a long one.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Answers after which a connection is asked for.
const LONG_TURNS: u32 = 16;
/// A connection that has stayed so often is not asked for any more.
const ASKED_MAX: u32 = 8;

/// How a borrowed connection is used: questions and answers in turns, or otherwise.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    has_read: AtomicBool,
    /// Writes that have followed a read.
    count: AtomicU32,
    /// How often it was asked for.
    asked: AtomicU32,
}

impl Turns {
    pub(crate) fn on_read(&self) {
        self.has_read.store(true, Ordering::Relaxed);
    }

    /// Whether it is time to ask for the connection: each time after twice as many turns.
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
    fn who_answers_often_asks_and_ever_more_rarely() {
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
