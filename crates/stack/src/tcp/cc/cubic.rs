//! CUBIC (RFC 9438): the window is a cubic function of the time since the last loss.
//!
//! Integer arithmetic: times in milliseconds, windows in bytes. C = 0.4, beta = 0.7. The state that
//! the RFC saves for a spurious congestion event (4.9) is this whole struct, kept by recovery.

use super::{Ack, Window};
use crate::time::Instant;

/// RFC 9438 4.6: beta = 0.7.
const BETA: (u64, u64) = (7, 10);
/// Longest time from K that is computed, so that cubes stay small: the window has reached its limit
/// long before.
const SPAN_MS: i64 = 1_000_000;

#[derive(Clone, Copy, Debug, Default)]
pub struct Cubic {
    /// Window just before the last reduction, or its plateau after fast convergence. 0 = the
    /// plateau is where the epoch begins.
    w_max: u32,
    /// cwnd when ssthresh was set most recently.
    cwnd_prior: u32,
    /// Reno-friendly estimate, and bytes acknowledged towards its next segment (RFC 9438 4.3).
    w_est: u32,
    est_credit: u32,
    /// Bytes acknowledged towards the next increase.
    credit: u32,
    /// Time from the start of the epoch to the plateau.
    k_ms: u32,
    /// Start of the epoch and the last ACK that counted, low bits of milliseconds.
    epoch_ms: u32,
    last_ms: u32,
    is_running: bool,
}

impl Cubic {
    pub fn on_ack(&mut self, window: &mut Window, ack: &Ack, bytes: u32) {
        let now_ms = ms_of(ack.now);
        let srtt_ms = (ack.srtt_ns / 1_000_000).min(10_000) as u32;
        if !self.is_running {
            self.start_epoch(window, now_ms);
        }
        self.skip_unused(now_ms, srtt_ms);
        self.grow_estimate(window, bytes);
        let t = i64::from(now_ms.wrapping_sub(self.epoch_ms));
        // RFC 9438 4.3: below what Reno would have, be Reno.
        if self.w_cubic(t, window.mss) < u64::from(self.w_est) {
            if self.w_est > window.cwnd {
                window.grow(self.w_est - window.cwnd);
            }
            return;
        }
        // RFC 9438 4.2: the target is the window one round trip ahead, at least cwnd and at most
        // 1.5 cwnd.
        let cwnd = u64::from(window.cwnd.max(1));
        let target = self
            .w_cubic(t + i64::from(srtt_ms), window.mss)
            .clamp(cwnd, cwnd * 3 / 2);
        self.approach(window, target - cwnd, bytes);
    }

    /// RFC 9438 4.4 and 4.5: (target - cwnd) / cwnd segments for each acknowledged segment; whole
    /// segments at a time.
    fn approach(&mut self, window: &mut Window, gap: u64, bytes: u32) {
        let cwnd = u64::from(window.cwnd);
        // Bytes to be acknowledged for one segment more; a plateau is left after 100 windows at the
        // latest (Linux).
        let price = (cwnd * u64::from(window.mss))
            .checked_div(gap)
            .unwrap_or(u64::MAX)
            .min(100 * cwnd)
            .max(1);
        // Credit collected at a higher price buys one segment only.
        if u64::from(self.credit) >= price {
            self.credit = 0;
            window.grow(window.mss);
        }
        self.credit = self.credit.saturating_add(bytes);
        let segments = u64::from(self.credit) / price;
        if segments > 0 {
            self.credit -= (segments * price) as u32;
            window.grow((segments * u64::from(window.mss)).min(u64::from(bytes)) as u32);
        }
    }

    /// RFC 9438 4.6 and 4.7; returns ssthresh.
    ///
    /// The RFC's flight_size is cwnd here: unused windows do not grow (RFC 7661), which 4.6
    /// requires.
    pub fn on_loss(&mut self, window: &Window) -> u32 {
        // Fast convergence: give way to newcomers when the plateau sinks.
        self.w_max = if window.cwnd < self.w_max {
            scale(window.cwnd, (BETA.1 + BETA.0, 2 * BETA.1))
        } else {
            window.cwnd
        };
        self.cwnd_prior = window.cwnd;
        self.is_running = false;
        self.credit = 0;
        scale(window.cwnd, BETA)
    }

    /// RFC 9438 4.8: the next epoch has its plateau where it begins.
    pub fn on_timeout(&mut self) {
        self.w_max = 0;
        self.is_running = false;
    }

    /// RFC 9438 4.10: slow start ended without a loss.
    pub fn on_slow_start_left(&mut self, window: &Window) {
        self.cwnd_prior = window.cwnd;
    }

