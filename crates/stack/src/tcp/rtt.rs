//! Round-trip time: the smoothed estimate and the windowed minimum.
//!
//! RFC 6298 2 (srtt, rttvar), RFC 8985 6.2 (min_RTT). Only segments that were sent once are
//! measured (Karn), or retransmitted ones through the timestamp option.
//!
//! The clock counts nanoseconds (RFC 6298 4).

use core::time::Duration;

use crate::time::{Instant, nanos};

/// Time for which a minimum stays valid before a larger one may replace it.
const MIN_WINDOW_MS: u32 = 300_000;
const MIN_SHIFT: u32 = 5;
/// Nothing is faster than this: keeps the estimates away from zero.
const FLOOR_NS: u64 = 1_000;
/// Longest believable sample.
const CEILING_NS: u64 = 120_000_000_000;

/// RFC 6298 5.7: the timeout after a handshake that was repeated and has measured nothing.
const FALLBACK_NS: u64 = 3_000_000_000;

/// Estimates of one path. Nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rtt {
    srtt: u64,
    /// Before the first sample: the least timeout.
    rttvar: u64,
    /// In units of 32 ns, rounded down: [`CEILING_NS`] fits.
    min: u32,
    /// Low bits of milliseconds.
    min_at_ms: u32,
}

impl Rtt {
    pub fn has_sample(&self) -> bool {
        self.srtt != 0
    }

    pub fn smoothed_ns(&self) -> u64 {
        self.srtt
    }

    pub fn variance_ns(&self) -> u64 {
        self.rttvar
    }

    /// The handshake had to be repeated.
    #[cold]
    pub fn fall_back(&mut self) {
        if !self.has_sample() {
            self.rttvar = FALLBACK_NS;
        }
    }

    pub fn min_ns(&self) -> u64 {
        u64::from(self.min) << MIN_SHIFT
    }

    /// Restores the estimates of a moved connection. Absurd values count as no estimate.
    pub fn restore(srtt: u64, rttvar: u64, now: Instant) -> Rtt {
        if srtt == 0 || srtt > CEILING_NS || rttvar > CEILING_NS {
            return Rtt {
                rttvar: if rttvar == FALLBACK_NS { rttvar } else { 0 },
                ..Rtt::default()
            };
        }
        Rtt {
            srtt,
            rttvar,
            min: (srtt >> MIN_SHIFT) as u32,
            min_at_ms: now.as_millis() as u32,
        }
    }

    #[inline]
    pub fn sample(&mut self, now: Instant, measured: Duration) {
        self.sample_ns(now, nanos(measured));
    }

    #[inline]
    pub fn sample_ns(&mut self, now: Instant, measured: u64) {
        let r = measured.clamp(FLOOR_NS, CEILING_NS);
        let units = (r >> MIN_SHIFT) as u32;
        let now_ms = now.as_millis() as u32;
        let age_ms = now_ms.wrapping_sub(self.min_at_ms);
        if self.min == 0 || units <= self.min || age_ms > MIN_WINDOW_MS {
            self.min = units;
            self.min_at_ms = now_ms;
        }
        if self.srtt == 0 {
            // RFC 6298 2.2: SRTT <- R, RTTVAR <- R/2.
            self.srtt = r;
            self.rttvar = r / 2;
        } else {
            // RFC 6298 2.3: RTTVAR before SRTT, alpha 1/8, beta 1/4.
            self.rttvar = self.rttvar - self.rttvar / 4 + self.srtt.abs_diff(r) / 4;
            self.srtt = self.srtt - self.srtt / 8 + r / 8;
        }
    }

    /// RTO without back-off.
    ///
    /// DEVIATION(RFC 6298 2.4): the minimum bounds the variance term, not the sum, as on Linux; the
    /// sum is then never closer to the round trip than `rto_min`.
    #[inline]
    pub fn timeout_ns(&self, initial: u64, min: u64, max: u64) -> u64 {
        if self.srtt == 0 {
            return initial.max(self.rttvar).min(max);
        }
        (self.srtt + (4 * self.rttvar).max(min)).min(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_first_sample_sets_both_estimates() {
        // RFC 6298 2.1 and 2.2.
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout_ns(1000 * MS, 200 * MS, 120_000 * MS), 1000 * MS);
        rtt.sample(Instant(0), Duration::from_millis(100));
        assert_eq!((rtt.smoothed_ns(), rtt.variance_ns()), (100 * MS, 50 * MS));
        assert_eq!(rtt.timeout_ns(1000 * MS, 200 * MS, 120_000 * MS), 300 * MS);
    }

    #[test]
    fn estimates_follow_a_naive_oracle() {
        // RFC 6298 2.3.
        let mut rtt = Rtt::default();
        let (mut srtt, mut var) = (0f64, 0f64);
        for i in 0..1000u64 {
            let sample = 20 + (i * 37) % 90;
            rtt.sample(Instant(i * 100 * MS), Duration::from_millis(sample));
            let r = sample as f64;
            if i == 0 {
                (srtt, var) = (r, r / 2.0);
            } else {
                var = 0.75 * var + 0.25 * (srtt - r).abs();
                srtt = 0.875 * srtt + 0.125 * r;
            }
            assert!((rtt.smoothed_ns() as f64 / MS as f64 - srtt).abs() < 0.01);
            assert!((rtt.variance_ns() as f64 / MS as f64 - var).abs() < 0.01);
        }
    }

    #[test]
    fn constant_round_trip_times_keep_a_minimum_variance() {
        // RFC 6298 4: the variance term is never zero, and the clock resolves microseconds.
        let mut rtt = Rtt::default();
        for i in 0..1_000 {
            rtt.sample(Instant(i * MS), Duration::from_micros(1_234));
        }
        assert!(rtt.variance_ns() < 1_000, "{}", rtt.variance_ns());
        assert!(rtt.smoothed_ns().abs_diff(1_234_000) < 1_000);
        let timeout = rtt.timeout_ns(1000 * MS, 200 * MS, 120_000 * MS);
        assert_eq!(timeout, rtt.smoothed_ns() + 200 * MS);
    }

    #[test]
    fn the_minimum_is_forgotten_after_its_window() {
        let mut rtt = Rtt::default();
        rtt.sample(Instant(0), Duration::from_millis(5));
        rtt.sample(Instant(1), Duration::from_millis(50));
        assert_eq!(rtt.min_ns(), 5 * MS);
        let later = Instant::from_millis(u64::from(MIN_WINDOW_MS) + 2);
        rtt.sample(later, Duration::from_millis(50));
        assert_eq!(rtt.min_ns(), 50 * MS);
    }
}
