//! The clock, and sleeping until a time.

use std::time::SystemTime;

use rustix::time::{ClockId, Timespec, clock_gettime};
use slipstack_stack::Instant;

pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    Instant(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns the nanoseconds to add to the clock for the time of day.
pub fn wall_offset_ns() -> u64 {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    (wall.unwrap_or_default().as_nanos() as u64).saturating_sub(now().0)
}

pub fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}

/// Makes waits end on time, not up to 50 µs later, and raises the priority if permitted. Without
/// the permission the link is only a little less exact.
pub fn sharpen() {
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).ok();
    rustix::process::setpriority_process(None, -15).ok();
}
