//! Byte rings: the bytes of one direction of one socket, addressed by stream offset.
//!
//! A ring is a block of its producer's arena, a power of two long, described by one word that holds
//! the block's place, its size and a generation. The byte at stream offset `o` lies at `o mod
//! size`. To grow, a new block is allocated: the live span is copied and the word replaced.

use core::num::NonZeroU32;
use core::ops::Range;

use crate::raw::{RawSlice, RawSpace};
use crate::region::{PAGE, Region};

/// Smallest ring: one page.
pub const RING_LOG2_MIN: u32 = PAGE.trailing_zeros();
/// Largest ring: 8 MiB.
pub const RING_LOG2_MAX: u32 = 23;

const GENERATION_BITS: u32 = 30;
const LOG2_BITS: u32 = 6;

/// Generation, size and place of a ring in one word; size 0 means that no ring is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingWord(pub u64);

impl RingWord {
    pub const NONE: RingWord = RingWord(0);

    /// A ring of `1 << log2` bytes at the page-aligned `offset`.
    #[inline]
    pub fn new(generation: u32, log2: u32, offset: usize) -> RingWord {
        let generation = u64::from(generation & ((1 << GENERATION_BITS) - 1));
        let place = (offset / PAGE) as u64;
        RingWord(
            generation
                | u64::from(log2) << GENERATION_BITS
                | place << (GENERATION_BITS + LOG2_BITS),
        )
    }

    /// No ring, but a generation of its own, so that a reader notices the change.
    #[inline]
    pub fn detached(generation: u32) -> RingWord {
        RingWord::new(generation, 0, 0)
    }

    #[inline]
    pub fn generation(self) -> u32 {
        (self.0 & ((1 << GENERATION_BITS) - 1)) as u32
    }

    #[inline]
    pub fn next_generation(self) -> u32 {
        (self.generation() + 1) & ((1 << GENERATION_BITS) - 1)
    }

    #[inline]
    pub fn log2(self) -> u32 {
        (self.0 >> GENERATION_BITS) as u32 & ((1 << LOG2_BITS) - 1)
    }

    #[inline]
    pub fn is_none(self) -> bool {
        self.log2() == 0
    }

    #[inline]
    pub fn offset(self) -> usize {
        (self.0 >> (GENERATION_BITS + LOG2_BITS)) as usize * PAGE
    }
}

/// A checked ring in some region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRing {
    offset: usize,
    log2: NonZeroU32,
}

impl ByteRing {
    /// Returns the ring that `word` describes if it is inside `arena` and has a permitted size.
    #[inline]
    pub fn validate(word: RingWord, arena: &Range<usize>) -> Option<ByteRing> {
        let (offset, log2) = (word.offset(), word.log2());
        if !(RING_LOG2_MIN..=RING_LOG2_MAX).contains(&log2) {
            return None;
        }
        let end = offset.checked_add(1 << log2)?;
        let log2 = NonZeroU32::new(log2)?;
        (offset >= arena.start && end <= arena.end).then_some(ByteRing { offset, log2 })
    }

    #[inline]
    pub fn word(&self, generation: u32) -> RingWord {
        RingWord::new(generation, self.log2.get(), self.offset)
    }

    #[inline]
    pub fn size(&self) -> usize {
        1 << self.log2.get()
    }

    #[inline]
    pub fn log2(&self) -> u32 {
        self.log2.get()
    }

    #[inline]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Offsets and lengths in the region of the span of `len` bytes from stream offset `at`;
    /// `len` is clipped to the size of the ring.
    #[inline]
    fn parts(&self, at: u64, len: usize) -> [(usize, usize); 2] {
        let size = self.size();
        let len = len.min(size);
        let start = at as usize & (size - 1);
        let first = len.min(size - start);
        [(self.offset + start, first), (self.offset, len - first)]
    }

