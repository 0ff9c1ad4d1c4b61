//! Ranges received beyond the in-order edge, and the SACK blocks that report them.
//!
//! RFC 9293 3.10.7.4 (segments with higher beginning sequence numbers SHOULD be held), RFC 2018 4
//! (order of the blocks), RFC 2883 (duplicate SACK). The bytes themselves are already in the
//! receive ring; this module has only the ranges.

use alloc::vec::Vec;

/// Most ranges held for one connection. A segment that would need one more is dropped and sent
/// again by the peer.
pub const RANGES_MAX: usize = 256;
/// Number of recently touched ranges that are remembered for the order of SACK blocks.
const RECENT_MAX: usize = 4;
/// Blocks that fit beside timestamps.
const NEWS_MAX: u8 = 3;

/// Half-open range of sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Range {
    pub start: u64,
    pub end: u64,
}

/// Out-of-order ranges: sorted, disjoint, not touching each other, all beyond the in-order edge.
#[derive(Debug, Default)]
pub struct Assembler {
    ranges: Vec<Range>,
    /// Starts of recently received segments, newest first.
    recent: [u64; RECENT_MAX],
    recent_len: u8,
    /// Ranges of `recent` that are new or have grown since the last ACK.
    news: u8,
    /// RFC 2883 4: reported once, in the first block of the next ACK.
    duplicate: Option<Range>,
    /// The number of a FIN that text is missing before: as held, and reported, as a byte (as on
    /// Linux).
    fin: Option<u64>,
    /// Number of the peer's urgent byte, while it is not in order.
    pub urgent: Option<Urgent>,
}

/// RCV.UP, and whether the byte there has arrived and been announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Urgent {
    pub at: u64,
    pub has_byte: bool,
}

