//! The bounds of one connection's search, and the probe that is on its way.

use crate::tcp::assembler::Range;
use crate::time::Instant;

/// A search. Its lower bound is the MTU in use.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Larger packets do not get through, as far as is known.
    high: u16,
    /// Time at which the bounds were last set again.
    since: Instant,
    /// The probe that is on its way.
    probe: Option<Probe>,
    /// A probe that is lost and has not left again.
    excused: Option<Range>,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    range: Range,
    mtu: u16,
}

impl Search {
    pub fn new(now: Instant, high: u16) -> Search {
        Search {
            high,
            since: now,
            probe: None,
            excused: None,
        }
    }

    pub fn high(&self) -> u16 {
        self.high
    }

    pub fn since(&self) -> Instant {
        self.since
    }

    /// Forgets a lost probe that has left again. Returns whether another one is on its way.
    pub fn is_probing(&mut self) -> bool {
        self.excused = None;
        self.probe.is_some()
    }

    /// Notes that a probe for `mtu` has left as the bytes of `range`.
    pub fn on_sent(&mut self, range: Range, mtu: u16) {
        self.probe = Some(Probe { range, mtu });
    }

    /// Records the MTU of an ICMP error, `low` being in use. Returns the probe that did not fit,
    /// which is to be sent again.
    pub fn on_too_big(&mut self, mtu: u16, low: u16) -> Option<Range> {
        self.high = self.high.min(mtu.max(low));
        let probe = self.probe.take_if(|probe| probe.mtu > mtu)?;
        Some(probe.range)
    }

    /// RFC 4821 7.6.1: an acknowledged probe got through, since one that was sent again has been
    /// forgotten by then. Returns its MTU.
    pub fn take_arrived(&mut self, una: u64) -> Option<u16> {
        let probe = self.probe.take_if(|probe| probe.range.end <= una)?;
        Some(probe.mtu)
    }

    /// Forgets a probe whose bytes are retransmitted in smaller packets.
    pub fn on_resent(&mut self, resent: Range) {
        let overlaps = |it: Range| it.start < resent.end && resent.start < it.end;
        self.probe.take_if(|probe| overlaps(probe.range));
    }

    /// Judges a loss of `lost` bytes in all, the first of which are `first`. Returns whether
    /// nothing but the probe is lost.
    pub fn on_loss(&mut self, first: Option<Range>, lost: u64, una: u64) -> bool {
        if let Some(range) = self.excused {
            return first.is_some_and(|f| f.start == range.start)
                && lost == range.end - range.start;
        }
        // A loss elsewhere does not concern the probe; one that has arrived is handled later.
        let Some(probe) = self.probe.filter(|probe| probe.range.end > una) else {
            return false;
        };
        if first.is_none_or(|range| range.start != probe.range.start) {
            return false;
        }
        self.probe = None;
        self.high = probe.mtu - 1;
        self.excused = Some(probe.range);
        lost == probe.range.end - probe.range.start
    }

    /// Handles a timeout: the probe failed if it was the first missing segment (RFC 4821 7.6.3),
    /// else the timeout does not concern it (RFC 4821 7.6.4). Returns whether one was in flight.
    pub fn on_timeout(&mut self, una: u64) -> bool {
        let Some(probe) = self.probe.take_if(|probe| probe.range.end > una) else {
            return false;
        };
        if probe.range.start == una {
            self.high = probe.mtu - 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBE: Range = Range {
        start: 1_000,
        end: 2_400,
    };

    fn probing() -> Search {
        let mut search = Search::new(Instant(0), 9_000);
        search.on_sent(PROBE, 5_000);
        search
    }

    #[test]
    fn a_lost_probe_bounds_the_search_without_a_congestion_response() {
        let mut search = probing();
        assert!(search.on_loss(Some(PROBE), 1_400, 1_000));
        assert_eq!(search.high(), 4_999);
        // Nothing has left since: the same loss is still the probe's, a larger one is not.
        assert!(search.on_loss(Some(PROBE), 1_400, 1_000));
        assert!(!search.on_loss(Some(PROBE), 2_800, 1_000));
        assert!(!search.is_probing());
    }

    #[test]
    fn a_loss_before_the_probe_does_not_fail_it() {
        let mut search = probing();
        let before = Range {
            start: 0,
            end: 1_000,
        };
        assert!(!search.on_loss(Some(before), 1_000, 0));
        assert!(search.is_probing() && search.high() == 9_000);
    }

    #[test]
    fn an_acknowledged_probe_raises_the_mtu_and_a_retransmitted_one_does_not() {
        let mut search = probing();
        assert_eq!(search.take_arrived(2_399), None);
        assert_eq!(search.take_arrived(2_400), Some(5_000));
        let mut search = probing();
        search.on_resent(Range {
            start: 2_000,
            end: 3_000,
        });
        assert_eq!(search.take_arrived(9_999), None);
    }

    #[test]
    fn a_timeout_fails_the_probe_if_it_is_the_first_unacknowledged_segment() {
        let mut search = probing();
        assert!(search.on_timeout(500) && search.high() == 9_000);
        let mut search = probing();
        assert!(search.on_timeout(1_000) && search.high() == 4_999);
        assert!(!search.on_timeout(1_000));
    }
}
