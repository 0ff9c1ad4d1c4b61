//! Whether spinning pays: what it has cost in vain, against the sleeps that it has saved.
//!
//! A sleep after a spin in vain is short also where the peer needed this thread's processor for its
//! answer, and then no longer spin would have seen it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Nanoseconds that a sleep and its wake-up cost, with those of the peer, up to this on one machine
/// (65 µs there and back between cores): spinning longer cannot pay.
pub(super) const SLEEP_COST_NS: u64 = 50_000;
/// Credit at most.
const CREDIT_NS_MAX: u64 = 8 * SLEEP_COST_NS;
/// Credit of a trial after waits without a spin.
const TRIAL_NS: u64 = 2 * SLEEP_COST_NS;
/// Waits without a spin after the credit has been used up: at first, and at most.
const REST: u32 = 64;
const REST_MAX: u32 = 1024;

/// Counts of one station; threads that wait at the same time may each lose an update.
#[derive(Debug)]
pub(super) struct Credit {
    left_ns: AtomicU64,
    /// Waits that do not spin.
    resting: AtomicU32,
    /// Waits of the next rest.
    rest: AtomicU32,
}

impl Credit {
    pub(super) fn new() -> Credit {
        Credit {
            left_ns: AtomicU64::new(CREDIT_NS_MAX),
            resting: AtomicU32::new(0),
            rest: AtomicU32::new(REST),
        }
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.resting.load(Ordering::Relaxed) > 0
    }

    /// A spin has saved a sleep.
    pub(super) fn on_hit(&self) {
        let before_ns = self.left_ns.load(Ordering::Relaxed);
        let is_full = before_ns == CREDIT_NS_MAX && self.rest.load(Ordering::Relaxed) == REST;
        if is_full {
            return;
        }
        let left_ns = before_ns + SLEEP_COST_NS;
        if left_ns >= CREDIT_NS_MAX {
            self.rest.store(REST, Ordering::Relaxed);
        }
        self.left_ns
            .store(left_ns.min(CREDIT_NS_MAX), Ordering::Relaxed);
    }

    /// A wait has slept, after it had spun for `spun_ns`.
    pub(super) fn on_sleep(&self, spun_ns: u64) {
        let resting = self.resting.load(Ordering::Relaxed);
        if resting > 0 {
            self.resting.store(resting - 1, Ordering::Relaxed);
            return;
        }
        let left_ns = self.left_ns.load(Ordering::Relaxed);
        if left_ns > spun_ns {
            self.left_ns.store(left_ns - spun_ns, Ordering::Relaxed);
            return;
        }
        let rest = self.rest.load(Ordering::Relaxed);
        self.left_ns.store(TRIAL_NS, Ordering::Relaxed);
        self.resting.store(rest, Ordering::Relaxed);
        self.rest.store((rest * 2).min(REST_MAX), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of `waits` have spun, all in vain.
    fn in_vain(credit: &Credit, waits: u32) -> usize {
        let spins = (0..waits).filter(|_| {
            let may_spin = !credit.is_used_up();
            credit.on_sleep(if may_spin { SLEEP_COST_NS } else { 0 });
            may_spin
        });
        spins.count()
    }

    #[test]
    fn spins_in_vain_become_rare() {
        let credit = Credit::new();
        assert_eq!(in_vain(&credit, 8), 8);
        assert_eq!(in_vain(&credit, REST), 0);
        assert_eq!(in_vain(&credit, 2), 2);
        assert_eq!(in_vain(&credit, 2 * REST), 0);
        let spins = in_vain(&credit, 100 * REST_MAX);
        assert!(spins < 250, "{spins}");
    }

    #[test]
    fn hits_pay_for_as_many_spins_in_vain() {
        let credit = Credit::new();
        for _ in 0..1000 {
            credit.on_hit();
            credit.on_sleep(SLEEP_COST_NS);
            assert!(!credit.is_used_up());
        }
    }

    #[test]
    fn a_trial_that_succeeds_brings_the_spins_back() {
        let credit = Credit::new();
        in_vain(&credit, 10 * REST_MAX);
        let rest = (0..=REST_MAX).find(|_| {
            let may_spin = !credit.is_used_up();
            credit.on_sleep(0);
            may_spin
        });
        assert!(rest.is_some());
        for _ in 0..8 {
            credit.on_hit();
        }
        assert_eq!(in_vain(&credit, 8), 8);
        assert_eq!(in_vain(&credit, REST), 0);
        assert_eq!(in_vain(&credit, 1), 1);
    }
}
