//! The one clock: CLOCK_MONOTONIC in nanoseconds.

use rustix::time::{ClockId, clock_gettime};

/// Monotonic nanoseconds since boot (vDSO, about 18 ns).
#[inline]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
