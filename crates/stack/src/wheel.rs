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
}

impl Wheel {
    pub fn new(now: Instant) -> Self {
        Self {
            timers: Vec::new(),
            free: Vec::new(),
            heads: [[NONE; SLOTS]; LEVELS],
            occupied: [0; LEVELS],
            now: now.0 >> TICK_SHIFT,
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
    pub fn pop_due(&mut self, now: Instant) -> Option<(TimerKey, u64)> {
        let now = now.0 >> TICK_SHIFT;
        loop {
            // A slot is worked off at its own tick, so that what is filed meanwhile lands right.
            let tick = self.next_tick().filter(|&tick| tick <= now);
            let Some(tick) = tick else {
                self.now = self.now.max(now);
                return None;
            };
            self.now = self.now.max(tick);
            let (level, slot) = self.first_slot()?;
            let index = self.heads[level][slot];
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

    /// When `pop_due` must be called next; may be earlier than the earliest deadline.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.next_tick()
            .map(|tick| Instant(tick.saturating_mul(1 << TICK_SHIFT)))
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
