//! A token bucket for packets that unauthenticated peers can make us send.

use crate::rng::Rng;
use crate::time::Instant;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Allows `per_second` events a second on average, at most a tenth of a second's worth at once.
///
/// A few tokens are withheld at random at each refill, so that the limit does not reveal how many
/// events others caused (CVE-2016-5696, CVE-2020-25705).
#[derive(Clone, Debug)]
pub struct RateLimit {
    per_second: u32,
    tokens: u32,
    refilled: Instant,
}

impl RateLimit {
    pub fn new(per_second: u32, now: Instant) -> Self {
        Self {
            per_second,
            tokens: Self::burst(per_second),
            refilled: now,
        }
    }

    /// Takes a token; `false` = none left.
    pub fn may_pass(&mut self, now: Instant, rng: &mut Rng) -> bool {
        let burst = Self::burst(self.per_second);
        let elapsed = now.nanos_since(self.refilled).min(NANOS_PER_SECOND);
        let earned = elapsed * u64::from(self.per_second) / NANOS_PER_SECOND;
        // Whole steps of half a burst: between them nothing leaks about the exact filling.
        if earned >= u64::from(burst / 2).max(1) {
            self.refilled = now;
            let withheld = rng.below((burst / 16).max(1));
            let tokens = u64::from(self.tokens) + earned;
            self.tokens = tokens.min(u64::from(burst)) as u32 - withheld.min(burst - 1);
        }
        let may = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        may
    }

    const fn burst(per_second: u32) -> u32 {
        let burst = per_second / 10;
        if per_second == 0 {
            0
        } else if burst == 0 {
            1
        } else {
            burst
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_ten_seconds_about_the_rate_passes_and_never_more() {
        let mut rng = Rng::new(&[1; 32]);
        let mut limit = RateLimit::new(1000, Instant::ZERO);
        let passed = (0..1_000_000u64)
            .filter(|i| limit.may_pass(Instant(i * 10_000), &mut rng))
            .count();
        assert!((8_500..=10_100).contains(&passed), "{passed}");
    }

    #[test]
    fn a_rate_of_zero_passes_nothing_and_a_rate_of_one_passes_one() {
        let mut rng = Rng::new(&[1; 32]);
        let mut none = RateLimit::new(0, Instant::ZERO);
        assert!(!none.may_pass(Instant::from_millis(5000), &mut rng));
        let mut one = RateLimit::new(1, Instant::ZERO);
        assert!(one.may_pass(Instant::ZERO, &mut rng));
        assert!(!one.may_pass(Instant::from_millis(500), &mut rng));
        assert!(one.may_pass(Instant::from_millis(1600), &mut rng));
    }
}
