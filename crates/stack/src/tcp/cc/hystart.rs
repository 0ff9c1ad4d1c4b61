//! HyStart++ (RFC 9406): leaves the first slow start when the round trip grows, before the queue
//! overflows.
//!
//! DEVIATION(RFC 9406 4.2): it compares the smallest round trips of two rounds, but the first
//! segment of a round finds an empty queue until the window is twice the bandwidth-delay product,
//! and the delay of a round is known in the next: a queue of less than three bandwidth-delay
//! products overflows before. So trains of ACKs count too, as in Linux's HyStart: ACKs without a
//! pause between them arrive at the bottleneck's rate, and that rate times the round trip is the
//! bandwidth-delay product. A sender or a receiver may itself be slow; a train counts once its
//! segments have been queued.

use super::Ack;

/// RFC 9406 4.3, in microseconds.
const MIN_RTT_THRESH: u32 = 4_000;
const MAX_RTT_THRESH: u32 = 16_000;
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u8 = 8;
const CSS_GROWTH_DIVISOR: u32 = 4;
const CSS_ROUNDS: u8 = 5;
const INFINITY: u32 = u32::MAX;
/// ACKs further apart than this share of the round trip are no train. (Linux's hystart_ack_delta_us
/// is 2 ms on every path; a pause of the machine between the ACKs of a small window would be taken
/// for the bottleneck's rate.)
const TRAIN_PAUSE_MIN: u32 = 500;
const TRAIN_PAUSE_DIVISOR: u32 = 16;
/// A train is at least a quarter of a round trip long: delays at its end must not determine its
/// rate. Below a millisecond neither trains nor queues are examined, because they reflect the turns
/// of sender or receiver.
const TRAIN_DIVISOR: u32 = 4;
const TRAIN_MIN: u32 = 1_000;
/// Slow start turns conservative when the window holds so many quarters of the bandwidth-delay
/// product (a rate taken too low must not end it), and is over at so many: a later random loss
/// reduces a window that is more than sufficient.
const FULL_QUARTERS: u64 = 5;
const LAST_QUARTERS: u64 = 6;
/// Rounds from the one to the other, at most.
const FULL_ROUNDS: u8 = 2;

/// State of the first slow start. Times in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct HyStart {
    last_round_min: u32,
    round_min: u32,
    /// Baseline of conservative slow start; [`INFINITY`] = not in it.
    css_baseline: u32,
    /// Low bits of the sequence number that ends the round.
    window_end: u32,
    /// Minimum over the whole slow start.
    min: u32,
    /// The last ACK and the bytes delivered with it, low bits; how long ACKs have arrived without a
    /// pause for segments that had been queued, and for how many bytes.
    acked_at: u32,
    delivered: u32,
    train_len: u32,
    train_bytes: u32,
    /// Samples in a row that a queue has held up.
    queued: u8,
    samples: u8,
    css_rounds: u8,
    progress: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// No round yet.
    New,
    Rounds,
    /// The window has come to [`FULL_QUARTERS`].
    Full,
}

impl Default for HyStart {
    fn default() -> HyStart {
        HyStart {
            last_round_min: INFINITY,
            round_min: INFINITY,
            css_baseline: INFINITY,
            window_end: 0,
            min: INFINITY,
            acked_at: 0,
            delivered: 0,
            train_len: 0,
            train_bytes: 0,
            queued: 0,
            samples: 0,
            css_rounds: 0,
            progress: Progress::New,
        }
    }
}

/// The reaction of slow start to an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Grow by this many bytes.
    Grow(u32),
    /// Slow start is over: ssthresh is cwnd.
    Leave,
}

