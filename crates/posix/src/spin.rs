//! How long a wait spins before it sleeps.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::process::SpinPolicy;

/// A sleep and its wake-up cost up to this on one machine (65 µs there and back between cores), so
/// spinning longer cannot pay.
const SPIN_NS_MAX: u64 = 50_000;
/// What a wait spins at least, so that a change for the better is noticed.
const SPIN_NS_MIN: u64 = 1_000;

/// The bounded, adaptive spin.
#[derive(Debug)]
pub(crate) struct Spin {
    policy: SpinPolicy,
    /// With spinning off.
    gather_ns: u64,
    budget_ns: AtomicU64,
}

impl Spin {
    pub(crate) fn new(policy: SpinPolicy, gather_us: u32) -> Self {
        Spin {
            policy,
            gather_ns: u64::from(gather_us) * 1_000,
            budget_ns: AtomicU64::new(SPIN_NS_MAX),
        }
    }

    pub(crate) fn budget_ns(&self) -> u64 {
        match self.policy {
            SpinPolicy::Adaptive => self.budget_ns.load(Ordering::Relaxed),
            SpinPolicy::FixedUs(us) => u64::from(us) * 1_000,
        }
    }

    /// Somebody has said how long, whether it pays or not.
    pub(crate) fn is_fixed(&self) -> bool {
        matches!(self.policy, SpinPolicy::FixedUs(_))
    }

    /// Somebody would rather save processor time.
    pub(crate) fn is_off(&self) -> bool {
        self.policy == SpinPolicy::FixedUs(0)
    }

    /// How long a sleep may let frames gather; 0 = it ends with the first.
    pub(crate) fn gather_ns(&self) -> u64 {
        if self.is_off() { self.gather_ns } else { 0 }
    }

    /// Something came while spinning: it pays.
    pub(crate) fn on_hit(&self) {
        let budget = self.budget_ns.load(Ordering::Relaxed);
        self.budget_ns
            .store((budget * 2).min(SPIN_NS_MAX), Ordering::Relaxed);
    }

    /// The thread slept `slept_ns` after it had spun in vain. A short sleep would have been a hit
    /// with a larger budget.
    pub(crate) fn on_sleep(&self, slept_ns: u64) {
        let budget = self.budget_ns.load(Ordering::Relaxed);
        let next = if slept_ns < SPIN_NS_MAX {
            (budget * 2).min(SPIN_NS_MAX)
        } else {
            (budget / 2).max(SPIN_NS_MIN)
        };
        self.budget_ns.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sleeps_end_the_spinning_and_short_ones_bring_it_back() {
        let spin = Spin::new(SpinPolicy::Adaptive, 100);
        for _ in 0..20 {
            spin.on_sleep(10_000_000);
        }
        assert_eq!(spin.budget_ns(), SPIN_NS_MIN);
        for _ in 0..20 {
            spin.on_sleep(5_000);
        }
        assert_eq!(spin.budget_ns(), SPIN_NS_MAX);
    }

    #[test]
    fn a_fixed_policy_stays_fixed() {
        let spin = Spin::new(SpinPolicy::FixedUs(7), 100);
        spin.on_sleep(1);
        spin.on_hit();
        assert_eq!(spin.budget_ns(), 7_000);
    }

    #[test]
    fn only_who_does_not_spin_lets_frames_gather() {
        let of = |policy| Spin::new(policy, 100).gather_ns();
        assert_eq!(of(SpinPolicy::FixedUs(0)), 100_000);
        assert_eq!(
            (of(SpinPolicy::FixedUs(1)), of(SpinPolicy::Adaptive)),
            (0, 0)
        );
    }
}
