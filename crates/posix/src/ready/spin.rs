//! The time that a wait spins before it sleeps.

use std::sync::atomic::{AtomicU64, Ordering};

use slipstack_channel::{Heuristics, Rule, Spin};

use super::credit::{Credit, SLEEP_COST_NS};

/// Longest spin.
const SPIN_NS_MAX: u64 = SLEEP_COST_NS;
/// Nanoseconds that a wait spins at least, so that a change for the better is noticed.
const SPIN_NS_MIN: u64 = 1_000;

/// The bounded, adaptive spin.
#[derive(Debug)]
pub(crate) struct Spinner {
    policy: Spin,
    rules: Heuristics,
    /// Time for which frames gather while spinning is off.
    gather_ns: u64,
    budget_ns: AtomicU64,
    credit: Credit,
}

impl Spinner {
    pub(crate) fn new(policy: Spin, gather_us: u32, rules: Heuristics) -> Self {
        Spinner {
            policy,
            rules,
            gather_ns: match rules.has(Rule::Naps) {
                true => u64::from(gather_us) * 1_000,
                false => 0,
            },
            budget_ns: AtomicU64::new(SPIN_NS_MAX),
            credit: Credit::new(),
        }
    }

    pub(crate) fn budget_ns(&self) -> u64 {
        match self.policy {
            Spin::Adaptive if !self.rules.has(Rule::Spin) => 0,
            Spin::Adaptive if self.credit.is_used_up() => 0,
            Spin::Adaptive => self.budget_ns.load(Ordering::Relaxed),
            Spin::FixedUs(us) => u64::from(us) * 1_000,
        }
    }

    /// Returns whether an option has fixed the time.
    pub(crate) fn is_fixed(&self) -> bool {
        matches!(self.policy, Spin::FixedUs(_))
    }

    /// Returns whether spinning is off to save processor time.
    pub(crate) fn is_off(&self) -> bool {
        self.policy == Spin::FixedUs(0)
    }

    /// Returns how long a sleep may let frames gather; 0 = it ends with the first.
    pub(crate) fn gather_ns(&self) -> u64 {
        if self.is_off() { self.gather_ns } else { 0 }
    }

    /// Records an event that arrived while spinning: it pays off.
    pub(crate) fn on_hit(&self) {
        self.credit.on_hit();
        let budget = self.budget_ns.load(Ordering::Relaxed);
        self.budget_ns
            .store((budget * 2).min(SPIN_NS_MAX), Ordering::Relaxed);
    }

    /// Records a sleep of `slept_ns` after spinning for `spun_ns` without success. A short sleep
    /// might have been a hit with a larger budget.
    pub(crate) fn on_sleep(&self, spun_ns: u64, slept_ns: u64) {
        self.credit.on_sleep(spun_ns);
        let budget = self.budget_ns.load(Ordering::Relaxed);
        let next = if slept_ns < SPIN_NS_MAX {
            (budget * 2).min(SPIN_NS_MAX)
        } else {
            (budget / 2).max(SPIN_NS_MIN)
        };
        self.budget_ns.store(next, Ordering::Relaxed);
    }
}

/// Places for threads that spin at most.
const PLACES: usize = 8;
/// Stations whose last wait is remembered; further ones share their places.
const STATIONS: usize = 16;
/// A station at which a thread has waited within this time has work for a processor.
const BUSY_NS: u64 = 1_000_000;

/// The threads of a program that spin at the same moment: half as many as there are processors may,
/// because the others would keep its peers, or its own threads, from theirs. Where as many other
/// engines have work none does: the thread that is woken next would wait for the one that spins.
#[derive(Debug)]
pub(crate) struct Spinners {
    /// The time until which each place is taken: a thread that leaves its wait by a jump gives none
    /// back.
    until_ns: [AtomicU64; PLACES],
    /// The time of the last wait at each station.
    waited_ns: [AtomicU64; STATIONS],
    most: usize,
}

/// The place of a thread that spins.
#[derive(Debug)]
pub(crate) struct SpinPlace<'a> {
    place: &'a AtomicU64,
    until_ns: u64,
}

impl Spinners {
    pub(crate) fn new() -> Spinners {
        let processors = rustix::thread::sched_getaffinity(None).map_or(2, |set| set.count());
        Spinners::of(processors as usize)
    }

    fn of(processors: usize) -> Spinners {
        Spinners {
            until_ns: Default::default(),
            waited_ns: Default::default(),
            most: (processors / 2).clamp(1, PLACES),
        }
    }