impl HyStart {
    /// RFC 9406 4.2; `bytes` is the growth of slow start.
    pub fn on_ack(&mut self, ack: &Ack, cwnd: u32, bytes: u32) -> Verdict {
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
        self.note_train(ack);
        if ack.rtt_ns != 0 {
            let rtt = u32::try_from(ack.rtt_ns / 1_000).unwrap_or(INFINITY - 1);
            self.round_min = self.round_min.min(rtt);
            self.samples = self.samples.saturating_add(1);
            self.note_queue(rtt);
        }
        match self.quarters_held(cwnd) {
            LAST_QUARTERS.. => return Verdict::Leave,
            FULL_QUARTERS if self.progress != Progress::Full => {
                self.progress = Progress::Full;
                self.css_rounds = CSS_ROUNDS - FULL_ROUNDS;
            }
            _ => {}
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
        self.css_baseline != INFINITY || self.progress == Progress::Full
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

    fn note_queue(&mut self, rtt: u32) {
        self.min = self.min.min(rtt);
        let thresh = (self.min / MIN_RTT_DIVISOR).clamp(TRAIN_MIN, MAX_RTT_THRESH);
        self.queued = if rtt >= self.min.saturating_add(thresh) {
            self.queued.saturating_add(1)
        } else {
            // The bottleneck may have been idle before this one.
            (self.train_len, self.train_bytes) = (0, 0);
            0
        };
    }

    fn note_train(&mut self, ack: &Ack) {
        let now_us = (ack.now.0 / 1_000) as u32;
        let delivered = ack.delivered as u32;
        let gap = now_us.wrapping_sub(core::mem::replace(&mut self.acked_at, now_us));
        let bytes = delivered.wrapping_sub(core::mem::replace(&mut self.delivered, delivered));
        if gap <= (self.min / TRAIN_PAUSE_DIVISOR).max(TRAIN_PAUSE_MIN) {
            self.train_len = self.train_len.saturating_add(gap);
            self.train_bytes = self.train_bytes.saturating_add(bytes);
        }
    }

    /// cwnd / (rate * round trip / 4), once the segments of the train have queued; 0 before.
    fn quarters_held(&self, cwnd: u32) -> u64 {
        let long = (self.min / TRAIN_DIVISOR).max(TRAIN_MIN);
        if self.queued < N_RTT_SAMPLE || self.train_len < long {
            return 0;
        }
        let held = u64::from(self.train_bytes) * u64::from(self.min);
        u64::from(cwnd) * u64::from(self.train_len) / (held / 4).max(1)
    }

    /// A round ends when SND.NXT at its beginning is acknowledged.
    fn ends_round(&mut self, ack: &Ack) -> bool {
        // Until it is acknowledged the difference is within the outstanding data; afterwards it is
        // larger.
        let left = self.window_end.wrapping_sub(ack.una as u32);
        let is_over = left == 0 || u64::from(left) > ack.nxt.saturating_sub(ack.una);
        let is_first = self.progress == Progress::New;
        if is_first || is_over {
            self.window_end = ack.nxt as u32;
            (self.train_len, self.train_bytes, self.queued) = (0, 0, 0);
        }
        if is_first {
            self.progress = Progress::Rounds;
        }
        !is_first && is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    const MSS: u32 = 1_000;

    /// Runs rounds of `per_round` ACKs with the given round trips in milliseconds; returns the
    /// growth of each round.
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
                    delivered: una,
                    nxt: nxt.max(una),
                    burst: 0,
                    is_after_timeout: false,
                };
                match hystart.on_ack(&ack, 10 * MSS, MSS) {
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
    fn a_round_ends_at_its_mark_even_after_large_gaps() {
        // While the program is the limit no ACK comes here.
        let mut hystart = HyStart::default();
        let mut ends_at = |una: u64| {
            let ack = Ack {
                now: Instant(0),
                bytes: MSS,
                rtt_ns: 0,
                srtt_ns: 0,
                una,
                delivered: una,
                nxt: una + 10_000,
                burst: 0,
                is_after_timeout: false,
            };
            hystart.ends_round(&ack)
        };
        let mut end = 1;
        assert!(!ends_at(end));
        for far in [0, 1, 1 << 31, 3 << 30, (1 << 32) - 20_000] {
            assert!(!ends_at(end + 9_999));
            end += 10_000 + far;
            assert!(ends_at(end), "{far}");
        }
    }

    #[test]
    fn a_steady_round_trip_never_ends_slow_start() {
        let (grown, has_left) = run(16, &[40; 40]);
        assert!(!has_left);
        assert!(grown.iter().all(|g| *g == 16 * MSS));
    }

    #[test]
    fn a_delay_rise_of_an_eighth_slows_and_then_ends_slow_start() {
        // RFC 9406 4.2. Rounds here overlap as on a wire: each lasts as long as SND.NXT at its
        // beginning was ahead.
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
    fn a_delay_rise_below_four_milliseconds_is_ignored() {
        // RFC 9406 4.3: MIN_RTT_THRESH.
        let (grown, has_left) = run(16, &[10, 10, 10, 13, 13, 13, 13, 13]);
        assert!(!has_left && grown.iter().all(|g| *g == 16 * MSS));
    }

    #[test]
    fn slow_start_resumes_if_the_delay_falls_again() {
        // RFC 9406 4.2.
        let (grown, has_left) = run(
            16,
            &[40, 40, 40, 40, 60, 60, 40, 40, 40, 40, 40, 40, 40, 40],
        );
        assert!(!has_left);
        assert_eq!(grown.last(), Some(&(16 * MSS)));
    }

    #[test]
    fn seven_samples_do_not_end_slow_start() {
        // RFC 9406 4.3: N_RTT_SAMPLE.
        let (grown, _) = run(3, &[40, 40, 90, 90, 90, 90]);
        assert!(grown.iter().all(|g| *g == 3 * MSS));
    }

    /// Builds an ACK of two segments.
    fn ack(at_us: u64, rtt_us: u64, una: u64, nxt: u64) -> Ack {
        Ack {
            now: Instant(at_us * 1_000),
            bytes: 2 * MSS,
            rtt_ns: rtt_us * 1_000,
            srtt_ns: 0,
            una,
            delivered: una,
            nxt,
            burst: 0,
            is_after_timeout: false,
        }
    }

    /// One round of `count` ACKs for two segments each, `gap_us` apart, after one that measured the
    /// empty path of 40 ms; the round trip of each by its number. Returns whether slow start ends
    /// with this window.
    fn ends_after(count: u64, gap_us: u64, cwnd: u32, rtt_us: impl Fn(u64) -> u64) -> bool {
        let mut hystart = HyStart::default();
        let ack = |at_us, rtt_us, una| ack(at_us, rtt_us, una, 1_000_000);
        hystart.on_ack(&ack(1_000_000, 40_000, 2_000), cwnd, MSS);
        (1..=count).any(|i| {
            let ack = ack(1_000_000 + i * gap_us, rtt_us(i), 2_000 + i * 2_000);
            hystart.on_ack(&ack, cwnd, MSS) == Verdict::Leave
        })
    }

    #[test]
    fn a_queued_train_ends_slow_start_once_the_window_reaches_the_bdp() {
        // 2000 bytes in 200 us are 10 MB/s: 400 kB in 40 ms, and a half more.
        let queues = |i: u64| 40_000 + i * 100;
        for (cwnd, count, ends) in [
            (590_000, 100, false),
            // Each waits longer than the last: number 50 for 5 ms. Those after it come for 10 ms.
            (610_000, 98, false),
            (610_000, 99, true),
        ] {
            assert_eq!(ends_after(count, 200, cwnd, queues), ends, "{cwnd} {count}");
        }
    }

    #[test]
    fn a_window_a_quarter_too_large_grows_a_quarter_as_fast() {
        let mut hystart = HyStart::default();
        let mut grows = |at_us: u64, rtt_us: u64, una: u64, cwnd| {
            hystart.on_ack(&ack(at_us, rtt_us, una, una + 100_000), cwnd, MSS)
        };
        grows(1_000_000, 40_000, 2_000, 510_000);
        let mut until = |to: u64, from: u64| {
            (from..to)
                .map(|i| grows(1_000_000 + i * 200, 46_000, 2_000 + i * 2_000, 510_000))
                .collect::<Vec<_>>()
        };
        // Rounds of 50 ACKs; a quarter of the round trip is a train.
        let first = until(50, 1);
        assert_eq!(first.first(), Some(&Verdict::Grow(MSS)));
        let second = until(101, 50);
        assert_eq!(second.last(), Some(&Verdict::Grow(MSS / 4)));
        assert!(until(250, 101).contains(&Verdict::Leave));
    }

    #[test]
    fn ack_spacing_of_a_slow_sender_is_not_taken_for_a_bottleneck() {
        assert!(!ends_after(200, 200, 10_000_000, |_| 41_000));
        // One in eight arrives at once: there is no queue.
        let jitter = |i: u64| if i.is_multiple_of(8) { 40_000 } else { 60_000 };
        assert!(!ends_after(200, 200, 10_000_000, jitter));
    }

    #[test]
    fn acks_with_pauses_between_them_give_no_rate() {
        assert!(!ends_after(200, 2_600, 10_000_000, |_| 60_000));
    }

    #[test]
    fn on_a_short_path_gaps_of_milliseconds_between_acks_give_no_rate() {
        // 70 segments on a path of 10 ms that holds hundreds: ACKs of two, 1 ms apart, all delayed.
        let mut hystart = HyStart::default();
        hystart.on_ack(&ack(1_000_000, 10_000, 2_000, 1_000_000), 70 * MSS, MSS);
        let has_left = (1..=30).any(|i| {
            let ack = ack(1_000_000 + i * 1_000, 14_000, 2_000 + i * 2_000, 1_000_000);
            hystart.on_ack(&ack, 70 * MSS, MSS) == Verdict::Leave
        });
        assert!(!has_left);
    }
}
