//! Limits a run over the receive ring to frames that arrived before the sink's clock was read.
//!
//! The sink handles a run with the time that it read before. If it was preempted since, frames that
//! arrived in the meantime would appear to have arrived then, and round trips would be measured too
//! short. Such frames wait for the next run.
//!
//! The kernel stamps frames with the wall clock. It is read only when a run spans more than a
//! moment of arrivals.

/// Arrivals this close to a run's first need no reading of a clock.
const MOMENT_NS: u64 = 250_000;

/// The frames of one run that their arrival times admit.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// The latest that is known to be admitted; 0 = nothing has been seen.
    upto: u64,
    is_final: bool,
}

impl Arrivals {
    /// Returns whether a frame of time `at` belongs to the run; the first always does. `read_at`
    /// gives the wall clock's time when the sink read its clock; `None`: the sink has none, and
    /// everything belongs to the run.
    #[inline]
    pub fn admits(&mut self, at: u64, read_at: impl FnOnce() -> Option<u64>) -> bool {
        if at <= self.upto {
            return true;
        }
        if self.upto == 0 {
            self.upto = at + MOMENT_NS;
            return true;
        }
        self.is_before_reading(at, read_at)
    }

    #[cold]
    fn is_before_reading(&mut self, at: u64, read_at: impl FnOnce() -> Option<u64>) -> bool {
        if !self.is_final {
            self.is_final = true;
            self.upto = read_at().unwrap_or(u64::MAX).max(self.upto);
        }
        at <= self.upto
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_000_000_000;

    #[test]
    fn frames_close_to_each_other_are_admitted_without_a_clock() {
        let mut arrivals = Arrivals::default();
        for at in [START, START + MOMENT_NS, START - 5_000_000] {
            assert!(arrivals.admits(at, || unreachable!("nobody has to look")));
        }
    }

    #[test]
    fn frames_that_arrived_after_the_clock_was_read_wait() {
        let mut arrivals = Arrivals::default();
        let read_at = START + 3_000_000;
        assert!(arrivals.admits(START, || None));
        assert!(arrivals.admits(read_at - 1, || Some(read_at)));
        assert!(arrivals.admits(read_at, || unreachable!("it is known")));
        assert!(!arrivals.admits(read_at + 1, || unreachable!("it is known")));
    }

    #[test]
    fn a_sink_without_a_clock_takes_all_frames() {
        let mut arrivals = Arrivals::default();
        for at in [START, START * 2, START * 3] {
            assert!(arrivals.admits(at, || None));
        }
    }
}
