//! Load of an engine, estimated from the times at which its turns begin.

use slipstack_stack::Instant;

/// The time of the work that goes on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Time at which the last turn with work began, or up to which its time has been counted, in
    /// nanoseconds; 0 while there is none.
    since: u64,
}

impl Load {
    /// Something is done.
    #[inline]
    pub(crate) fn on_work(&mut self, now: Instant) {
        if self.since == 0 {
            self.since = now.0;
        }
    }

    /// Ends the present period of work, and returns its nanoseconds.
    #[inline]
    pub(crate) fn take(&mut self, now: Instant) -> u64 {
        match std::mem::take(&mut self.since) {
            0 => 0,
            since => now.0.saturating_sub(since),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_counts_from_the_first_work_to_the_next_turn() {
        let mut load = Load::default();
        assert_eq!(load.take(Instant(5)), 0);
        load.on_work(Instant(10));
        load.on_work(Instant(12));
        assert_eq!(load.take(Instant(30)), 20);
        assert_eq!(load.take(Instant(40)), 0);
    }

    #[test]
    fn a_clock_that_goes_back_counts_nothing() {
        let mut load = Load::default();
        load.on_work(Instant(10));
        assert_eq!(load.take(Instant(3)), 0);
    }
}
