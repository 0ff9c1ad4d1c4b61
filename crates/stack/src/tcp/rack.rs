//! Loss detection: the second of the two plug-in points of a connection.
//!
//! RACK (RFC 8985 6): a segment is lost when one that was sent sufficiently later has been
//! delivered. The reordering window starts at zero while no reordering has been seen and three
//! segments are SACKed (the classic threshold of RFC 6675), else at a quarter of the minimum round
//! trip; D-SACKs widen it for 16 recoveries. Peers without SACK: duplicate ACKs (RFC 5681 3.2).

use super::rtt::Rtt;
use super::scoreboard::{Delivered, Judgement, Scoreboard};
use super::seq::Outstanding;
use crate::time::Instant;

/// RFC 5681: duplicates that mean loss.
pub const DUPLICATE_THRESHOLD: u32 = 3;
/// The window never exceeds SRTT (RFC 8985 6.2 step 4), whatever the minimum round trip once was.
const STEPS_MAX: u8 = 64;
/// RFC 8985 6.2 step 4: recoveries after which the window is as narrow as it began.
const PERSISTENCE: u8 = 16;

/// State of one connection while data is in flight.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rack {
    /// Transmission time and end of the most recently sent delivered record.
    sent_at: u64,
    end: u64,
    /// Round trip of that record.
    rtt: u64,
    is_reordering_seen: bool,
    /// RACK.reo_wnd_mult - 1.
    steps: u8,
    /// RACK.reo_wnd_persist: recoveries that the steps outlast.
    persistence: u8,
    /// RACK.dsack_round: SND.NXT at the last step. One step a round trip.
    stepped_at: u64,
}

/// Result of a detection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Detection {
    pub newly_lost: u64,
    /// Time at which the oldest suspect becomes lost if nothing comes in.
    pub recheck_at: Option<Instant>,
}

impl Rack {
    /// RFC 8985 6.2 steps 2 and 3. Returns the end of a segment that the network has reordered, if
    /// there is one. `is_echo_older`: the peer's timestamp echo precedes this time.
    #[inline]
    pub fn on_delivered(
        &mut self,
        now: Instant,
        delivered: &Delivered,
        fack: u64,
        rtt: &Rtt,
        is_echo_older: impl FnOnce(Instant) -> bool,
    ) -> Option<u64> {
        let overtaken = delivered.lowest_clean_end.filter(|end| *end < fack);
        self.is_reordering_seen |= overtaken.is_some();
        let Some(newest) = delivered.newest else {
            return overtaken;
        };
        let measured = now.0.saturating_sub(newest.sent_at);
        // Step 2: the ACK of a retransmission that comes too early, or echoes an older timestamp,
        // is for the original. The time alone deceives when we were held up between reading the
        // clock and sending.
        if newest.was_resent && (measured < rtt.min_ns() || is_echo_older(Instant(newest.sent_at)))
        {
            return overtaken;
        }
        if (newest.sent_at, newest.end) > (self.sent_at, self.end) {
            self.sent_at = newest.sent_at;
            self.end = newest.end;
            self.rtt = measured;
        }
        overtaken
    }

    /// RFC 8985 6.2 step 4: a D-SACK shows that the window was too small.
    #[cold]
    pub fn on_dsack(&mut self, outstanding: Outstanding) {
        if outstanding.una >= self.stepped_at {
            self.stepped_at = outstanding.nxt;
            self.steps = (self.steps + 1).min(STEPS_MAX);
        }
        self.persistence = PERSISTENCE;
    }

    /// A recovery has ended in which something was lost (RFC 8985 6.2 step 4).
    #[cold]
    pub fn on_recovered(&mut self) {
        self.persistence = self.persistence.saturating_sub(1);
        if self.persistence == 0 {
            self.steps = 0;
        }
    }

    /// Returns the state that outlasts an idle time; the records of sent data are gone.
    pub fn at_rest(&self) -> Rack {
        Rack {
            sent_at: 0,
            end: 0,
            rtt: 0,
            ..*self
        }
    }

    /// The original was there before its retransmission: it had only been overtaken.
    pub fn on_spurious(&mut self) {
        self.is_reordering_seen = true;
    }

    fn window_ns(&self, board: &Scoreboard, rtt: &Rtt, in_recovery: bool) -> u64 {
        if !self.is_reordering_seen
            && (in_recovery || board.sacked_segments() >= DUPLICATE_THRESHOLD)
        {
            return 0;
        }
        (rtt.min_ns() / 4 * (1 + u64::from(self.steps))).min(rtt.smoothed_ns())
    }

