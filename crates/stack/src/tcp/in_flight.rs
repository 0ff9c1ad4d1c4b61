//! Data in flight, and the state kept about it.

use alloc::boxed::Box;

use super::delivery::{Delivery, Stamp};
use super::fast_open::Attempt;
use super::figures::{Figures, Kept, KeptRate, Past};
use super::pacing::Pacer;
use super::rack::Rack;
use super::records::Records;
use super::recovery::state::Recovery;
use super::scoreboard::Scoreboard;
use crate::time::Instant;

/// Data in flight. Allocated with the first segment that is sent, given back when the connection
/// rests.
#[derive(Debug, Default)]
pub struct InFlight {
    pub board: Scoreboard,
    pub rack: Rack,
    pub recovery: Recovery,
    /// An active open with Fast Open that is not answered yet.
    pub attempt: Option<Box<Attempt>>,
    pub delivery: Delivery,
    pub figures: Figures,
    pub pacer: Pacer,
    /// SND.UP: after the last urgent byte that was written.
    pub urgent_end: u64,
    /// Ends of records (MSG_EOR).
    pub records: Option<Box<Records>>,
}

impl InFlight {
    /// `kept` and `past`: from before the connection rested.
    pub fn new(kept: &mut Option<Box<Kept>>, past: &Past) -> Box<InFlight> {
        let mut flight: Box<InFlight> = Box::default();
        flight.delivery = Delivery::resume(past.rate.get());
        if let Some(kept) = kept {
            flight.figures = core::mem::take(&mut kept.figures);
            flight.rack = kept.rack;
            flight.recovery.resume_undo(kept.undo.clone());
        }
        flight
    }

    /// Returns the stamp of a record of `len` bytes sent now.
    #[inline]
    pub fn stamp(&mut self, now: Instant, len: u64, una: u64) -> Stamp {
        let delivered = una + self.board.sacked_bytes();
        let in_flight = self.board.in_flight();
        self.delivery.on_sent(now, len, in_flight, delivered)
    }

    /// Ready for another connection; the room of the lists stays.
    #[inline]
    pub fn reset(&mut self) {
        self.board.reset();
        self.rack = Rack::default();
        self.recovery = Recovery::default();
        self.attempt = None;
        self.delivery = Delivery::default();
        self.figures = Figures::default();
        self.pacer = Pacer::default();
        self.urgent_end = 0;
        self.records = None;
    }

    /// Keeps the state that outlives the flight: in a separate allocation if it is more than a
    /// time.
    pub fn rest(&self, past: &mut Past, kept: &mut Option<Box<Kept>>) {
        past.rate = KeptRate::of(self.delivery.rate());
        if kept.is_none() && !self.figures.is_worth_a_box() {
            past.add_busy(&self.figures);
            return;
        }
        let kept = kept.get_or_insert_default();
        // Earlier figures were taken along when the flight began.
        kept.figures = self.figures;
        kept.rack = self.rack.at_rest();
        kept.undo = self.recovery.undo().clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::figures::Pace;

    #[test]
    fn idle_state_keeps_counters_and_allocates_only_if_needed() {
        let (mut past, mut kept) = (Past::default(), None);
        let mut flight = InFlight::default();
        flight.figures.set_pace(Instant(0), Pace::Busy);
        flight.figures.set_pace(Instant(5_000_000), Pace::Idle);
        flight.rest(&mut past, &mut kept);
        assert!(kept.is_none() && past.busy_ns() == 5_000_000);
        flight.figures = Figures::default();
        flight.figures.set_pace(Instant(0), Pace::Busy);
        flight.figures.set_pace(Instant(5_000_000), Pace::Idle);
        flight.figures.dsacks = 2;
        flight.rest(&mut past, &mut kept);
        let mut again = InFlight::new(&mut kept, &past);
        again.figures.dsacks += 1;
        again.rest(&mut past, &mut kept);
        let figures = kept.map(|kept| kept.figures);
        assert_eq!(
            figures.map(|f| (f.dsacks, f.busy_ns())),
            Some((3, 5_000_000))
        );
    }
}
