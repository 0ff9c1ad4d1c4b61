//! A token bucket represented by one point in time.

use slipstack_stack::Instant;

use super::params::Policer;

/// The bucket is full at `full_at`; every byte taken moves that by its time at the rate. (The
/// generic cell rate algorithm of ITU-T I.371, in bytes.)
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    full_at: Instant,
}

impl Bucket {
    /// Takes the frame's bytes, if there are as many.
    pub fn admit(&mut self, now: Instant, len: u64, policer: &Policer) -> bool {
        let full_at = self.full_at.max(now).plus_nanos(time_of(len, policer.rate));
        if full_at.nanos_since(now) > time_of(policer.burst_bytes, policer.rate) {
            return false;
        }
        self.full_at = full_at;
        true
    }
}

/// Nanoseconds that so many bytes take.
pub(super) fn time_of(len: u64, rate: u64) -> u64 {
    (u128::from(len) * 8_000_000_000 / u128::from(rate.max(1))) as u64
}
