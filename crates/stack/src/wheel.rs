//! A hierarchical timer wheel whose owners keep their deadlines.
//!
//! The wheel stores only a slot for each timer, in twelve bytes: one that fires at the deadline or
//! before. Moving a deadline later, which every ACK does, does not touch the wheel: when the slot
//! fires, the owner is asked and files the timer again.
//!
//! Resolution is one tick of 2¹⁸ ns (262 µs); a timer fires up to one tick late, and if it fires
//! early the owner files it again.

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

/// Neighbours in the list of a slot, and which slot it is.
#[derive(Clone, Copy, Debug)]
struct Timer {
    prev: u32,
    next: u32,
    list: u16,
}

const _: () = assert!(size_of::<Timer>() == 12);

const IDLE: Timer = Timer {
    prev: NONE,
    next: NONE,
    list: UNFILED,
};

/// Timers, named by the indices that their owners have in their own table.
#[derive(Clone, Debug)]
pub struct Wheel {
    timers: Vec<Timer>,
    heads: [[u32; SLOTS]; LEVELS],
    /// One bit per non-empty slot.
    occupied: [u64; LEVELS],
    /// The last tick that was worked off completely.
    now: u64,
    /// No slot comes up before this tick; `u64::MAX` = all are empty. It may be that of a slot that
    /// was emptied since.
    earliest: u64,
}

impl Wheel {
    /// Bytes of a timer.
    pub const TIMER_BYTES: usize = size_of::<Timer>();

    pub fn new(now: Instant) -> Self {
        Self {
            timers: Vec::new(),
            heads: [[NONE; SLOTS]; LEVELS],
            occupied: [0; LEVELS],
            now: now.0 >> TICK_SHIFT,
            earliest: u64::MAX,
        }
    }

    /// Makes room for the timer of this index, which is not running.
    #[inline]
    pub fn cover(&mut self, index: u32) {
        let len = index as usize + 1;
        if self.timers.len() < len {
            self.timers.resize(len, IDLE);
        }
    }

    /// Stops a timer.
    #[inline]
    pub fn remove(&mut self, index: u32) {
        self.unlink(index);
    }

    /// Sees to it that the timer comes up at this time; it may come up before.
    #[inline]
    pub fn set(&mut self, index: u32, at: Instant) {
        let tick = at.0.div_ceil(1 << TICK_SHIFT);
        let list = self.timers[index as usize].list;
        if list == UNFILED || tick < self.tick_of(list) {
            self.file(index, tick);
        }
    }

    /// Returns the next timer whose slot has fired and that is filed nowhere now: its owner checks
    /// whether it is due, and sets it again if it is to run on. Call until `None`.
    #[inline]
    pub fn pop(&mut self, now: Instant) -> Option<u32> {
        let now = now.0 >> TICK_SHIFT;
        if now < self.earliest {
            self.now = self.now.max(now);
            return None;
        }
        self.pop_slot(now)
    }

    fn pop_slot(&mut self, now: u64) -> Option<u32> {
        // A slot is processed at its own tick, so that timers filed meanwhile land right.
        self.earliest = self.next_tick().unwrap_or(u64::MAX);
        if self.earliest > now {
            self.now = self.now.max(now);
            return None;
        }
        self.now = self.now.max(self.earliest);
        let (level, mut slot) = self.first_slot()?;
        if level > 0 {
            slot = self.bring_down(level, slot);
        }
        let index = self.heads[0][slot];
        self.unlink(index);
        Some(index)
    }

    /// Moves the timers of a slot above, whose time has begun, to the empty lowest level all
    /// together, so that none is overtaken by timers that are filed again. Returns the slot.
    #[cold]
    fn bring_down(&mut self, level: usize, slot: usize) -> usize {
        let low = self.now as usize & (SLOTS - 1);
        let head = core::mem::replace(&mut self.heads[level][slot], NONE);
        self.occupied[level] &= !(1 << slot);
        let mut index = head;
        while index != NONE {
            let timer = &mut self.timers[index as usize];
            timer.list = list_of(0, low);
            index = timer.next;
        }
        self.heads[0][low] = head;
        self.occupied[0] |= 1 << low;
        low
    }

