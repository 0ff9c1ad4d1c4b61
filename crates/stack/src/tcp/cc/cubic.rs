//! CUBIC (RFC 9438): the window is a cubic function of the time since the last loss.
//!
//! Integer arithmetic: times in milliseconds, windows in bytes. C = 0.4, beta = 0.7.

use core::time::Duration;

use super::Window;
use crate::time::Instant;

/// RFC 9438 4.6: beta = 0.7.
const BETA: (u64, u64) = (7, 10);
/// Longest time from K that is looked at, so that cubes stay small: the window has reached its limit long before.
const SPAN_MS: i64 = 1_000_000;

#[derive(Clone, Copy, Debug, Default)]
pub struct Cubic {
    /// Window before the last reduction, bytes.
    w_max: u32,
    /// Reno-friendly estimate, bytes (RFC 9438 4.3).
    w_est: u32,
    /// Bytes acknowledged towards the next increase.
    credit: u32,
    /// Time from the start of the epoch to the plateau, ms.
    k_ms: u32,
    /// Start of the epoch in ms; 0 = none is running.
    epoch_ms: u64,
    /// Values before the last loss, for undo.
    prior_w_max: u32,
    prior_k_ms: u32,
}

impl Cubic {
    pub fn on_ack(&mut self, window: &mut Window, now: Instant, bytes: u32, srtt: Duration) {
        let now_ms = (now.0 / 1_000_000).max(1);
        if self.epoch_ms == 0 {
            self.start_epoch(window, now_ms);
        }
        // RFC 9438 4.2: the target is the window one round trip ahead, at most 1.5 cwnd.
        let ahead = srtt.as_millis().min(10_000) as u64;
        let t = (now_ms.saturating_sub(self.epoch_ms) + ahead).min(SPAN_MS as u64) as i64;
        let cubic = self
            .w_cubic(t, window.mss)
            .clamp(u64::from(window.cwnd), u64::from(window.cwnd) * 3 / 2);

        // RFC 9438 4.3: alpha = 3 (1 - beta) / (1 + beta) = 9/17 until w_est has reached the old window, then 1.
        let cwnd = window.cwnd.max(1);
        let (num, den) = if self.w_est < self.w_max {
            (9, 17)
        } else {
            (1, 1)
        };
        let step = u64::from(window.mss) * u64::from(bytes) * num / (u64::from(cwnd) * den);
        self.w_est = self.w_est.saturating_add(step as u32);

        let target = cubic.max(u64::from(self.w_est));
        if target <= u64::from(cwnd) {
            return;
        }
        // RFC 9438 4.4: (target - cwnd) / cwnd per acknowledged byte, collected until whole segments are due.
        let gain = (target - u64::from(cwnd)) * u64::from(bytes) / u64::from(cwnd);
        self.credit = self
            .credit
            .saturating_add(gain.min(u64::from(bytes)) as u32);
        if self.credit >= window.mss {
            let segments = self.credit / window.mss;
            window.grow(segments * window.mss);
            self.credit -= segments * window.mss;
        }
    }

    pub fn on_loss(&mut self, window: &Window, _now: Instant) -> u32 {
        self.prior_w_max = self.w_max;
        self.prior_k_ms = self.k_ms;
        // RFC 9438 4.7, fast convergence: give way to newcomers when the plateau sinks.
        self.w_max = if window.cwnd < self.w_max {
            scale(window.cwnd, (BETA.1 + BETA.0, 2 * BETA.1))
        } else {
            window.cwnd
        };
        self.epoch_ms = 0;
        self.credit = 0;
        scale(window.cwnd, BETA)
    }

    pub fn on_undo(&mut self) {
        self.w_max = self.prior_w_max;
        self.k_ms = self.prior_k_ms;
        self.epoch_ms = 0;
    }

    /// RFC 9438 4.2: time in which the application sent nothing does not count.
    pub fn on_idle(&mut self) {
        self.epoch_ms = 0;
    }

    fn start_epoch(&mut self, window: &Window, now_ms: u64) {
        self.epoch_ms = now_ms;
        self.w_est = window.cwnd;
        self.credit = 0;
        if self.w_max <= window.cwnd {
            // No reduction yet (or grown past it): the plateau is here.
            self.w_max = window.cwnd;
            self.k_ms = 0;
        } else {
            // K = cbrt((w_max - cwnd) / (C * mss)) seconds; 1/C = 2.5, in ms: cbrt(x * 2.5e9).
            let gap = u64::from(self.w_max - window.cwnd);
            self.k_ms = cube_root(gap * 2_500_000_000 / u64::from(window.mss.max(1))) as u32;
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

    #[test]
    fn cube_roots_are_exact() {
        for n in [0u64, 1, 7, 8, 26, 27, 1_000_000, u64::MAX] {
            let root = cube_root(n);
            assert!(root.pow(3) <= n);
            assert!((root + 1).checked_pow(3).is_none_or(|c| c > n));
        }
    }

    #[test]
    fn the_window_returns_to_its_plateau_after_k() {
        let mss = 1_000;
        let mut cubic = Cubic::default();
        let mut window = Window {
            cwnd: 100_000,
            ssthresh: 1,
            mss,
        };
        let ssthresh = cubic.on_loss(&window, Instant(0));
        assert_eq!(ssthresh, 70_000);
        window.cwnd = ssthresh;
        // K = cbrt(30 / 0.4) = 4.217 s; one ACK of a full window every 100 ms.
        let mut at_k = 0;
        for i in 0..60u64 {
            let now = Instant::from_millis(1_000 + i * 100);
            let cwnd = window.cwnd;
            for _ in 0..cwnd / mss {
                cubic.on_ack(&mut window, now, mss, Duration::from_millis(100));
            }
            if i == 42 {
                at_k = window.cwnd;
            }
        }
        assert!((98_000..=104_000).contains(&at_k), "{at_k}");
        assert!(window.cwnd > at_k);
    }
}
