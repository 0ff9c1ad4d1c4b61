//! The monotonic clock in nanoseconds, and the wall clock where the kernel uses it.

use rustix::time::{ClockId, clock_gettime};

/// Monotonic nanoseconds since boot (vDSO, about 18 ns).
#[inline]
pub fn now_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Returns the wall-clock time at `then` of [`now_ns`], unless the clock was set since.
pub fn wall_ns_at(then: u64) -> u64 {
    let since = now_ns().saturating_sub(then);
    nanoseconds(ClockId::Realtime).saturating_sub(since)
}

/// Returns the value of [`now_ns`] at wall-clock time `then`, unless the clock was set since.
pub fn monotonic_ns_at(then: u64) -> u64 {
    let since = nanoseconds(ClockId::Realtime).saturating_sub(then);
    now_ns().saturating_sub(since)
}

#[inline]
fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
