//! HyStart++ (RFC 9406): leaves the first slow start when the round trip grows, before the queue overflows.
//!
//! DEVIATION(RFC 9406 1): the other sign of the original HyStart, which Linux's CUBIC knows too, counts as well. ACKs
//! that come without a gap for half of a round trip are half of what the path carries: the window, which grows by as
//! much, holds all of it. The round trip's minimum grows a round later, when the window is twice the path and a queue of
//! the path's size overflows.

use super::Ack;

/// RFC 9406 4.3, in microseconds.
const MIN_RTT_THRESH: u32 = 4_000;
const MAX_RTT_THRESH: u32 = 16_000;
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u8 = 8;
const CSS_GROWTH_DIVISOR: u32 = 4;
const CSS_ROUNDS: u8 = 5;
/// ACKs further apart are no train (Linux: hystart_ack_delta_us).
const TRAIN_GAP: u32 = 2_000;
const INFINITY: u32 = u32::MAX;

/// State of the first slow start. Times in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct HyStart {
    last_round_min: u32,
    round_min: u32,
    /// Baseline of conservative slow start; [`INFINITY`] = not in it.
    css_baseline: u32,
    /// Low bits of the sequence number that ends the round.
    window_end: u32,
    /// Shortest round trip of this slow start.
    base: u32,
    /// When the round began, and the last ACK that followed without a gap.
    round_at: u32,
    train_at: u32,
    samples: u8,
    css_rounds: u8,
    has_round: bool,
}

impl Default for HyStart {
    fn default() -> HyStart {
        HyStart {
            last_round_min: INFINITY,
            round_min: INFINITY,
            css_baseline: INFINITY,
            window_end: 0,
            base: INFINITY,
            round_at: 0,
            train_at: 0,
            samples: 0,
            css_rounds: 0,
            has_round: false,
        }
    }
}

/// What slow start does with an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Grow by this many bytes.
    Grow(u32),
    /// Slow start is over: ssthresh is cwnd.
    Leave,
}

impl HyStart {
    /// RFC 9406 4.2; `bytes` is what slow start would grow by.
    pub fn on_ack(&mut self, ack: &Ack, bytes: u32, is_paced: bool) -> Verdict {
        if self.ends_round(ack) {
            if self.is_conservative() {
                self.css_rounds += 1;
                if self.css_rounds >= CSS_ROUNDS {
                    return Verdict::Leave;
                }
            }
            self.last_round_min = self.round_min;
            self.round_min = INFINITY;
            self.samples = 0;
        }
        if ack.rtt_ns != 0 {
            let rtt = u32::try_from(ack.rtt_ns / 1_000).unwrap_or(INFINITY - 1);
            self.round_min = self.round_min.min(rtt);
            self.base = self.base.min(rtt);
            self.samples = self.samples.saturating_add(1);
        }
        if self.has_train(ack, is_paced) {
            return Verdict::Leave;
        }
        if self.samples >= N_RTT_SAMPLE {
            self.judge();
        }
        Verdict::Grow(if self.is_conservative() {
            bytes / CSS_GROWTH_DIVISOR
        } else {
            bytes
        })
    }

    fn is_conservative(&self) -> bool {
        self.css_baseline != INFINITY
    }