/// Refusal for lack of room for another range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Assembler {
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Nothing to remember and nothing to report: the storage may go.
    pub fn is_idle(&self) -> bool {
        self.ranges.is_empty()
            && self.duplicate.is_none()
            && self.fin.is_none()
            && self.urgent.is_none()
    }

    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Would `insert` of this range succeed? Asked before the bytes are stored.
    pub fn has_room(&self, range: Range) -> bool {
        if self.ranges.len() < RANGES_MAX {
            return true;
        }
        let (first, last) = self.touching(range);
        first < last
    }

    /// Adds a range. Overlap with received ranges is reported as a duplicate.
    pub fn insert(&mut self, range: Range) -> Result<(), Full> {
        debug_assert!(range.start < range.end);
        let (first, last) = self.touching(range);
        if first == last {
            if self.ranges.len() >= RANGES_MAX {
                return Err(Full);
            }
            self.ranges.insert(first, range);
        } else {
            let old = self.ranges[first];
            self.note_overlap(range, (first, last));
            let merged = Range {
                start: old.start.min(range.start),
                end: self.ranges[last - 1].end.max(range.end),
            };
            self.ranges[first] = merged;
            self.ranges.drain(first + 1..last);
        }
        self.remember(range.start);
        Ok(())
    }

    /// RFC 2883 4.2: a segment that contains received data reports the first duplicate part.
    fn note_overlap(&mut self, range: Range, (first, last): (usize, usize)) {
        let overlap = |held: &Range| Range {
            start: range.start.max(held.start),
            end: range.end.min(held.end),
        };
        let twice = self.ranges[first..last].iter().map(overlap);
        if let Some(twice) = twice.into_iter().find(|it| it.start < it.end) {
            self.duplicate = Some(twice);
        }
    }

    /// Returns the end of all received data, a FIN included.
    pub fn highest(&self) -> Option<u64> {
        self.ranges
            .last()
            .map(|&range| self.with_fin(range).end)
            .max(self.fin.map(|at| at + 1))
    }

    /// Records that text up to `edge` has arrived in order: removes the ranges it reaches and
    /// returns the new edge.
    pub fn advance(&mut self, mut edge: u64) -> u64 {
        let text = Range {
            start: 0,
            end: edge,
        };
        self.note_overlap(text, (0, self.ranges.len().min(1)));
        let mut done = 0;
        for range in &self.ranges {
            if range.start > edge {
                break;
            }
            edge = edge.max(range.end);
            done += 1;
        }
        if done > 0 {
            self.ranges.drain(..done);
        }
        if self.urgent.is_some_and(|urgent| urgent.at < edge) {
            self.urgent = None;
        }
        edge
    }

    /// A FIN beyond the in-order edge, and beyond all ranges, has come.
    pub fn hold_fin(&mut self, at: u64) {
        self.fin = Some(at);
        self.remember(at);
    }

    /// Forgets the FIN, which was none.
    pub fn forget_fin(&mut self) {
        self.fin = None;
    }

    /// The FIN is in order now, and nothing is held any more: whether there is something left to
    /// report.
    pub fn end(&mut self) -> bool {
        self.fin = None;
        self.duplicate.is_some()
    }

    /// Records bytes that arrived a second time (below the in-order edge, or within a range).
    pub fn note_duplicate(&mut self, range: Range) {
        self.duplicate = Some(range);
    }

    /// Returns whether the ranges received since the last ACK fill its SACK blocks: the next one
    /// would push a range out unreported, and the peer would send that again (Linux:
    /// tcp_sack_new_ofo_skb).
    pub fn fills_an_ack(&self) -> bool {
        self.duplicate.is_some() || self.news >= NEWS_MAX
    }

    /// Writes the blocks of the next ACK, most interesting first, and returns how many.
    pub fn sack_blocks(&mut self, blocks: &mut [Range]) -> usize {
        self.news = 0;
        let mut n = 0;
        // RFC 2883 4: the D-SACK block comes first, then the block that contains it, then the
        // others.
        if let Some(duplicate) = self.duplicate.take()
            && let Some(slot) = blocks.get_mut(n)
        {
            *slot = duplicate;
            n += 1;
        }
        let has_duplicate = n;
        // RFC 2018 4: the first block holds the segment that triggered this ACK; then the most
        // recently reported ones.
        for &start in &self.recent[..usize::from(self.recent_len)] {
            let Some(range) = self.find(start) else {
                continue;
            };
            push_unique(blocks, &mut n, has_duplicate, range);
        }
        let fin = self.fin.and_then(|at| self.find(at));
        let ranges = self.ranges.iter().rev();
        for range in fin.into_iter().chain(ranges.map(|&r| self.with_fin(r))) {
            if n >= blocks.len() {
                break;
            }
            push_unique(blocks, &mut n, has_duplicate, range);
        }
        n
    }

    fn find(&self, seq: u64) -> Option<Range> {
        let index = self.ranges.partition_point(|r| r.end <= seq);
        let range = self.ranges.get(index).filter(|r| r.start <= seq).copied();
        match range {
            Some(range) => Some(self.with_fin(range)),
            None if self.fin == Some(seq) => {
                let last = self.ranges.last().filter(|last| last.end == seq);
                Some(Range {
                    start: last.map_or(seq, |last| last.start),
                    end: seq + 1,
                })
            }
            None => None,
        }
    }

    /// A range with the FIN that follows it.
    fn with_fin(&self, range: Range) -> Range {
        Range {
            end: range.end + u64::from(self.fin == Some(range.end)),
            ..range
        }
    }

    /// Indices of the ranges that overlap or adjoin `range`.
    fn touching(&self, range: Range) -> (usize, usize) {
        // In-order bulk after a hole extends the last range: look there first.
        if let Some(last) = self.ranges.last()
            && range.start > last.end
        {
            return (self.ranges.len(), self.ranges.len());
        }
        let first = self.ranges.partition_point(|r| r.end < range.start);
        let last = first + self.ranges[first..].partition_point(|r| r.start <= range.end);
        (first, last)
    }

    fn remember(&mut self, start: u64) {
        let len = usize::from(self.recent_len);
        if len > 0 {
            let newest = self.recent[0];
            // Same range as last time: only the position within it changed.
            if self.find(newest) == self.find(start) {
                self.news = self.news.max(1);
                return;
            }
        }
        let keep = len.min(RECENT_MAX - 1);
        self.recent.copy_within(0..keep, 1);
        self.recent[0] = start;
        self.recent_len = (keep + 1) as u8;
        self.news = self.news.saturating_add(1);
    }
}