    fn start_epoch(&mut self, window: &Window, now_ms: u32) {
        self.is_running = true;
        self.epoch_ms = now_ms;
        self.last_ms = now_ms;
        self.w_est = window.cwnd;
        (self.credit, self.est_credit) = (0, 0);
        if self.w_max <= window.cwnd {
            // RFC 9438 4.8, 4.10: no reduction yet, or grown past it: the plateau is here.
            self.w_max = window.cwnd;
            self.k_ms = 0;
        } else {
            // K = cbrt((w_max - cwnd_epoch) / (C * mss)) seconds; 1/C = 2.5, in ms: cbrt(x *
            // 2.5e9).
            let gap = u64::from(self.w_max - window.cwnd);
            self.k_ms = cube_root(gap * 2_500_000_000 / u64::from(window.mss.max(1))) as u32;
        }
    }

    /// RFC 9438 5.8: time in which the window was not used does not count. ACKs of a used window
    /// are at most a round trip apart, and others do not get here.
    fn skip_unused(&mut self, now_ms: u32, srtt_ms: u32) {
        let gap = now_ms.wrapping_sub(self.last_ms);
        let expected = 2 * srtt_ms + 1;
        if gap > expected {
            self.epoch_ms = self.epoch_ms.wrapping_add(gap - expected);
        }
        self.last_ms = now_ms;
    }

    /// RFC 9438 4.3: alpha = 3 (1 - beta) / (1 + beta) = 9/17 until the estimate has reached
    /// cwnd_prior, then 1.
    fn grow_estimate(&mut self, window: &Window, bytes: u32) {
        let worth = if self.w_est < self.cwnd_prior {
            (u64::from(bytes) * 9 / 17) as u32
        } else {
            bytes
        };
        self.est_credit = self.est_credit.saturating_add(worth);
        let cwnd = window.cwnd.max(1);
        if self.est_credit >= cwnd {
            self.est_credit = (self.est_credit - cwnd).min(cwnd);
            self.w_est = self.w_est.saturating_add(window.mss);
        }
    }

    /// W_cubic(t) = C (t - K)^3 + w_max.
    fn w_cubic(&self, t_ms: i64, mss: u32) -> u64 {
        let d = (t_ms - i64::from(self.k_ms)).clamp(-SPAN_MS, SPAN_MS);
        let cube = i128::from(d) * i128::from(d) * i128::from(d);
        let delta = cube * i128::from(mss) * 4 / 10_000_000_000;
        (i128::from(self.w_max) + delta).clamp(0, 1 << 31) as u64
    }
}

fn ms_of(now: Instant) -> u32 {
    (now.0 / 1_000_000) as u32
}

fn scale(value: u32, (num, den): (u64, u64)) -> u32 {
    (u64::from(value) * num / den) as u32
}