    /// Returns whether `pop` may find something.
    #[inline]
    pub fn has_due(&self, now: Instant) -> bool {
        self.earliest <= now.0 >> TICK_SHIFT
    }

    /// Returns when `pop` must be called next; may be earlier than the earliest deadline. It is
    /// computed here, before a sleep, so that no thread wakes for an emptied slot.
    pub fn next_deadline(&self) -> Option<Instant> {
        let tick = self.next_tick()?;
        Some(Instant(tick.saturating_mul(1 << TICK_SHIFT)))
    }

    /// Appends the timers that come up until then. They stay where they are.
    pub fn find_filed(&self, until: Instant, found: &mut Vec<u32>) {
        let until = until.0 >> TICK_SHIFT;
        for (level, heads) in self.heads.iter().enumerate() {
            let mut occupied = self.occupied[level];
            while occupied != 0 {
                let slot = occupied.trailing_zeros() as usize;
                occupied &= occupied - 1;
                let is_soon = self.tick_of(list_of(level, slot)) <= until;
                let mut index = if is_soon { heads[slot] } else { NONE };
                while index != NONE {
                    found.push(index);
                    index = self.timers[index as usize].next;
                }
            }
        }
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
        Some(self.tick_of(list_of(level, slot)).max(self.now))
    }

    /// Time at which a slot comes up: the next time after now that the tick's digit at its level is
    /// its number.
    #[inline]
    fn tick_of(&self, list: u16) -> u64 {
        let shift = u32::from(list) / SLOTS as u32 * SLOT_BITS;
        let position = self.now >> shift;
        let ahead = u64::from(list).wrapping_sub(position) & (SLOTS as u64 - 1);
        (position + ahead) << shift
    }

    fn file(&mut self, index: u32, tick: u64) {
        self.unlink(index);
        let now = self.now;
        let tick = tick.max(now);
        // The highest bit in which the tick differs from now names the level.
        let level = ((63 - ((tick ^ now) | 1).leading_zeros()) / SLOT_BITS).min(LEVELS as u32 - 1);
        let shift = level * SLOT_BITS;
        let slot = (tick >> shift) as usize & (SLOTS - 1);
        let level = level as usize;
        self.earliest = self.earliest.min((tick >> shift << shift).max(now));
        let next = self.heads[level][slot];
        self.timers[index as usize] = Timer {
            prev: NONE,
            next,
            list: list_of(level, slot),
        };
        if next != NONE {
            self.timers[next as usize].prev = index;
        }
        self.heads[level][slot] = index;
        self.occupied[level] |= 1 << slot;
    }

    fn unlink(&mut self, index: u32) {
        let timer = &mut self.timers[index as usize];
        let Timer { prev, next, list } = *timer;
        if list == UNFILED {
            return;
        }
        timer.list = UNFILED;
        if next != NONE {
            self.timers[next as usize].prev = prev;
        }
        if prev != NONE {
            self.timers[prev as usize].next = next;
            return;
        }
        let (level, slot) = (list as usize / SLOTS, list as usize % SLOTS);
        self.heads[level][slot] = next;
        if next == NONE {
            self.occupied[level] &= !(1 << slot);
        }
    }
}

