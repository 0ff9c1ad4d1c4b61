//! One-word events from one writer to one reader.
//!
//! Each side's position is in a cache line of its own; each side keeps a copy of the other's
//! position and reads it again only when the ring seems full or empty.

use crate::region::{Lines, Region};
use crate::sync::Ordering;

/// The ring is full although the protocol above it bounds its events, or the reader's position is
/// invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun;

/// Layout of a ring: its words and the two position lines.
#[derive(Clone, Copy, Debug)]
struct Shape {
    mask: u64,
}

/// The writing side.
#[derive(Debug)]
pub struct EventWriter {
    words: Lines,
    positions: Lines,
    shape: Shape,
    tail: u64,
    head_seen: u64,
}

impl EventWriter {
    /// `words` (a power of two ≥ 8) event words from `offset`; `positions` is the offset of two
    /// lines: the writer's, then the reader's.
    pub fn new(
        region: &Region,
        offset: usize,
        words: usize,
        positions: usize,
    ) -> Option<EventWriter> {
        let (lines, positions, shape) = checked(region, offset, words, positions)?;
        Some(EventWriter {
            words: lines,
            positions,
            shape,
            tail: 0,
            head_seen: 0,
        })
    }

    #[inline]
    pub fn push(&mut self, event: u64) -> Result<(), Overrun> {
        if self.tail - self.head_seen > self.shape.mask {
            self.refresh()?;
            if self.tail - self.head_seen > self.shape.mask {
                return Err(Overrun);
            }
        }
        let index = (self.tail & self.shape.mask) as usize;
        self.words.line(index / 8).words[index % 8].store(event, Ordering::Relaxed);
        self.tail += 1;
        self.positions.line(0).words[0].store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Position after the last event written.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns whether the reader has taken every event before `position`.
    pub fn has_passed(&mut self, position: u64) -> Result<bool, Overrun> {
        if self.head_seen < position {
            self.refresh()?;
        }
        Ok(self.head_seen >= position)
    }

    /// Returns whether the reader has not taken every event yet, as far as its position is valid.
    pub fn has_unread(&self) -> bool {
        self.positions.line(1).words[0].load(Ordering::Acquire) != self.tail
    }

    fn refresh(&mut self) -> Result<(), Overrun> {
        let head = self.positions.line(1).words[0].load(Ordering::Acquire);
        if head < self.head_seen || head > self.tail {
            return Err(Overrun);
        }
        self.head_seen = head;
        Ok(())
    }
}

/// The reading side.
#[derive(Debug)]
pub struct EventReader {
    words: Lines,
    positions: Lines,
    shape: Shape,
    head: u64,
    tail_seen: u64,
}

impl EventReader {
    pub fn new(
        region: &Region,
        offset: usize,
        words: usize,
        positions: usize,
    ) -> Option<EventReader> {
        let (lines, positions, shape) = checked(region, offset, words, positions)?;
        Some(EventReader {
            words: lines,
            positions,
            shape,
            head: 0,
            tail_seen: 0,
        })
    }

    #[inline]
    pub fn pop(&mut self) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        let index = (self.head & self.shape.mask) as usize;
        let event = self.words.line(index / 8).words[index % 8].load(Ordering::Relaxed);
        self.head += 1;
        self.positions.line(1).words[0].store(self.head, Ordering::Release);
        Some(event)
    }

    #[inline]
    pub fn is_empty(&mut self) -> bool {
        if self.head != self.tail_seen {
            return false;
        }
        self.tail_seen = self.positions.line(0).words[0].load(Ordering::Acquire);
        self.head == self.tail_seen
    }
}

fn checked(
    region: &Region,
    offset: usize,
    words: usize,
    positions: usize,
) -> Option<(Lines, Lines, Shape)> {
    if words < 8 || !words.is_power_of_two() {
        return None;
    }
    Some((
        Lines::new(region, offset, words / 8)?,
        Lines::new(region, positions, 2)?,
        Shape {
            mask: words as u64 - 1,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Region, EventWriter, EventReader) {
        let region = Region::create("test", 4096).unwrap();
        let writer = EventWriter::new(&region, 0, 8, 1024).unwrap();
        let reader = EventReader::new(&region, 0, 8, 1024).unwrap();
        (region, writer, reader)
    }

    #[test]
    fn events_come_out_in_order_and_a_full_ring_is_an_overrun() {
        let (_region, mut writer, mut reader) = pair();
        for lap in 0..5 {
            for i in 0..8 {
                writer.push(lap * 8 + i).unwrap();
            }
            assert_eq!(writer.push(0), Err(Overrun));
            for i in 0..8 {
                assert_eq!(reader.pop(), Some(lap * 8 + i));
            }
            assert_eq!(reader.pop(), None);
            assert_eq!(writer.has_passed(writer.tail()), Ok(true));
        }
    }

    #[test]
    fn an_impossible_reader_position_is_an_overrun() {
        let (region, mut writer, _reader) = pair();
        for i in 0..8 {
            writer.push(i).unwrap();
        }
        region.u64(1024 + 64).unwrap().store(9, Ordering::Relaxed);
        assert_eq!(writer.push(8), Err(Overrun));
        assert_eq!(writer.has_passed(1), Err(Overrun));
    }
}
