//! Monotonic time in the stack: an argument, never a clock.

use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// Nanoseconds of CLOCK_MONOTONIC (or of a simulated world).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    pub const ZERO: Self = Self(0);
    /// Later than everything that happens.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Time passed since `earlier`; zero when `earlier` is later.
    #[inline]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time since `earlier` in nanoseconds, without the detour through `Duration`.
    #[inline]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    #[inline]
    pub const fn plus_nanos(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}

/// A moment that is never far from now, in half the room: units of 2^20 ns (about a millisecond),
/// 52 days of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick(u32);

impl Tick {
    const SHIFT: u32 = 20;
    /// No moment.
    pub const NONE: Self = Self(0);

    /// Never [`Tick::NONE`].
    #[inline]
    pub const fn of(now: Instant) -> Self {
        match (now.0 >> Self::SHIFT) as u32 {
            0 => Self(1),
            units => Self(units),
        }
    }

    /// Time passed since then, to a unit.
    #[inline]
    pub const fn nanos_until(self, now: Instant) -> u64 {
        let units = Self::of(now).0.wrapping_sub(self.0);
        (units as u64) << Self::SHIFT
    }
}

/// `Duration` in nanoseconds, saturating (584 years are for ever).
#[inline]
pub const fn nanos(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(duration.subsec_nanos() as u64)
}

impl Add<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn add(self, rhs: Duration) -> Self {
        self.plus_nanos(nanos(rhs))
    }
}

impl AddAssign<Duration> for Instant {
    #[inline]
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(rhs)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    #[inline]
    fn sub(self, rhs: Self) -> Duration {
        self.saturating_since(rhs)
    }
}
