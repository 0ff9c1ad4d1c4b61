//! Whether a program waits again at once after it has sent.
//!
//! It is learned from what the program does, and forgotten with the first return that is late: what
//! it sends is then not held for its next wait any more. Who is late again and again is trusted
//! ever later, unless it was by so little that the machine may have kept it.

use std::sync::atomic::{AtomicU32, Ordering};

/// The longest time from a batch's last send to the next wait of a program that comes back at once.
pub(crate) const PROMPT_NS: u64 = 50_000;
/// A return that is not later than this may be the machine's doing, and nothing would have waited
/// for long.
const MILD_NS: u64 = 250_000;
/// Returns in a row after which it is believed: at first, and at most.
pub(crate) const LEARN_MIN: u32 = 16;
const LEARN_MAX: u32 = 4096;
/// Factor by which a late return raises the number to learn from, and how many times that number of
/// prompt ones halves it again.
const DISTRUST: u32 = 4;
const FORGIVE: u32 = 4;

#[derive(Debug)]
pub(crate) struct Promptness {
    /// Prompt returns in a row.
    streak: AtomicU32,
    /// How many it takes.
    needed: AtomicU32,
}

impl Default for Promptness {
    fn default() -> Self {
        Promptness {
            streak: AtomicU32::new(0),
            needed: AtomicU32::new(LEARN_MIN),
        }
    }
}

impl Promptness {
    #[inline]
    pub(crate) fn is_prompt(&self) -> bool {
        self.streak.load(Ordering::Relaxed) >= self.needed.load(Ordering::Relaxed)
    }

    /// The program waits again, so long after its last send.
    #[inline]
    pub(crate) fn on_return(&self, after_ns: u64) {
        if after_ns > MILD_NS {
            self.on_late();
            return;
        }
        if after_ns > PROMPT_NS {
            self.streak.store(0, Ordering::Relaxed);
            return;
        }
        let streak = self.streak.load(Ordering::Relaxed) + 1;
        let needed = self.needed.load(Ordering::Relaxed);
        if streak < needed * FORGIVE {
            self.streak.store(streak, Ordering::Relaxed);
        } else if needed > LEARN_MIN {
            self.needed.store(needed / 2, Ordering::Relaxed);
            self.streak.store(needed, Ordering::Relaxed);
        }
    }

    #[cold]
    pub(crate) fn on_late(&self) {
        let needed = self.needed.load(Ordering::Relaxed);
        self.streak.store(0, Ordering::Relaxed);
        let next = (needed * DISTRUST).min(LEARN_MAX);
        self.needed.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn returns_until_prompt(promptness: &Promptness) -> u32 {
        (0..)
            .find(|_| {
                let is_prompt = promptness.is_prompt();
                promptness.on_return(1);
                is_prompt
            })
            .unwrap()
    }

    #[test]
    fn a_late_return_costs_more_each_time() {
        let promptness = Promptness::default();
        assert_eq!(returns_until_prompt(&promptness), LEARN_MIN);
        promptness.on_return(MILD_NS + 1);
        assert_eq!(returns_until_prompt(&promptness), LEARN_MIN * DISTRUST);
        for _ in 0..10 {
            promptness.on_return(MILD_NS + 1);
        }
        assert_eq!(returns_until_prompt(&promptness), LEARN_MAX);
    }

    #[test]
    fn long_good_conduct_is_rewarded() {
        let promptness = Promptness::default();
        for _ in 0..10 {
            promptness.on_return(MILD_NS + 1);
        }
        for _ in 0..LEARN_MAX * 10 {
            promptness.on_return(1);
        }
        assert!(promptness.is_prompt());
        promptness.on_return(MILD_NS + 1);
        assert_eq!(returns_until_prompt(&promptness), LEARN_MIN * DISTRUST);
    }

    #[test]
    fn a_little_late_is_forgiven_soon() {
        let promptness = Promptness::default();
        for _ in 0..10 {
            assert_eq!(returns_until_prompt(&promptness), LEARN_MIN);
            promptness.on_return(MILD_NS);
            assert!(!promptness.is_prompt());
        }
    }
}
