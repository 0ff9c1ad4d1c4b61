//! The retransmission timeout: back-off and giving up.
//!
//! RFC 6298 5 (5.5 back-off, 5.6 restart), RFC 9293 3.8.3 (R1, R2), RFC 1122 4.2.3.5.

/// Exponent limit: beyond it the ceiling applies anyway.
const SHIFT_MAX: u8 = 16;

/// Back-off state of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    /// Consecutive timeouts without progress.
    count: u8,
    /// Number of timeouts at the last one that left the timeout as it was.
    linear: u8,
}

impl Backoff {
    pub fn count(self) -> u8 {
        self.count
    }

    /// New data was acknowledged.
    #[inline]
    pub fn reset(&mut self) {
        *self = Backoff::default();
    }

    /// Number of times that the timeout has been doubled.
    #[inline]
    pub fn doublings(self) -> u8 {
        self.count - self.linear
    }

    /// RFC 6298 5.5: the host MUST set RTO <- RTO * 2.
    pub fn double(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// Counts a timeout after which the next one is as long as without back-off.
    pub fn stay(&mut self) {
        self.double();
        self.linear = self.count;
    }

    /// The timeout with back-off, in nanoseconds.
    #[inline]
    pub fn apply(self, base: u64, ceiling: u64) -> u64 {
        let doublings = self.doublings();
        if doublings == 0 {
            return base;
        }
        base.saturating_mul(1 << doublings.min(SHIFT_MAX))
            .min(ceiling)
    }
}

/// Returns the total time after which `retries` back-offs from `base` are exhausted: Linux measures
/// the limit as a time so that a fast path does not give up within seconds.
pub fn budget_ns(base: u64, ceiling: u64, retries: u8) -> u64 {
    let mut total = 0u64;
    for i in 0..=retries {
        total = total.saturating_add(base.saturating_mul(1 << i.min(SHIFT_MAX)).min(ceiling));
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_doubles_up_to_the_ceiling() {
        // RFC 6298 2.5 and 5.5.
        let mut backoff = Backoff::default();
        assert_eq!(backoff.apply(200, 1000), 200);
        backoff.double();
        backoff.double();
        assert_eq!(backoff.apply(200, 1000), 800);
        backoff.double();
        assert_eq!(backoff.apply(200, 1000), 1000);
        for _ in 0..300 {
            backoff.double();
        }
        assert_eq!(backoff.apply(u64::MAX / 2, u64::MAX - 1), u64::MAX - 1);
        backoff.reset();
        assert_eq!(backoff.apply(200, 1000), 200);
    }

    #[test]
    fn fifteen_retries_take_as_long_as_on_linux() {
        // RFC 9293 3.8.3, RFC 1122 4.2.3.5.
        // 200 ms doubling to 120 s, 15 retries: 924.6 s (ip-sysctl, tcp_retries2).
        assert_eq!(budget_ns(200, 120_000, 15), 924_600);
    }
}
