//! Counts of the flows that filter rules with `limit` have let in, of all engines of a device.
//!
//! A table of words in shared memory: the hash of what is counted, the slot, the number of flows.
//! Only a slot's engine changes its counts, and the keeper removes them when the engine has ended,
//! so that a killed engine leaves none. Every word is checked where it is read.

use std::sync::atomic::{AtomicU64, Ordering};

use slipstack_mem::Region;
use slipstack_stack::filter::SharedLimits;

/// A hash chooses a group of words, and is only looked for there.
const GROUPS: usize = 1024;
const GROUP: usize = 64;
/// Set once a word has been written.
const USED_AT: usize = 0;
const WORDS_AT: usize = 64;

/// A word: hash in the upper bits, then slot, then count; free if the count is 0.
const COUNT_BITS: u32 = 16;
const SLOT_BITS: u32 = 8;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// The table, for the engine of one slot.
#[derive(Debug)]
pub struct LimitTable {
    region: Region,
    at: usize,
    slot: u16,
}

impl LimitTable {
    /// Bytes of the table.
    pub const LEN: usize = (WORDS_AT + GROUPS * GROUP * 8).next_multiple_of(slipstack_mem::PAGE);

    /// The table that begins at `at`.
    pub fn new(region: Region, at: usize, slot: u16) -> LimitTable {
        LimitTable { region, at, slot }
    }

    fn words(&self, first: usize, count: usize) -> impl Iterator<Item = &AtomicU64> {
        let word = move |index| self.region.u64(self.at + WORDS_AT + index * 8);
        (first..first + count).filter_map(word)
    }

    fn group(&self, key: u64) -> impl Iterator<Item = &AtomicU64> {
        self.words(key as usize % GROUPS * GROUP, GROUP)
    }

    /// The word of this slot's flows with a key, without the count.
    fn name(&self, key: u64) -> u64 {
        hash_of(key) | u64::from(self.slot) << COUNT_BITS
    }

    fn is_used(&self) -> bool {
        let used = self.region.u64(self.at + USED_AT);
        used.is_some_and(|used| used.load(Ordering::Acquire) != 0)
    }

    /// Adds one to this slot's word, or takes a free one. Returns `false` if there is none.
    fn count_one(&self, key: u64) -> bool {
        let name = self.name(key);
        let own = |word: &&AtomicU64| {
            let value = word.load(Ordering::Acquire);
            value & !COUNT_MASK == name && value & COUNT_MASK != 0
        };
        if let Some(word) = self.group(key).find(own) {
            let is_full = word.load(Ordering::Acquire) & COUNT_MASK == COUNT_MASK;
            if !is_full {
                word.fetch_add(1, Ordering::SeqCst);
            }
            return !is_full;
        }
        if let Some(used) = self.region.u64(self.at + USED_AT) {
            used.store(1, Ordering::Release);
        }
        self.group(key).any(|word| {
            let value = word.load(Ordering::Acquire);
            let (set, got) = (Ordering::SeqCst, Ordering::Relaxed);
            value & COUNT_MASK == 0 && word.compare_exchange(value, name | 1, set, got).is_ok()
        })
    }
}

fn hash_of(key: u64) -> u64 {
    key & !((1 << (COUNT_BITS + SLOT_BITS)) - 1)
}

impl SharedLimits for LimitTable {
    fn enter(&self, key: u64) -> Option<u32> {
        if !self.count_one(key) {
            return None;
        }
        let hash = hash_of(key);
        let mut all = 0;
        for word in self.group(key) {
            let value = word.load(Ordering::SeqCst);
            if hash_of(value) == hash {
                all += (value & COUNT_MASK) as u32;
            }
        }
        Some(all)
    }

    fn leave(&self, key: u64) {
        let name = self.name(key);
        for word in self.group(key) {
            let value = word.load(Ordering::Acquire);
            if value & !COUNT_MASK == name && value & COUNT_MASK != 0 {
                word.fetch_sub(1, Ordering::SeqCst);
                return;
            }
        }
    }

    fn clear(&self) {
        if !self.is_used() {
            return;
        }
        let slot = u64::from(self.slot);
        for word in self.words(0, GROUPS * GROUP) {
            let value = word.load(Ordering::Acquire);
            if value & COUNT_MASK != 0 && value >> COUNT_BITS & ((1 << SLOT_BITS) - 1) == slot {
                word.store(0, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> [LimitTable; 3] {
        let region = Region::create("limits", LimitTable::LEN).unwrap();
        [0, 1, 127].map(|slot| LimitTable::new(region.clone(), 0, slot))
    }

    #[test]
    fn flows_of_all_slots_are_counted_together() {
        let [one, two, three] = tables();
        let (key, other) = (0x1234_5678_9abc_def0, 0x4321_5678_9abc_def0);
        assert_eq!(one.enter(key), Some(1));
        assert_eq!(one.enter(key), Some(2));
        assert_eq!(two.enter(key), Some(3));
        assert_eq!(
            three.enter(other),
            Some(1),
            "another hash in the same group"
        );
        one.leave(key);
        assert_eq!(three.enter(key), Some(3));
        two.leave(other);
        assert_eq!(
            three.enter(other),
            Some(2),
            "what a slot has not counted stays"
        );
    }

    #[test]
    fn the_counts_of_a_slot_end_with_its_engine() {
        let [one, two, _] = tables();
        for key in (0..2000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            assert!(one.enter(key).is_some());
            two.enter(key);
        }
        one.clear();
        assert_eq!(two.enter(0), Some(2));
    }

    #[test]
    fn a_full_group_refuses_and_its_words_are_used_again() {
        let [one, two, _] = tables();
        let key = |n: u64| n << 24;
        for n in 0..GROUP as u64 {
            assert_eq!(one.enter(key(n)), Some(1));
        }
        assert_eq!(two.enter(key(99)), None);
        one.leave(key(5));
        assert_eq!(two.enter(key(99)), Some(1));
    }
}