#[inline]
fn list_of(level: usize, slot: usize) -> u16 {
    (level * SLOTS + slot) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    const TICK: u64 = 1 << TICK_SHIFT;

    /// An owner of timers as connections are: deadlines are checked when a slot fires.
    struct Owner {
        wheel: Wheel,
        deadlines: BTreeMap<u32, Instant>,
    }

    impl Owner {
        fn new(now: Instant) -> Owner {
            let mut wheel = Wheel::new(now);
            wheel.cover(7);
            Owner {
                wheel,
                deadlines: BTreeMap::new(),
            }
        }

        fn set(&mut self, index: u32, at: Instant) {
            self.deadlines.insert(index, at);
            self.wheel.set(index, at);
        }

        fn drain(&mut self, now: Instant) -> Vec<u32> {
            let mut fired = Vec::new();
            while let Some(index) = self.wheel.pop(now) {
                match self.deadlines.get(&index) {
                    Some(&at) if at <= now => {
                        self.deadlines.remove(&index);
                        fired.push(index);
                    }
                    Some(&at) => self.wheel.set(index, at),
                    None => {}
                }
            }
            fired
        }
    }

    #[test]
    fn a_timer_fires_within_a_tick_and_not_before() {
        for delay in [
            1,
            TICK,
            63 * TICK,
            64 * TICK,
            65 * TICK,
            4096 * TICK,
            7_200_000_000_000,
        ] {
            let mut owner = Owner::new(Instant(12_345));
            let at = 12_345 + delay;
            owner.set(7, Instant(at));
            assert_eq!(owner.drain(Instant(at - 1)), [], "delay {delay}");
            assert_eq!(owner.drain(Instant(at + TICK)), [7], "delay {delay}");
            assert_eq!(owner.drain(Instant(at + 1000 * TICK)), []);
        }
    }

    #[test]
    fn moving_a_deadline_later_does_not_relink() {
        let mut owner = Owner::new(Instant::ZERO);
        owner.set(1, Instant(100 * TICK));
        let list = owner.wheel.timers[1].list;
        owner.set(1, Instant(5000 * TICK));
        assert_eq!(owner.wheel.timers[1].list, list);
        assert_eq!(owner.drain(Instant(4999 * TICK)), []);
        assert_eq!(owner.drain(Instant(5000 * TICK)), [1]);
    }

    #[test]
    fn a_stopped_or_removed_timer_is_silent() {
        let mut owner = Owner::new(Instant::ZERO);
        owner.set(1, Instant(10 * TICK));
        owner.set(2, Instant(10 * TICK));
        owner.deadlines.remove(&1);
        owner.wheel.remove(2);
        assert_eq!(owner.drain(Instant(1000 * TICK)), []);
        assert_eq!(owner.wheel.next_deadline(), None);
        owner.set(2, Instant(1010 * TICK));
        owner.wheel.remove(2);
        assert_eq!(
            owner.wheel.next_deadline(),
            None,
            "nobody wakes for nothing"
        );
    }

    #[test]
    fn a_cascaded_timer_does_not_fire_before_earlier_ones() {
        let mut owner = Owner::new(Instant::ZERO);
        owner.set(0, Instant(5000 * TICK));
        owner.set(1, Instant(5002 * TICK));
        assert_eq!(owner.drain(Instant(5001 * TICK)), [0]);
        assert_eq!(owner.drain(Instant(5002 * TICK)), [1]);
    }

    #[test]
    fn sleeping_until_each_deadline_takes_few_steps() {
        let mut owner = Owner::new(Instant::ZERO);
        owner.set(1, Instant(7_200_000_000_000));
        let mut steps = 0;
        let mut now = Instant::ZERO;
        while let Some(at) = owner.wheel.next_deadline() {
            assert!(at > now);
            now = at;
            steps += 1;
            if !owner.drain(now).is_empty() {
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
        /// The oracle keeps every deadline and checks all of them.
        #[test]
        fn behaves_like_a_table_of_deadlines(steps in proptest::collection::vec(step(), 0..200)) {
            let mut now = Instant(999);
            let mut owner = Owner::new(now);
            for step in steps {
                match step {
                    Step::Set { timer, delay } => owner.set(timer as u32, now.plus_nanos(delay)),
                    Step::Clear { timer } => {
                        owner.deadlines.remove(&(timer as u32));
                    }
                    Step::Remove { timer } => {
                        owner.wheel.remove(timer as u32);
                        owner.deadlines.remove(&(timer as u32));
                    }
                    Step::Advance { by } => {
                        now = now.plus_nanos(by);
                        // Timers between the last whole tick and now may still fire.
                        let tick = Instant(now.0 >> TICK_SHIFT << TICK_SHIFT);
                        let set = owner.deadlines.iter();
                        let due: Vec<u32> =
                            set.filter(|&(_, &at)| at <= tick).map(|(&t, _)| t).collect();
                        let fired = owner.drain(now);
                        for timer in due {
                            prop_assert!(fired.contains(&timer));
                        }
                        prop_assert!(owner.deadlines.values().all(|&at| at > tick));
                    }
                }
                if let Some(earliest) = owner.deadlines.values().min() {
                    let next = owner.wheel.next_deadline().expect("something is filed");
                    prop_assert!(next.0 >> TICK_SHIFT <= earliest.0.div_ceil(TICK));
                }
            }
        }
    }
}