    /// A thread of one of several engines waits at `station`: whether as many others have work as
    /// may spin.
    pub(crate) fn is_crowded(&self, station: usize, now_ns: u64) -> bool {
        let own = station % STATIONS;
        self.waited_ns[own].store(now_ns, Ordering::Relaxed);
        let is_busy = |(at, waited_ns): (usize, &AtomicU64)| {
            let waited_ns = waited_ns.load(Ordering::Relaxed);
            at != own && waited_ns != 0 && now_ns.saturating_sub(waited_ns) < BUSY_NS
        };
        let all = self.waited_ns.iter().enumerate();
        all.filter(|it| is_busy(*it)).nth(self.most - 1).is_some()
    }

    /// Takes a place for a thread that spins from now on until `until_ns` at most.
    pub(crate) fn enter(&self, now_ns: u64, until_ns: u64) -> Option<SpinPlace<'_>> {
        self.until_ns[..self.most].iter().find_map(|place| {
            let taken_until = place.load(Ordering::Relaxed);
            let order = Ordering::Relaxed;
            let is_ours = taken_until <= now_ns
                && place
                    .compare_exchange(taken_until, until_ns, order, order)
                    .is_ok();
            is_ours.then_some(SpinPlace { place, until_ns })
        })
    }
}

impl Drop for SpinPlace<'_> {
    fn drop(&mut self) {
        let order = Ordering::Relaxed;
        let _ = self.place.compare_exchange(self.until_ns, 0, order, order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sleeps_end_the_spinning_and_short_ones_bring_it_back() {
        let spin = Spinner::new(Spin::Adaptive, 100, Heuristics::default());
        for _ in 0..20 {
            spin.on_sleep(0, 10_000_000);
        }
        assert_eq!(spin.budget_ns(), SPIN_NS_MIN);
        for _ in 0..20 {
            spin.on_sleep(0, 5_000);
        }
        assert_eq!(spin.budget_ns(), SPIN_NS_MAX);
    }

    /// A peer on the same processor answers 25 µs after the thread has gone to sleep, for however
    /// long that has spun.
    #[test]
    fn a_thread_that_the_peer_waits_for_does_not_spin() {
        let spin = Spinner::new(Spin::Adaptive, 100, Heuristics::default());
        let mut spun_ns = 0;
        for _ in 0..10_000 {
            let budget_ns = spin.budget_ns();
            spin.on_sleep(budget_ns, 25_000);
            spun_ns += budget_ns;
        }
        assert!(spun_ns < 10_000 * 1_000, "{spun_ns} ns");
    }

    #[test]
    fn half_as_many_threads_spin_as_there_are_processors() {
        let two = Spinners::of(2);
        let first = two.enter(10, 60);
        assert!(first.is_some());
        assert!(two.enter(20, 70).is_none());
        drop(first);
        std::mem::forget(two.enter(30, 80));
        assert!(two.enter(79, 100).is_none());
        assert!(two.enter(80, 100).is_some(), "it never came back");
        let one = Spinners::of(1);
        assert!(one.enter(0, 50).is_some());
        let many = Spinners::of(64);
        let places: Vec<_> = (0..20).filter_map(|at| many.enter(at, at + 50)).collect();
        assert_eq!(places.len(), PLACES);
    }

    #[test]
    fn no_thread_spins_while_other_engines_have_work_for_the_processors() {
        let two = Spinners::of(2);
        let (now, later) = (BUSY_NS, 3 * BUSY_NS);
        assert!(!two.is_crowded(1, now), "it is alone");
        assert!(!two.is_crowded(1, now + 1));
        assert!(two.is_crowded(2, now + 2));
        assert!(two.is_crowded(1, now + 3));
        assert!(!two.is_crowded(1, later), "the other one has been idle");
        let four = Spinners::of(4);
        let crowded = [1, 2, 3].map(|station| four.is_crowded(station, now));
        assert_eq!(crowded, [false, false, true]);
    }

    #[test]
    fn a_fixed_policy_stays_fixed() {
        let spin = Spinner::new(Spin::FixedUs(7), 100, Heuristics::default());
        spin.on_sleep(7_000, 1);
        spin.on_hit();
        assert_eq!(spin.budget_ns(), 7_000);
    }

    #[test]
    fn frames_are_collected_only_with_spinning_off() {
        let of = |policy| Spinner::new(policy, 100, Heuristics::default()).gather_ns();
        assert_eq!(of(Spin::FixedUs(0)), 100_000);
        assert_eq!((of(Spin::FixedUs(1)), of(Spin::Adaptive)), (0, 0));
    }
}