/// Integer cube root (floor).
fn cube_root(value: u64) -> u64 {
    let (mut low, mut high) = (0u64, 2_642_245u64);
    while low < high {
        let mid = (low + high).div_ceil(2);
        if mid * mid * mid <= value {
            low = mid;
        } else {
            high = mid - 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_000;

    fn ack(now_ms: u64, rtt_ms: u64) -> Ack {
        Ack {
            now: Instant::from_millis(now_ms),
            bytes: MSS,
            rtt_ns: 0,
            srtt_ns: rtt_ms * 1_000_000,
            una: 0,
            delivered: 0,
            nxt: 0,
            burst: 0,
            is_after_timeout: false,
        }
    }

    fn window(cwnd: u32) -> Window {
        Window {
            cwnd,
            ssthresh: 1,
            mss: MSS,
        }
    }

    #[test]
    fn cube_roots_are_exact() {
        for n in [0u64, 1, 7, 8, 26, 27, 1_000_000, u64::MAX] {
            let root = cube_root(n);
            assert!(root.pow(3) <= n);
            assert!((root + 1).checked_pow(3).is_none_or(|c| c > n));
        }
    }

    /// The equations of RFC 9438 4.2 and 4.3 in segments and seconds.
    struct Oracle {
        w_max: f64,
        cwnd_prior: f64,
        w_est: f64,
        k: f64,
        cwnd: f64,
    }

    impl Oracle {
        fn after_loss(w_max: f64, cwnd: f64) -> Oracle {
            Oracle {
                w_max,
                cwnd_prior: w_max,
                w_est: cwnd * 0.7,
                k: ((w_max - cwnd * 0.7) / 0.4).cbrt(),
                cwnd: cwnd * 0.7,
            }
        }

        fn on_ack(&mut self, t: f64, rtt: f64) {
            let w = |t: f64| 0.4 * (t - self.k).powi(3) + self.w_max;
            let alpha = if self.w_est < self.cwnd_prior {
                9.0 / 17.0
            } else {
                1.0
            };
            self.w_est += alpha / self.cwnd;
            if w(t) < self.w_est {
                self.cwnd = self.cwnd.max(self.w_est);
            } else {
                let target = w(t + rtt).clamp(self.cwnd, 1.5 * self.cwnd);
                self.cwnd += (target - self.cwnd) / self.cwnd;
            }
        }
    }

    /// Runs both for `seconds` after a loss at `start` segments.
    fn compare(start: u32, rtt_ms: u64, seconds: u64) {
        let mut cubic = Cubic::default();
        let mut w = window(start * MSS);
        w.cwnd = cubic.on_loss(&w);
        let mut oracle = Oracle::after_loss(start.into(), start.into());
        for i in 0..seconds * 1_000 / rtt_ms {
            let at = i * rtt_ms;
            for _ in 0..w.cwnd / MSS {
                cubic.on_ack(&mut w, &ack(5_000 + at, rtt_ms), MSS);
            }
            for _ in 0..oracle.cwnd as u32 {
                oracle.on_ack(at as f64 / 1e3, rtt_ms as f64 / 1e3);
            }
            let (ours, ideal) = (f64::from(w.cwnd) / f64::from(MSS), oracle.cwnd);
            assert!(
                (ours - ideal).abs() <= 2.0 + ideal * 0.02,
                "{start} segments, {rtt_ms} ms, at {at} ms: {ours} instead of {ideal}"
            );
        }
    }

    #[test]
    fn the_window_follows_the_equations() {
        // RFC 9438 4.2, 4.3, 4.4 and 4.5.
        // Large and long (cubic), short (Reno-friendly), small.
        for (start, rtt_ms, seconds) in [(100, 100, 12), (1_000, 40, 20), (50, 10, 10), (10, 20, 5)]
        {
            compare(start, rtt_ms, seconds);
        }
    }

    #[test]
    fn a_window_of_ten_thousand_segments_still_grows_like_reno() {
        // Steps of less than a byte an ACK must not be lost to rounding.
        let mut cubic = Cubic::default();
        let mut w = window(10_000 * MSS);
        w.cwnd = cubic.on_loss(&w);
        cubic.start_epoch(&w, 1);
        for _ in 0..w.cwnd / MSS * 17 {
            cubic.grow_estimate(&w, MSS);
        }
        // The remainder of 9/17 of an ACK is all that is lost.
        assert!(cubic.w_est.abs_diff(w.cwnd + 9 * MSS) <= MSS);
    }

    #[test]
    fn fast_convergence_lowers_w_max() {
        // RFC 9438 4.6 and 4.7.
        let mut cubic = Cubic::default();
        assert_eq!(cubic.on_loss(&window(100_000)), 70_000);
        assert_eq!(cubic.w_max, 100_000);
        assert_eq!(cubic.on_loss(&window(80_000)), 56_000);
        assert_eq!(cubic.w_max, 68_000);
        assert_eq!(cubic.cwnd_prior, 80_000);
    }

    #[test]
    fn after_a_timeout_w_max_is_the_window_at_the_start_of_congestion_avoidance() {
        // RFC 9438 4.8.
        let mut cubic = Cubic::default();
        cubic.on_loss(&window(100_000));
        cubic.on_timeout();
        let mut w = window(70_000);
        cubic.on_ack(&mut w, &ack(1_000, 100), MSS);
        assert_eq!((cubic.k_ms, cubic.w_max), (0, 70_000));
    }

    #[test]
    fn w_max_is_the_window_at_which_slow_start_ends_without_a_loss() {
        // RFC 9438 4.10.
        let mut cubic = Cubic::default();
        let mut w = window(50_000);
        cubic.on_slow_start_left(&w);
        cubic.on_ack(&mut w, &ack(1_000, 100), MSS);
        assert_eq!((cubic.k_ms, cubic.w_max), (0, 50_000));
        assert_eq!(cubic.cwnd_prior, 50_000);
    }

    #[test]
    fn idle_time_does_not_count_for_window_growth() {
        // RFC 9438 5.8.
        let mut cubic = Cubic::default();
        let mut w = window(100_000);
        w.cwnd = cubic.on_loss(&w);
        for at in [1_000, 1_100, 1_200] {
            cubic.on_ack(&mut w, &ack(at, 100), MSS);
        }
        let before = w.cwnd;
        // An hour of small requests later the curve goes on where it was.
        cubic.on_ack(&mut w, &ack(3_600_000, 100), MSS);
        assert!(w.cwnd <= before + MSS);
        assert!(ms_of(Instant::from_millis(3_600_000)).wrapping_sub(cubic.epoch_ms) < 500);
    }
}
