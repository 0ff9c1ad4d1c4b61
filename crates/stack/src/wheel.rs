//! A hierarchical timer wheel with lazy re-filing.
//!
//! Each timer has a deadline (what its owner wants) and a place in the wheel (where it is filed).
//! Moving the deadline later, which is what every ACK does, is one store: when the place comes up
//! the timer is filed again. Only moving it earlier than its place re-links it.
//!
//! Resolution is one tick of 2¹⁸ ns (262 µs); a timer fires up to one tick late, never early.

use alloc::vec::Vec;

use crate::time::Instant;

const TICK_SHIFT: u32 = 18;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// 8 levels of 64 slots reach 2⁴⁸ ticks, longer than `u64` nanoseconds need.
const LEVELS: usize = 8;
const NONE: u32 = u32::MAX;
/// "List" number of a timer that is in no slot.
const UNFILED: u16 = u16::MAX;

/// Handle of a timer; dead after `remove`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerKey(u32);

#[derive(Clone, Copy, Debug)]
struct Timer {
    token: u64,
    /// In ticks, rounded up.
    deadline: u64,
    /// The tick at which the wheel looks at this timer; at most `deadline`.
    filed: u64,
    prev: u32,
    next: u32,
    list: u16,
}

/// Timers of one owner type; `token` is the owner's name for what a timer belongs to.
#[derive(Clone, Debug)]
pub struct Wheel {
    timers: Vec<Timer>,
    free: Vec<u32>,
    heads: [[u32; SLOTS]; LEVELS],
    /// One bit per non-empty slot.
    occupied: [u64; LEVELS],
    /// The last tick that was worked off completely.
    now: u64,
    /// No slot comes up before this tick; `u64::MAX` = all are empty.
    earliest: u64,
}

impl Wheel {
    pub fn new(now: Instant) -> Self {
        Self {
            timers: Vec::new(),
            free: Vec::new(),
            heads: [[NONE; SLOTS]; LEVELS],
            occupied: [0; LEVELS],
            now: now.0 >> TICK_SHIFT,
            earliest: u64::MAX,
        }
    }

