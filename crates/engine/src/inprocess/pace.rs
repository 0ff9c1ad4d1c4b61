//! Intervals of the ticker's looks: short for a program that has been away while something was
//! due, long for one that has always been found prompt.
//!
//! A look costs two switches, whatever it finds. With a process for each of 32 connections
//! (PostgreSQL) on two processors, looks every 4 ms took 8 % of the processor time.

/// Age from which a turn counts as too old, and the interval of the looks at a program that is not
/// known to be prompt.
pub(super) const TICK_NS: u64 = 4_000_000;
/// Interval of the looks at a prompt program.
const LONG_NS: u64 = 16_000_000;
/// Looks in a row that have to find the program prompt before they become rare: at first, and at
/// most.
const PROMPT_AFTER: u32 = 32;
const PROMPT_AFTER_MAX: u32 = 4096;
/// Prompt looks in a row that halve the number that it takes.
const FORGIVE_AFTER: u32 = 1024;
/// Looks in a row that find the program in one and the same wait before the ticker parks.
const PARK_AFTER: u32 = 8;

#[derive(Debug)]
pub(super) struct Pace {
    /// Looks in a row that have found the program prompt.
    prompt: u32,
    /// Prompt looks from which on they are rare: more after each time that this was an error.
    prompt_after: u32,
    /// Looks in a row that have found the program in the wait after its turn at `waits_since`.
    waiting: u32,
    waits_since: u64,
}

impl Pace {
    pub(super) const NEW: Pace = Pace {
        prompt: 0,
        prompt_after: PROMPT_AFTER,
        waiting: 0,
        waits_since: 0,
    };

    /// Returns the time until the next look, if the last turn is `age_ns` old: so short that a
    /// program that is not known to be prompt is seen once its turn is too old.
    pub(super) fn pause_ns(&self, age_ns: u64) -> u64 {
        match self.is_long() {
            true => LONG_NS,
            false => TICK_NS.saturating_sub(age_ns),
        }
    }

    fn is_long(&self) -> bool {
        self.prompt >= self.prompt_after
    }

    /// A look has found a recent turn, or the program waiting.
    pub(super) fn on_prompt(&mut self) {
        self.prompt = self.prompt.saturating_add(1);
        let rare = self.prompt.saturating_sub(self.prompt_after);
        if rare >= FORGIVE_AFTER {
            self.prompt_after = (self.prompt_after / 2).max(PROMPT_AFTER);
            self.prompt = self.prompt_after;
        }
    }

    /// A look has found the program in the wait that followed its turn at `driven_at`. Returns
    /// whether the wait is a long one.
    pub(super) fn on_waiting(&mut self, driven_at: u64) -> bool {
        self.on_prompt();
        if self.waits_since != driven_at {
            (self.waits_since, self.waiting) = (driven_at, 0);
        }
        self.waiting = self.waiting.saturating_add(1);
        self.waiting > PARK_AFTER
    }

    /// A turn in the program's place had something to do.
    pub(super) fn on_due(&mut self) {
        if self.is_long() {
            self.prompt_after = (self.prompt_after * 4).min(PROMPT_AFTER_MAX);
        }
        self.prompt = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_looks(pace: &mut Pace, looks: u32) -> u64 {
        for _ in 0..looks {
            pace.on_prompt();
        }
        pace.pause_ns(0)
    }

    #[test]
    fn looks_at_a_prompt_program_become_rare() {
        let mut pace = Pace::NEW;
        assert_eq!(of_looks(&mut pace, PROMPT_AFTER - 1), TICK_NS);
        assert_eq!(of_looks(&mut pace, 1), LONG_NS);
    }

    #[test]
    fn a_program_that_was_needed_while_it_was_away_is_seen_within_a_tick_for_longer_each_time() {
        let mut pace = Pace::NEW;
        let mut looks = PROMPT_AFTER;
        for _ in 0..6 {
            assert_eq!(of_looks(&mut pace, looks), LONG_NS);
            pace.on_due();
            looks = (looks * 4).min(PROMPT_AFTER_MAX);
            assert_eq!(of_looks(&mut pace, looks - 1), TICK_NS);
            assert_eq!(pace.pause_ns(TICK_NS / 4), TICK_NS - TICK_NS / 4);
            pace.on_due();
        }
    }

    #[test]
    fn long_promptness_is_rewarded() {
        let mut pace = Pace::NEW;
        for _ in 0..2 {
            of_looks(&mut pace, PROMPT_AFTER_MAX);
            pace.on_due();
        }
        of_looks(&mut pace, 4 * FORGIVE_AFTER);
        pace.on_due();
        assert_eq!(of_looks(&mut pace, PROMPT_AFTER * 4), LONG_NS);
    }

    #[test]
    fn only_a_single_long_wait_is_one_to_park_in() {
        let mut pace = Pace::NEW;
        for turn in 0..100 {
            assert!(!pace.on_waiting(turn));
        }
        let looks = (0..20).find(|_| pace.on_waiting(100));
        assert_eq!(looks, Some(PARK_AFTER));
    }
}