fn push_unique(blocks: &mut [Range], n: &mut usize, from: usize, range: Range) {
    if *n < blocks.len() && !blocks[from..*n].contains(&range) {
        blocks[*n] = range;
        *n += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    fn oracle_ranges(set: &BTreeSet<u64>) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        for &byte in set {
            match ranges.last_mut() {
                Some(last) if last.end == byte => last.end += 1,
                _ => ranges.push(Range {
                    start: byte,
                    end: byte + 1,
                }),
            }
        }
        ranges
    }

    proptest! {
        #[test]
        fn ranges_equal_a_set_of_bytes(
            steps in prop::collection::vec((1u64..200, 1u64..20), 1..80),
        ) {
            let mut assembler = Assembler::default();
            let mut set = BTreeSet::new();
            let mut edge = 1u64;
            for (start, len) in steps {
                let range = Range { start: start.max(edge + 1), end: start.max(edge + 1) + len };
                assembler.insert(range).unwrap();
                set.extend(range.start..range.end);
                if start % 7 == 0 {
                    edge = assembler.advance(edge + 3);
                    let mut expected = edge.min(edge);
                    while set.contains(&expected) { expected += 1; }
                    prop_assert_eq!(edge, expected);
                    set.retain(|b| *b >= edge);
                }
                prop_assert_eq!(assembler.ranges(), &oracle_ranges(&set)[..]);
                let mut blocks = [Range { start: 0, end: 0 }; 4];
                let n = assembler.sack_blocks(&mut blocks);
                for block in &blocks[..n] {
                    prop_assert!(block.start < block.end);
                }
            }
        }
    }

    #[test]
    fn the_newest_range_is_reported_first() {
        // RFC 2018 4.
        let mut assembler = Assembler::default();
        for start in [100, 300, 500, 200] {
            assembler
                .insert(Range {
                    start,
                    end: start + 10,
                })
                .unwrap();
        }
        let mut blocks = [Range { start: 0, end: 0 }; 3];
        assert_eq!(assembler.sack_blocks(&mut blocks), 3);
        assert_eq!(blocks.map(|b| b.start), [200, 500, 300]);
    }

    #[test]
    fn a_duplicate_is_reported_once_and_first() {
        // RFC 2883 4.
        let mut assembler = Assembler::default();
        assembler
            .insert(Range {
                start: 100,
                end: 200,
            })
            .unwrap();
        assembler
            .insert(Range {
                start: 120,
                end: 130,
            })
            .unwrap();
        let mut blocks = [Range { start: 0, end: 0 }; 3];
        assert_eq!(assembler.sack_blocks(&mut blocks), 2);
        assert_eq!(
            blocks[0],
            Range {
                start: 120,
                end: 130
            }
        );
        assert_eq!(
            blocks[1],
            Range {
                start: 100,
                end: 200
            }
        );
        assert_eq!(assembler.sack_blocks(&mut blocks), 1);
    }

    #[test]
    fn ranges_are_bounded() {
        let mut assembler = Assembler::default();
        for i in 0..RANGES_MAX as u64 {
            assembler
                .insert(Range {
                    start: i * 10,
                    end: i * 10 + 1,
                })
                .unwrap();
        }
        let beyond = Range {
            start: 99_999,
            end: 100_000,
        };
        assert!(!assembler.has_room(beyond));
        assert_eq!(assembler.insert(beyond), Err(Full));
        assert!(assembler.insert(Range { start: 11, end: 12 }).is_ok());
    }
}