    /// The span as up to two slices.
    #[inline]
    pub fn slices<'a>(&self, region: &'a Region, at: u64, len: usize) -> [RawSlice<'a>; 2] {
        let [first, second] = self.parts(at, len);
        let slice = |(offset, len)| region.slice(offset, len).unwrap_or(RawSlice::EMPTY);
        match second {
            (_, 0) => [slice(first), RawSlice::EMPTY],
            _ => [slice(first), slice(second)],
        }
    }

    /// The span as up to two pieces to write to.
    #[inline]
    pub fn spaces<'a>(&self, region: &'a Region, at: u64, len: usize) -> [RawSpace<'a>; 2] {
        let space = |(offset, len)| region.space(offset, len).unwrap_or(RawSpace::EMPTY);
        self.parts(at, len).map(|part| match part {
            (_, 0) => RawSpace::EMPTY,
            part => space(part),
        })
    }

    /// Puts bytes at stream offset `at`; bytes beyond the ring's size are not written.
    #[inline(always)]
    pub fn write(&self, region: &Region, at: u64, bytes: &[u8]) -> usize {
        let [(offset, first), (wrapped, second)] = self.parts(at, bytes.len());
        region.write_from(offset, &bytes[..first]);
        if second > 0 {
            region.write_from(wrapped, &bytes[first..first + second]);
        }
        first + second
    }

    /// Copies the span from stream offset `at` out.
    #[inline]
    pub fn read(&self, region: &Region, at: u64, out: &mut [u8]) -> usize {
        let [(offset, first), (wrapped, second)] = self.parts(at, out.len());
        region.read_into(offset, &mut out[..first]);
        if second > 0 {
            region.read_into(wrapped, &mut out[first..first + second]);
        }
        first + second
    }

    /// Copies `len` bytes of the region from the offset `place` to stream offset `at`.
    pub fn copy_in(&self, region: &Region, at: u64, place: usize, len: usize) {
        let [(offset, first), (wrapped, second)] = self.parts(at, len);
        region.copy_within(place, offset, first);
        if second > 0 {
            region.copy_within(place + first, wrapped, second);
        }
    }

    /// Copies the live span `[from, from + len)` into another ring of the same region.
    pub fn copy_to(&self, region: &Region, to: &ByteRing, from: u64, len: usize) {
        let mut at = from;
        let mut left = len.min(self.size()).min(to.size());
        while left > 0 {
            let source = at as usize & (self.size() - 1);
            let target = at as usize & (to.size() - 1);
            let run = left.min(self.size() - source).min(to.size() - target);
            region.copy_within(self.offset + source, to.offset + target, run);
            at += run as u64;
            left -= run;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip_and_invalid_ones_are_refused() {
        let word = RingWord::new(77, 16, 5 * PAGE);
        assert_eq!(
            (word.generation(), word.log2(), word.offset()),
            (77, 16, 5 * PAGE)
        );
        assert!(ByteRing::validate(word, &(0..32 * PAGE)).is_some());
        assert!(ByteRing::validate(word, &(0..20 * PAGE)).is_none());
        assert!(ByteRing::validate(word, &(6 * PAGE..64 * PAGE)).is_none());
        for raw in [u64::MAX, 0, 1 << 30, u64::MAX << 30, 63 << 30] {
            assert!(ByteRing::validate(RingWord(raw), &(0..1 << 30)).is_none());
        }
        assert!(RingWord::detached(3).is_none());
    }

    /// Against a plain vector: writes at random offsets of the window, reads, growth.
    #[test]
    fn a_ring_behaves_like_the_stream_it_stands_for() {
        let region = Region::create("test", 256 * PAGE).unwrap();
        let arena = 0..region.len();
        let mut seed = 3u64;
        let mut random = move |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 11) as usize % below
        };
        let stream: Vec<u8> = (0..300_000).map(|_| random(256) as u8).collect();
        let mut ring = ByteRing::validate(RingWord::new(0, 12, 0), &arena).unwrap();
        let (mut tail, mut head) = (0usize, 0usize);
        while tail < stream.len() {
            let room = (ring.size() - (head - tail)).min(stream.len() - head);
            let len = random(room + 1);
            assert_eq!(
                ring.write(&region, head as u64, &stream[head..head + len]),
                len
            );
            head += len;
            if random(40) == 0 && ring.log2() < 16 {
                let next = ring.log2() + 1;
                let word = RingWord::new(0, next, (1 << next) as usize);
                let larger = ByteRing::validate(word, &arena).unwrap();
                ring.copy_to(&region, &larger, tail as u64, head - tail);
                ring = larger;
            }
            let mut out = vec![0; random(head - tail + 1)];
            assert_eq!(ring.read(&region, tail as u64, &mut out), out.len());
            assert_eq!(out, stream[tail..tail + out.len()]);
            let slices = ring.slices(&region, tail as u64, out.len());
            assert_eq!(slices[0].len() + slices[1].len(), out.len());
            tail += out.len();
        }
    }
}