    /// RFC 8985 6.2 step 5.
    pub fn detect(
        &self,
        now: Instant,
        board: &mut Scoreboard,
        rtt: &Rtt,
        in_recovery: bool,
    ) -> Detection {
        if self.sent_at == 0 || board.is_empty() {
            return Detection::default();
        }
        let window = self.window_ns(board, rtt, in_recovery);
        let patience = self.rtt.saturating_add(window);
        let walk = board.walk(|sent_at, end| {
            if (sent_at, end) >= (self.sent_at, self.end) {
                return Judgement::Later;
            }
            if sent_at.saturating_add(patience) <= now.0 {
                return Judgement::Lost;
            }
            Judgement::Suspect(sent_at.saturating_add(patience))
        });
        Detection {
            newly_lost: walk.newly_lost,
            recheck_at: if walk.is_unfinished {
                Some(now)
            } else {
                walk.recheck_at.map(Instant)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::assembler::Range;
    use core::time::Duration;

    fn world() -> (Rack, Scoreboard, Rtt) {
        let mut rtt = Rtt::default();
        rtt.sample(Instant(0), Duration::from_nanos(100_000));
        let mut board = Scoreboard::default();
        for i in 0..10u64 {
            board.push(i * 10, i * 10 + 10, 1_000 + i, Default::default());
        }
        (Rack::default(), board, rtt)
    }

    fn sack(
        rack: &mut Rack,
        board: &mut Scoreboard,
        rtt: &Rtt,
        now: u64,
        start: u64,
        end: u64,
    ) -> Detection {
        let mut delivered = Delivered::default();
        let fack = board.highest_sacked();
        board.sack(Range { start, end }, 10, &mut delivered);
        rack.on_delivered(Instant(now), &delivered, fack, rtt, |_| false);
        rack.detect(Instant(now), board, rtt, false)
    }

    #[test]
    fn three_sacked_segments_make_the_first_one_lost() {
        // RFC 8985 6.2.
        let (mut rack, mut board, rtt) = world();
        let early = sack(&mut rack, &mut board, &rtt, 101_002, 10, 30);
        assert_eq!(early.newly_lost, 0);
        assert!(early.recheck_at.is_some());
        let third = sack(&mut rack, &mut board, &rtt, 101_003, 30, 40);
        assert_eq!(third.newly_lost, 10);
    }

    #[test]
    fn one_sacked_segment_is_enough_after_the_reordering_window() {
        // RFC 8985 6.2.
        let (mut rack, mut board, rtt) = world();
        let first = sack(&mut rack, &mut board, &rtt, 101_001, 10, 20);
        let at = first.recheck_at.unwrap();
        assert_eq!(at.0, 1_000 + 100_000 + 25_000);
        assert_eq!(rack.detect(at, &mut board, &rtt, false).newly_lost, 10);
    }

    #[test]
    fn segments_sent_later_than_the_sacked_one_are_not_lost() {
        // RFC 8985 6.2.
        let (mut rack, mut board, rtt) = world();
        sack(&mut rack, &mut board, &rtt, 101_004, 30, 50);
        let detection = rack.detect(Instant(10_000_000), &mut board, &rtt, true);
        assert_eq!(detection.newly_lost, 30);
        assert_eq!(board.lost_bytes(), 30);
    }

    #[test]
    fn dsacks_widen_the_window_once_a_round_trip_and_for_sixteen_recoveries() {
        // RFC 8985 6.2.
        let (mut rack, mut board, rtt) = world();
        let mut lost_at = |rack: &mut Rack| {
            let first = sack(rack, &mut board, &rtt, 101_001, 10, 20);
            let again = rack.detect(Instant(101_001), &mut board, &rtt, false);
            first.recheck_at.or(again.recheck_at).unwrap().0
        };
        rack.on_dsack(Outstanding { una: 0, nxt: 100 });
        assert_eq!(lost_at(&mut rack), 101_000 + 2 * 25_000);
        // Within the same round trip, then in the next two.
        rack.on_dsack(Outstanding { una: 50, nxt: 150 });
        assert_eq!(lost_at(&mut rack), 101_000 + 2 * 25_000);
        rack.on_dsack(Outstanding { una: 100, nxt: 200 });
        rack.on_dsack(Outstanding { una: 200, nxt: 300 });
        assert_eq!(lost_at(&mut rack), 101_000 + 4 * 25_000);
        for _ in 0..15 {
            rack.on_recovered();
        }
        assert_eq!(lost_at(&mut rack), 101_000 + 4 * 25_000);
        rack.on_recovered();
        assert_eq!(lost_at(&mut rack), 101_000 + 25_000);
    }

    #[test]
    fn an_older_echo_tells_the_original_from_its_retransmission() {
        let lost_after = |is_echo_older: bool| {
            let (mut rack, mut board, rtt) = world();
            let head = Range { start: 0, end: 10 };
            board.mark_one_lost(head);
            // Meant to leave now; it left after a pause, when the original's ACK was on its way.
            board.mark_resent(head, 40_000, Default::default());
            let now = Instant(200_000);
            let mut delivered = Delivered::default();
            board.acknowledge(10, &mut delivered);
            rack.on_delivered(now, &delivered, 0, &rtt, |_| is_echo_older);
            rack.detect(now, &mut board, &rtt, true).newly_lost
        };
        assert_eq!(
            lost_after(false),
            90,
            "it proves that all before it are lost"
        );
        assert_eq!(lost_after(true), 0);
    }

    #[test]
    fn at_equal_times_a_retransmission_counts_as_sent_after_new_data() {
        // RFC 8985 6.2 step 2.
        let (mut rack, mut board, rtt) = world();
        let head = Range { start: 0, end: 10 };
        board.mark_one_lost(head);
        board.push(100, 110, 40_000, Default::default());
        board.mark_resent(head, 40_000, Default::default());
        board.push(110, 120, 40_000, Default::default());
        board.mark_one_lost(Range { start: 10, end: 90 });
        let seen = sack(&mut rack, &mut board, &rtt, 300_000, 100, 110);
        assert_eq!(seen.newly_lost, 10, "what left before it");
        assert!(seen.recheck_at.is_none());
        let seen = sack(&mut rack, &mut board, &rtt, 300_000, 110, 120);
        assert!(seen.recheck_at.is_some(), "what left again before it");
    }
}
