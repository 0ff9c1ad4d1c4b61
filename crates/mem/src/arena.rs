//! A buddy allocator of ring blocks over part of a region; its metadata is private memory.
//!
//! Free blocks are reused last-in first-out, so that a busy program keeps touching the same warm
//! pages. Blocks are whole pages; the largest class is [`RING_LOG2_MAX`].

use core::ops::Range;

use crate::bytering::{ByteRing, RING_LOG2_MAX, RING_LOG2_MIN, RingWord};

const CLASSES: usize = (RING_LOG2_MAX - RING_LOG2_MIN + 1) as usize;

/// The allocator of one range, used by one side only.
#[derive(Debug)]
pub struct Arena {
    range: Range<usize>,
    /// Per class: free blocks by index in units of the class, newest last. May hold stale
    /// entries of blocks merged since; `is_free` decides.
    lists: [Vec<u32>; CLASSES],
    is_free: [Vec<u64>; CLASSES],
    /// Top-class blocks never touched so far start here, in units of the top class.
    untouched: u32,
    top_blocks: u32,
    in_use: usize,
}

impl Arena {
    /// `range.start` is a multiple of the page size; the range is used in whole top-class blocks.
    pub fn new(range: Range<usize>) -> Arena {
        let top_blocks = (range.len() >> RING_LOG2_MAX) as u32;
        let is_free = core::array::from_fn(|class| {
            let blocks = (top_blocks as usize) << (CLASSES - 1 - class);
            vec![0; blocks.div_ceil(64)]
        });
        Arena {
            range,
            lists: core::array::from_fn(|_| Vec::new()),
            is_free,
            untouched: 0,
            top_blocks,
            in_use: 0,
        }
    }

    /// The bytes this arena cuts blocks from.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Bytes handed out.
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// A ring of at least `need` bytes; `None` when there is no such class or no room.
    pub fn allocate(&mut self, need: usize) -> Option<ByteRing> {
        let class = (class_for(need)? - RING_LOG2_MIN) as usize;
        let index = self.take(class)?;
        self.in_use += block_size(class);
        let offset = self.range.start + index as usize * block_size(class);
        let word = RingWord::new(0, class as u32 + RING_LOG2_MIN, offset);
        ByteRing::validate(word, &self.range)
    }

    /// Takes a ring back that this arena allocated.
    pub fn free(&mut self, ring: ByteRing) {
        let mut class = (ring.log2() - RING_LOG2_MIN) as usize;
        self.in_use = self.in_use.saturating_sub(ring.size());
        let mut index = ((ring.offset() - self.range.start) / block_size(class)) as u32;
        // Small blocks stay split: merging them only to split them again for the next request
        // would cost the hot path. Larger ones merge so that large rings find room.
        while class + 1 < CLASSES && class >= 4 && self.is_marked(class, index ^ 1) {
            self.mark(class, index ^ 1, false);
            index >>= 1;
            class += 1;
        }
        self.put(class, index);
    }

    fn take(&mut self, class: usize) -> Option<u32> {
        while let Some(index) = self.lists[class].pop() {
            if self.is_marked(class, index) {
                self.mark(class, index, false);
                return Some(index);
            }
        }
        if class == CLASSES - 1 {
            if self.untouched < self.top_blocks {
                self.untouched += 1;
                return Some(self.untouched - 1);
            }
            return self.merge_small().then(|| self.take(class)).flatten();
        }
        let parent = self.take(class + 1)?;
        self.put(class, parent * 2 + 1);
        Some(parent * 2)
    }

    /// Under pressure: merges the small classes bottom up. Returns whether a top block became free.
    fn merge_small(&mut self) -> bool {
        for class in 0..CLASSES - 1 {
            for index in core::mem::take(&mut self.lists[class]) {
                let both = self.is_marked(class, index) && self.is_marked(class, index ^ 1);
                if both {
                    self.mark(class, index, false);
                    self.mark(class, index ^ 1, false);
                    self.put(class + 1, index >> 1);
                } else if self.is_marked(class, index) {
                    self.lists[class].push(index);
                }
            }
            let is_free = &self.is_free[class];
            self.lists[class].retain(|&i| is_free[i as usize / 64] >> (i % 64) & 1 == 1);
        }
        !self.lists[CLASSES - 1].is_empty()
    }

    fn put(&mut self, class: usize, index: u32) {
        self.mark(class, index, true);
        self.lists[class].push(index);
    }

    fn is_marked(&self, class: usize, index: u32) -> bool {
        self.is_free[class]
            .get(index as usize / 64)
            .is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    fn mark(&mut self, class: usize, index: u32, free: bool) {
        let word = &mut self.is_free[class][index as usize / 64];
        let bit = 1 << (index % 64);
        if free {
            *word |= bit;
        } else {
            *word &= !bit;
        }
    }
}

fn block_size(class: usize) -> usize {
    1 << (RING_LOG2_MIN as usize + class)
}

/// The size class (log2) of a ring that holds `need` bytes; `None` when no class is large enough.
#[inline]
fn class_for(need: usize) -> Option<u32> {
    let log2 = need.max(1).next_power_of_two().trailing_zeros();
    let log2 = log2.max(RING_LOG2_MIN);
    (log2 <= RING_LOG2_MAX).then_some(log2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn rings_never_overlap_and_all_memory_is_freed() {
        let start = 3 * 4096;
        let mut arena = Arena::new(start..start + (32 << 20));
        let mut live: BTreeMap<usize, ByteRing> = BTreeMap::new();
        let mut seed = 11u64;
        let mut random = move |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 11) as usize % below
        };
        for _ in 0..50_000 {
            if random(5) < 3 {
                let need = 1 << random(24);
                let Some(ring) = arena.allocate(need) else {
                    continue;
                };
                assert!(ring.size() >= need && ring.offset() >= start);
                assert!(ring.offset() + ring.size() <= start + (32 << 20));
                if let Some((_, before)) = live.range(..=ring.offset()).next_back() {
                    assert!(before.offset() + before.size() <= ring.offset());
                }
                if let Some((_, after)) = live.range(ring.offset()..).next() {
                    assert!(ring.offset() + ring.size() <= after.offset());
                }
                live.insert(ring.offset(), ring);
            } else if !live.is_empty() {
                let key = *live.keys().nth(random(live.len())).unwrap();
                arena.free(live.remove(&key).unwrap());
            }
        }
        for (_, ring) in live {
            arena.free(ring);
        }
        assert_eq!(arena.in_use(), 0);
        for _ in 0..4 {
            assert_eq!(arena.allocate(8 << 20).unwrap().size(), 8 << 20);
        }
        assert!(arena.allocate(1).is_none());
    }
}
