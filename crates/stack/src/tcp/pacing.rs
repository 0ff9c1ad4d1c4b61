//! Pacing: segments are spread over the round trip instead of leaving in bursts.
//!
//! Each segment moves the time at which the next one may leave by its share of the pacing rate.
//! Timers are coarse: up to [`CREDIT_NS`] of lateness is caught up. Segments that were due while
//! the engine was not run (the program is away, and its ticker slow) are caught up further;
//! segments that late ACKs release are not.

use crate::time::Instant;

/// A super-frame holds about this much of the pacing rate (Linux: `sk_pacing_shift`, 1 ms), and as
/// much may leave late.
const QUANTUM_NS: u64 = 1_000_000;
const CREDIT_NS: u64 = 1_000_000;
/// The longest lateness of a missed deadline that may be caught up.
const MISSED_NS: u64 = 10_000_000;

/// The clock of one connection's segments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    /// Time at which the pacing rate allows the next segment.
    next: Instant,
    /// A segment waits for that.
    is_awaited: bool,
    /// A segment has waited longer than that.
    is_missed: bool,
}

impl Pacer {
    /// Returns whether new and lost data must wait; the deadline tells until when.
    pub fn holds(&mut self, now: Instant) -> bool {
        let was_awaited = self.is_awaited;
        self.is_awaited = self.next > now;
        self.is_missed = !self.is_awaited && (self.is_missed || was_awaited);
        self.is_awaited
    }

    /// Notes that nothing is left that pacing could hold back.
    pub fn settle(&mut self) {
        self.is_missed = false;
    }

    /// Returns `true`, once, if a segment that waited may go.
    pub fn take_due(&mut self, now: Instant) -> bool {
        let is_due = self.is_awaited && self.next <= now;
        self.is_awaited &= !is_due;
        self.is_missed |= is_due;
        is_due
    }

    pub fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Time at which the segment that waits may go.
    pub fn deadline(&self) -> Option<Instant> {
        self.is_awaited.then_some(self.next)
    }

    /// Notes that `len` bytes have left at `rate` bytes a second; 0 = unpaced.
    pub fn on_sent(&mut self, now: Instant, len: u64, rate: u64) {
        let Some(gap) = (len * 1_000_000_000).checked_div(rate) else {
            return;
        };
        let credit = if self.is_missed { MISSED_NS } else { CREDIT_NS };
        let earliest = Instant(now.0.saturating_sub(credit));
        self.next = self.next.max(earliest).plus_nanos(gap);
    }
}

/// Largest super-frame: a quantum of the rate, at least two segments, at most `most` bytes. Without
/// pacing too (Linux: tcp_tso_autosize): a super-frame leaves at the speed of the device, and a
/// shallow queue would lose most of a large one.
pub fn burst(mss: u64, rate: u64, most: u64) -> u64 {
    if rate == 0 {
        return most;
    }
    let quantum = rate / (1_000_000_000 / QUANTUM_NS);
    (quantum / mss * mss)
        .clamp(2 * mss, most.max(2 * mss))
        .min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_segment_waits_for_the_pacing_rate_and_is_reported_due_once() {
        let mut pacer = Pacer::default();
        let now = Instant(1_000 * MS);
        assert!(!pacer.holds(now));
        // 3 MB/s: 6,000 bytes take 2 ms, of which one is credit.
        pacer.on_sent(now, 6_000, 3_000_000);
        assert!(pacer.holds(now));
        assert_eq!(pacer.deadline(), Some(now.plus_nanos(MS)));
        assert!(!pacer.take_due(now));
        assert!(pacer.take_due(now.plus_nanos(MS)));
        assert!(!pacer.take_due(now.plus_nanos(MS)));
    }

    #[test]
    fn a_super_frame_holds_a_millisecond_of_the_rate_and_two_segments_at_least() {
        assert_eq!(burst(1_000, 0, 64_000), 64_000);
        assert_eq!(burst(1_000, 10_500_000, 64_000), 10_000);
        assert_eq!(burst(1_000, 1_000, 64_000), 2_000);
        assert_eq!(burst(1_000, 1 << 40, 64_000), 64_000);
    }
}