    /// A timer that is not running yet.
    pub fn add(&mut self, token: u64) -> TimerKey {
        let timer = Timer {
            token,
            deadline: u64::MAX,
            filed: u64::MAX,
            prev: NONE,
            next: NONE,
            list: UNFILED,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.timers[index as usize] = timer;
                index
            }
            None => {
                self.timers.push(timer);
                (self.timers.len() - 1) as u32
            }
        };
        TimerKey(index)
    }

    pub fn remove(&mut self, key: TimerKey) {
        self.unlink(key.0);
        self.free.push(key.0);
        // Nobody needs to wake for a slot that was emptied.
        self.earliest = self.next_tick().unwrap_or(u64::MAX);
    }

    /// Sets the deadline. Later than before: one store.
    #[inline]
    pub fn set(&mut self, key: TimerKey, at: Instant) {
        let tick = at.0.div_ceil(1 << TICK_SHIFT);
        let timer = &mut self.timers[key.0 as usize];
        timer.deadline = tick;
        if timer.list == UNFILED || tick < timer.filed {
            self.refile(key.0);
        }
    }

    /// Stops the timer without unlinking it; it is dropped from the wheel when its place comes up.
    #[inline]
    pub fn clear(&mut self, key: TimerKey) {
        self.timers[key.0 as usize].deadline = u64::MAX;
    }

    /// The next timer that is due, which is then no longer running. Call until `None`.
    #[inline]
    pub fn pop_due(&mut self, now: Instant) -> Option<(TimerKey, u64)> {
        let now = now.0 >> TICK_SHIFT;
        if now < self.earliest {
            self.now = self.now.max(now);
            return None;
        }
        self.pop_slots(now)
    }

    fn pop_slots(&mut self, now: u64) -> Option<(TimerKey, u64)> {
        loop {
            // A slot is worked off at its own tick, so that what is filed meanwhile lands right.
            self.earliest = self.next_tick().unwrap_or(u64::MAX);
            if self.earliest > now {
                self.now = self.now.max(now);
                return None;
            }
            self.now = self.now.max(self.earliest);
            let (level, slot) = self.first_slot()?;
            if level > 0 {
                self.cascade(level, slot);
                continue;
            }
            let index = self.heads[0][slot];
            self.unlink(index);
            let timer = &self.timers[index as usize];
            if timer.deadline <= self.now {
                return Some((TimerKey(index), timer.token));
            }
            if timer.deadline != u64::MAX {
                self.refile(index);
            }
        }
    }

    /// Files all timers of a slot whose time has begun again, one level or more below.
    fn cascade(&mut self, level: usize, slot: usize) {
        while self.heads[level][slot] != NONE {
            let index = self.heads[level][slot];
            if self.timers[index as usize].deadline == u64::MAX {
                self.unlink(index);
            } else {
                // The deadline may lie beyond this slot by now, never in it at this level.
                self.refile(index);
            }
        }
    }

    /// When `pop_due` must be called next; may be earlier than the earliest deadline.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        let is_empty = self.earliest == u64::MAX;
        (!is_empty).then(|| Instant(self.earliest.saturating_mul(1 << TICK_SHIFT)))
    }

    /// Appends the tokens of the timers that the wheel looks at up to `until`, those stopped lazily
    /// included. They stay where they are.
    pub fn find_filed(&self, until: Instant, found: &mut Vec<u64>) {
        let until = until.0 >> TICK_SHIFT;
        for (level, heads) in self.heads.iter().enumerate() {
            let mut occupied = self.occupied[level];
            while occupied != 0 {
                let mut index = heads[occupied.trailing_zeros() as usize];
                occupied &= occupied - 1;
                while index != NONE {
                    let timer = &self.timers[index as usize];
                    // All timers of a slot are filed at its beginning, or at their tick.
                    if timer.filed > until {
                        break;
                    }
                    found.push(timer.token);
                    index = timer.next;
                }
            }
        }
    }

    /// Timers in slots, those stopped lazily included.
    pub fn filed_len(&self) -> usize {
        self.timers
            .iter()
            .filter(|timer| timer.list != UNFILED)
            .count()
    }

    /// The non-empty slot that comes up first: lowest level, then next after the current one.
    fn first_slot(&self) -> Option<(usize, usize)> {
        (0..LEVELS)
            .find(|&level| self.occupied[level] != 0)
            .map(|level| {
                let current = (self.now >> (level as u32 * SLOT_BITS)) as u32 & (SLOTS as u32 - 1);
                let ahead = self.occupied[level].rotate_right(current).trailing_zeros();
                (level, ((current + ahead) as usize) & (SLOTS - 1))
            })
    }

    fn next_tick(&self) -> Option<u64> {
        let (level, slot) = self.first_slot()?;
        let shift = level as u32 * SLOT_BITS;
        let position = self.now >> shift;
        let ahead = (slot as u64).wrapping_sub(position) & (SLOTS as u64 - 1);
        Some(((position + ahead) << shift).max(self.now))
    }

    fn refile(&mut self, index: u32) {
        self.unlink(index);
        let now = self.now;
        let timer = &mut self.timers[index as usize];
        let tick = timer.deadline.max(now);
        // The highest bit in which the tick differs from now names the level.
        let level = ((63 - ((tick ^ now) | 1).leading_zeros()) / SLOT_BITS).min(LEVELS as u32 - 1);
        let shift = level * SLOT_BITS;
        let slot = (tick >> shift) as usize & (SLOTS - 1);
        let level = level as usize;
        timer.filed = (tick >> shift) << shift;
        self.earliest = self.earliest.min(timer.filed.max(now));
        timer.list = (level * SLOTS + slot) as u16;
        timer.prev = NONE;
        timer.next = self.heads[level][slot];
        let next = timer.next;
        if next != NONE {
            self.timers[next as usize].prev = index;
        }
        self.heads[level][slot] = index;
        self.occupied[level] |= 1 << slot;
    }

    fn unlink(&mut self, index: u32) {
        let timer = &mut self.timers[index as usize];
        if timer.list == UNFILED {
            return;
        }
        let (level, slot) = (timer.list as usize / SLOTS, timer.list as usize % SLOTS);
        let (prev, next) = (timer.prev, timer.next);
        timer.list = UNFILED;
        if next != NONE {
            self.timers[next as usize].prev = prev;
        }
        if prev != NONE {
            self.timers[prev as usize].next = next;
        } else {
            self.heads[level][slot] = next;
            if next == NONE {
                self.occupied[level] &= !(1 << slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    const TICK: u64 = 1 << TICK_SHIFT;

    fn drain(wheel: &mut Wheel, now: Instant) -> Vec<u64> {
        core::iter::from_fn(|| wheel.pop_due(now))
            .map(|(_, token)| token)
            .collect()
    }

    #[test]
    fn a_timer_fires_at_its_tick_and_not_before() {
        for delay in [
            1,
            TICK,
            63 * TICK,
            64 * TICK,
            65 * TICK,
            4096 * TICK,
            7_200_000_000_000,
        ] {
            let mut wheel = Wheel::new(Instant(12_345));
            let key = wheel.add(7);
            let at = 12_345 + delay;
            wheel.set(key, Instant(at));
            assert_eq!(drain(&mut wheel, Instant(at - 1)), [], "delay {delay}");
            assert_eq!(drain(&mut wheel, Instant(at + TICK)), [7], "delay {delay}");
            assert_eq!(drain(&mut wheel, Instant(at + 1000 * TICK)), []);
        }
    }

    #[test]
    fn moving_a_deadline_later_does_not_relink() {
        let mut wheel = Wheel::new(Instant::ZERO);
        let key = wheel.add(1);
        wheel.set(key, Instant(100 * TICK));
        let filed = wheel.timers[0].filed;
        wheel.set(key, Instant(5000 * TICK));
        assert_eq!(wheel.timers[0].filed, filed);
        assert_eq!(drain(&mut wheel, Instant(4999 * TICK)), []);
        assert_eq!(drain(&mut wheel, Instant(5000 * TICK)), [1]);
    }

    #[test]
    fn a_stopped_or_removed_timer_is_silent() {
        let mut wheel = Wheel::new(Instant::ZERO);
        let (stopped, removed) = (wheel.add(1), wheel.add(2));
        wheel.set(stopped, Instant(10 * TICK));
        wheel.set(removed, Instant(10 * TICK));
        wheel.clear(stopped);
        wheel.remove(removed);
        assert_eq!(drain(&mut wheel, Instant(1000 * TICK)), []);
        assert_eq!(wheel.next_deadline(), None);
        assert_eq!(wheel.add(3), removed, "the place is used again");
    }

    #[test]
    fn sleeping_until_each_deadline_takes_few_steps() {
        let mut wheel = Wheel::new(Instant::ZERO);
        let key = wheel.add(1);
        wheel.set(key, Instant(7_200_000_000_000));
        let mut steps = 0;
        let mut now = Instant::ZERO;
        while let Some(at) = wheel.next_deadline() {
            assert!(at > now);
            now = at;
            steps += 1;
            if wheel.pop_due(now).is_some() {
                break;
            }
        }
        assert!(steps <= LEVELS, "{steps} wake-ups for one timer");
        assert!(now >= Instant(7_200_000_000_000));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Set { timer: usize, delay: u64 },
        Clear { timer: usize },
        Remove { timer: usize },
        Advance { by: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let delay = prop_oneof![
            0..TICK * 3,
            0..TICK * 300,
            0..TICK * 100_000,
            0..TICK * 50_000_000
        ];
        prop_oneof![
            4 => (0usize..8, delay.clone()).prop_map(|(timer, delay)| Step::Set { timer, delay }),
            1 => (0usize..8).prop_map(|timer| Step::Clear { timer }),
            1 => (0usize..8).prop_map(|timer| Step::Remove { timer }),
            3 => delay.prop_map(|by| Step::Advance { by }),
        ]
    }

    proptest! {
        /// The oracle keeps every deadline and looks at all of them.
        #[test]
        fn behaves_like_a_table_of_deadlines(steps in proptest::collection::vec(step(), 0..200)) {
            let mut now = Instant(999);
            let mut wheel = Wheel::new(now);
            let mut keys: Vec<TimerKey> = (0..8).map(|token| wheel.add(token)).collect();
            let mut oracle = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Set { timer, delay } => {
                        wheel.set(keys[timer], now.plus_nanos(delay));
                        oracle.insert(timer as u64, (now.0 + delay).div_ceil(TICK));
                    }
                    Step::Clear { timer } => {
                        wheel.clear(keys[timer]);
                        oracle.remove(&(timer as u64));
                    }
                    Step::Remove { timer } => {
                        wheel.remove(keys[timer]);
                        keys[timer] = wheel.add(timer as u64);
                        oracle.remove(&(timer as u64));
                    }
                    Step::Advance { by } => {
                        now = now.plus_nanos(by);
                        let mut fired = drain(&mut wheel, now);
                        fired.sort_unstable();
                        let tick = now.0 >> TICK_SHIFT;
                        let due: Vec<u64> =
                            oracle.iter().filter(|&(_, &at)| at <= tick).map(|(&t, _)| t).collect();
                        prop_assert_eq!(&fired, &due);
                        oracle.retain(|_, &mut at| at > tick);
                    }
                }
                if let Some(&earliest) = oracle.values().min() {
                    let next = wheel.next_deadline().expect("something is filed");
                    prop_assert!(next.0 >> TICK_SHIFT <= earliest);
                }
            }
        }
    }
}
