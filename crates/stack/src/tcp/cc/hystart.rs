//! HyStart++ (RFC 9406): leaves the first slow start when the round trip grows, before the queue overflows.

use super::Ack;

/// RFC 9406 4.3, in microseconds.
const MIN_RTT_THRESH: u32 = 4_000;
const MAX_RTT_THRESH: u32 = 16_000;
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u8 = 8;
const CSS_GROWTH_DIVISOR: u32 = 4;
const CSS_ROUNDS: u8 = 5;
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
    pub fn on_ack(&mut self, ack: &Ack, bytes: u32) -> Verdict {
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
            self.samples = self.samples.saturating_add(1);
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

    /// A round ends when what was SND.NXT at its beginning is acknowledged.
    fn ends_round(&mut self, ack: &Ack) -> bool {
        let is_over = (ack.una as u32).wrapping_sub(self.window_end) as i32 >= 0;
        if !self.has_round || is_over {
            self.window_end = ack.nxt as u32;
        }
        core::mem::replace(&mut self.has_round, true) && is_over
    }
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
                match hystart.on_ack(&ack, MSS) {
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
}
