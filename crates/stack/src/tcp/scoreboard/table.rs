//! Records by sequence, in chunks, so that an insertion among many thousands moves only a few
//! dozen.

use alloc::vec::Vec;

use super::Record;

/// Most records of one chunk, as many as its set of lost ones has bits; two neighbours with fewer
/// than half of it become one.
const CHUNK_MAX: usize = u64::BITS as usize;
const HALF: usize = CHUNK_MAX / 2;
/// Records that are examined before a search begins.
const NEAR: usize = 4;

#[derive(Debug, Default)]
struct Chunk {
    /// Never empty.
    records: Vec<Record>,
    /// The lost records: a bit for each.
    lost: u64,
}

/// Gapless, each beginning where the one before ends.
#[derive(Debug, Default)]
pub struct Table {
    chunks: Vec<Chunk>,
    /// End of each chunk.
    ends: Vec<u64>,
    len: usize,
    /// No chunk before this one has a lost record.
    lost_from: usize,
}

/// Position of a record, until something is inserted or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    chunk: usize,
    at: usize,
}

impl Table {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Record> {
        self.chunks.iter().flat_map(|chunk| &chunk.records)
    }

    /// The first record.
    pub fn first(&self) -> Option<Cursor> {
        let first = Cursor { chunk: 0, at: 0 };
        (!self.is_empty()).then_some(first)
    }

    /// The record of byte `seq`, or the first if that is beyond it.
    pub fn find(&self, seq: u64) -> Option<Cursor> {
        let chunk = self.ends.partition_point(|end| *end <= seq);
        let records = &self.chunks.get(chunk)?.records;
        let at = records.partition_point(|r| r.end <= seq);
        Some(Cursor { chunk, at })
    }

    /// As [`Self::find`], for a byte that is likely to be a few records behind `near`.
    #[inline]
    pub fn find_near(&self, near: Option<Cursor>, seq: u64) -> Option<Cursor> {
        let mut next = near;
        for _ in 0..NEAR {
            let Some(place) = next else { break };
            let Some(record) = self.get(place).filter(|r| r.start <= seq) else {
                break;
            };
            if seq < record.end {
                return next;
            }
            next = self.next(place);
        }
        self.find(seq)
    }

    #[inline]
    pub fn get(&self, place: Cursor) -> Option<&Record> {
        self.chunks.get(place.chunk)?.records.get(place.at)
    }

    #[inline]
    pub fn next(&self, place: Cursor) -> Option<Cursor> {
        let Cursor { chunk, at } = place;
        if at + 1 < self.chunks.get(chunk)?.records.len() {
            return Some(Cursor { chunk, at: at + 1 });
        }
        let next = Cursor {
            chunk: chunk + 1,
            at: 0,
        };
        (next.chunk < self.chunks.len()).then_some(next)
    }

    #[inline]
    pub fn before(&self, place: Cursor) -> Option<Cursor> {
        let Cursor { chunk, at } = place;
        if at > 0 {
            return Some(Cursor { chunk, at: at - 1 });
        }
        let chunk = chunk.checked_sub(1)?;
        let at = self.chunks.get(chunk)?.records.len().checked_sub(1)?;
        Some(Cursor { chunk, at })
    }

    /// Up to `count` records behind `place`, those of its chunk and the next.
    pub fn after(&self, place: Cursor, count: usize) -> impl DoubleEndedIterator<Item = &Record> {
        let records = |chunk: usize| self.chunks.get(chunk).map_or(&[][..], |c| &c.records);
        let own = records(place.chunk).get(place.at + 1..).unwrap_or(&[]);
        let own = &own[..own.len().min(count)];
        let next = records(place.chunk + 1);
        let next = &next[..next.len().min(count - own.len())];
        own.iter().chain(next)
    }

    /// Changes a record, but not where it ends. It may cease to be lost.
    #[inline]
    pub fn change(&mut self, place: Cursor, how: impl FnOnce(&mut Record)) {
        let Some(chunk) = self.chunks.get_mut(place.chunk) else {
            return;
        };
        let Some(record) = chunk.records.get_mut(place.at) else {
            return;
        };
        how(record);
        let is_lost = record.is_lost;
        chunk.note_lost(place.at, is_lost);
        debug_assert!(!is_lost || self.lost_from <= place.chunk);
    }

    /// Another one takes its place.
    #[inline]
    pub fn replace(&mut self, place: Cursor, record: Record) {
        self.change(place, |old| *old = record);
        self.note_end(place.chunk);
    }

    /// Marks a record as lost. Gives its length.
    #[inline]
    pub fn condemn(&mut self, place: Cursor) -> u64 {
        let Some(chunk) = self.chunks.get_mut(place.chunk) else {
            return 0;
        };
        let Some(record) = chunk.records.get_mut(place.at) else {
            return 0;
        };
        record.is_lost = true;
        let len = record.len();
        chunk.lost |= 1 << place.at;
        self.lost_from = self.lost_from.min(place.chunk);
        len
    }

    /// Changes all of them, or all in those chunks in which some are lost.
    pub fn change_all(&mut self, only_lost: bool, mut how: impl FnMut(&mut Record)) {
        for chunk in &mut self.chunks {
            if only_lost && chunk.lost == 0 {
                continue;
            }
            chunk.records.iter_mut().for_each(&mut how);
            chunk.lost = chunk.count_lost();
        }
        self.lost_from = 0;
    }