    fn judge(&mut self) {
        if self.is_conservative() {
            // The rise was spurious: slow start goes on.
            if self.round_min < self.css_baseline {
                self.css_baseline = INFINITY;
            }
            return;
        }
        if self.last_round_min == INFINITY {
            return;
        }
        let thresh = (self.last_round_min / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
        if self.round_min >= self.last_round_min.saturating_add(thresh) {
            self.css_baseline = self.round_min;
            self.css_rounds = 0;
        }
    }

    /// What is paced is spread over the whole round trip (as on Linux).
    fn has_train(&mut self, ack: &Ack, is_paced: bool) -> bool {
        let now = micros(ack);
        if now.wrapping_sub(self.train_at) > TRAIN_GAP || self.base == INFINITY {
            return false;
        }
        self.train_at = now;
        let enough = if is_paced { self.base } else { self.base / 2 };
        now.wrapping_sub(self.round_at) >= enough.max(MIN_RTT_THRESH)
    }

    /// A round ends when what was SND.NXT at its beginning is acknowledged.
    fn ends_round(&mut self, ack: &Ack) -> bool {
        let is_over = (ack.una as u32).wrapping_sub(self.window_end) as i32 >= 0;
        if !self.has_round || is_over {
            self.window_end = ack.nxt as u32;
            self.round_at = micros(ack);
            self.train_at = self.round_at;
        }
        core::mem::replace(&mut self.has_round, true) && is_over
    }
}

fn micros(ack: &Ack) -> u32 {
    (ack.now.0 / 1_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    const MSS: u32 = 1_000;

    /// Runs rounds of `per_round` ACKs with the given round trips in milliseconds; gives what each round grew by.
    fn run(per_round: u64, rtts_ms: &[u64]) -> (Vec<u32>, bool) {
        let mut hystart = HyStart::default();
        let mut grown = Vec::new();
        let step = u64::from(MSS);
        let mut una = 1;
        for rtt in rtts_ms {
            let nxt = una + 2 * per_round * step;
            let mut sum = 0;
            for _ in 0..per_round {
                una += step;
                let ack = Ack {
                    now: Instant(0),
                    bytes: MSS,
                    rtt_ns: rtt * 1_000_000,
                    srtt_ns: 0,
                    una,
                    nxt: nxt.max(una),
                    burst: 0,
                    is_after_timeout: false,
                };
                match hystart.on_ack(&ack, MSS, false) {
                    Verdict::Grow(bytes) => sum += bytes,
                    Verdict::Leave => return (grown, true),
                }
            }
            grown.push(sum);
        }
        (grown, false)
    }

    extern crate alloc;
    use alloc::vec::Vec;

    #[test]
    fn a_steady_round_trip_never_ends_slow_start() {
        let (grown, has_left) = run(16, &[40; 40]);
        assert!(!has_left);
        assert!(grown.iter().all(|g| *g == 16 * MSS));
    }

    #[test]
    fn a_rise_of_an_eighth_slows_down_and_then_leaves() {
        // Rounds here overlap as on a wire: each lasts as long as SND.NXT at its beginning was ahead.
        let (grown, has_left) = run(
            16,
            &[
                40, 40, 40, 40, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46,
            ],
        );
        assert!(has_left);
        assert!(grown.iter().any(|g| *g < 16 * MSS / 2));
    }

    #[test]
    fn a_rise_below_four_milliseconds_counts_for_nothing() {
        let (grown, has_left) = run(16, &[10, 10, 10, 13, 13, 13, 13, 13]);
        assert!(!has_left && grown.iter().all(|g| *g == 16 * MSS));
    }

    #[test]
    fn a_rise_that_goes_away_resumes_slow_start() {
        let (grown, has_left) = run(
            16,
            &[40, 40, 40, 40, 60, 60, 40, 40, 40, 40, 40, 40, 40, 40],
        );
        assert!(!has_left);
        assert_eq!(grown.last(), Some(&(16 * MSS)));
    }

    #[test]
    fn seven_samples_decide_nothing() {
        let (grown, _) = run(3, &[40, 40, 90, 90, 90, 90]);
        assert!(grown.iter().all(|g| *g == 3 * MSS));
    }

    /// One round with ACKs `gap_us` apart, round trip 40 ms. Gives how many came before slow start was left.
    fn train(gap_us: u64, is_paced: bool) -> Option<u64> {
        let mut hystart = HyStart::default();
        (0..200).find(|i| {
            let ack = Ack {
                now: Instant(i * gap_us * 1_000),
                bytes: MSS,
                rtt_ns: 40_000_000,
                srtt_ns: 0,
                una: 1 + i * u64::from(MSS),
                nxt: 1_000_000,
                burst: 0,
                is_after_timeout: false,
            };
            hystart.on_ack(&ack, MSS, is_paced) == Verdict::Leave
        })
    }

    #[test]
    fn acks_without_a_gap_for_half_of_a_round_trip_leave() {
        assert_eq!(train(500, false), Some(40));
        assert_eq!(train(500, true), Some(80));
        assert_eq!(train(2_100, false), None);
    }
}