    /// Places records behind all others; none of them is lost.
    pub fn extend(&mut self, mut records: &[Record]) {
        while !records.is_empty() {
            let last = self.chunks.last();
            if last.is_none_or(|c| c.records.len() >= CHUNK_MAX) {
                self.chunks.push(Chunk::default());
                self.ends.push(0);
            }
            let last = self.chunks.len() - 1;
            let chunk = &mut self.chunks[last];
            let room = CHUNK_MAX - chunk.records.len();
            let (now, later) = records.split_at(room.min(records.len()));
            chunk.records.extend_from_slice(now);
            self.len += now.len();
            records = later;
            self.note_end(last);
        }
    }

    /// Places a record behind another one, which ends where it begins, and gives where.
    pub fn insert_after(&mut self, place: Cursor, record: Record) -> Cursor {
        let Cursor { mut chunk, mut at } = place;
        if self.chunks[chunk].records.len() >= CHUNK_MAX {
            self.halve(chunk);
            if at >= HALF {
                chunk += 1;
                at -= HALF;
            }
        }
        let grown = &mut self.chunks[chunk];
        grown.records[at].end = record.start;
        at += 1;
        grown.records.insert(at, record);
        let below = grown.lost & low_bits(at);
        grown.lost = below | (grown.lost ^ below) << 1;
        grown.note_lost(at, record.is_lost);
        if record.is_lost {
            self.lost_from = self.lost_from.min(chunk);
        }
        self.len += 1;
        self.note_end(chunk);
        Cursor { chunk, at }
    }

    fn halve(&mut self, chunk: usize) {
        let old = &mut self.chunks[chunk];
        let mut records = Vec::with_capacity(CHUNK_MAX);
        records.extend(old.records.drain(HALF..));
        let lost = old.lost >> HALF;
        old.lost &= low_bits(HALF);
        self.chunks.insert(chunk + 1, Chunk { records, lost });
        self.ends.insert(chunk, 0);
        self.note_end(chunk);
    }

    pub fn remove(&mut self, place: Cursor) {
        let Cursor { chunk, at } = place;
        let Some(shorter) = self.chunks.get_mut(chunk) else {
            return;
        };
        if at >= shorter.records.len() {
            return;
        }
        shorter.records.remove(at);
        let below = shorter.lost & low_bits(at);
        shorter.lost = below | shorter.lost >> 1 & !low_bits(at);
        self.len -= 1;
        self.note_end(chunk);
        self.shrink(chunk);
    }

    /// Removes records that end at `seq` or before.
    pub fn remove_until(&mut self, seq: u64, mut each: impl FnMut(&Record)) {
        let gone = self.ends.partition_point(|end| *end <= seq);
        for chunk in self.chunks.drain(..gone) {
            chunk.records.iter().for_each(&mut each);
            self.len -= chunk.records.len();
        }
        self.ends.drain(..gone);
        self.lost_from = self.lost_from.saturating_sub(gone);
        let Some(first) = self.chunks.first_mut() else {
            return;
        };
        let gone = first.records.partition_point(|r| r.end <= seq);
        first.records.drain(..gone).for_each(|r| each(&r));
        first.lost >>= gone;
        self.len -= gone;
        self.shrink(0);
    }

    /// After a removal: no chunk is empty, and small neighbours are one.
    fn shrink(&mut self, chunk: usize) {
        let len = |i: usize| self.chunks.get(i).map_or(CHUNK_MAX, |c| c.records.len());
        let (own, next) = (len(chunk), len(chunk + 1));
        if own == 0 {
            self.drop_chunk(chunk);
        } else if own + next < HALF {
            let mut next = self.drop_chunk(chunk + 1);
            let grown = &mut self.chunks[chunk];
            grown.records.append(&mut next.records);
            grown.lost |= next.lost << own;
            self.note_end(chunk);
        }
    }

    fn drop_chunk(&mut self, chunk: usize) -> Chunk {
        if self.lost_from >= chunk {
            self.lost_from = self.lost_from.saturating_sub(1);
        }
        self.ends.remove(chunk);
        self.chunks.remove(chunk)
    }

    #[inline]
    fn note_end(&mut self, chunk: usize) {
        if let Some(last) = self.chunks[chunk].records.last() {
            self.ends[chunk] = last.end;
        }
    }

    /// The first lost record.
    pub fn find_lost(&mut self) -> Option<Cursor> {
        let later = &self.chunks[self.lost_from..];
        let Some(ahead) = later.iter().position(|c| c.lost != 0) else {
            self.lost_from = self.chunks.len();
            return None;
        };
        let chunk = self.lost_from + ahead;
        self.lost_from = chunk;
        let at = self.chunks[chunk].lost.trailing_zeros() as usize;
        Some(Cursor { chunk, at })
    }

    /// The numbers kept beside the records are right.
    pub fn is_sound(&self) -> bool {
        let len: usize = self.chunks.iter().map(|c| c.records.len()).sum();
        let is_chunk_sound = |(c, end): (&Chunk, &u64)| {
            c.lost == c.count_lost() && c.records.last().is_some_and(|r| r.end == *end)
        };
        let mut without = self.chunks.iter().take(self.lost_from);
        len == self.len
            && self.ends.len() == self.chunks.len()
            && self.chunks.iter().zip(&self.ends).all(is_chunk_sound)
            && without.all(|c| c.lost == 0)
    }
}

impl Chunk {
    fn count_lost(&self) -> u64 {
        let lost = self.records.iter().enumerate();
        lost.fold(0, |set, (at, record)| set | u64::from(record.is_lost) << at)
    }

    #[inline]
    fn note_lost(&mut self, at: usize, is_lost: bool) {
        self.lost = self.lost & !(1 << at) | u64::from(is_lost) << at;
    }
}

/// The lowest `count` bits, fewer than all.
fn low_bits(count: usize) -> u64 {
    (1 << count) - 1
}
