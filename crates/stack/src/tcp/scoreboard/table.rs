//! Records by sequence, in chunks: a cut in the middle of many thousands moves a hundred.

use alloc::collections::VecDeque;

use super::Record;

/// Most records of one chunk; two neighbours with fewer than half of it become one.
const CHUNK_MAX: usize = 128;

#[derive(Debug, Default)]
struct Chunk {
    /// Never empty.
    records: VecDeque<Record>,
    /// How many of them are lost.
    lost: usize,
}

/// Gapless, each beginning where the one before ends.
#[derive(Debug, Default)]
pub struct Table {
    chunks: VecDeque<Chunk>,
    len: usize,
}

/// Where a record is, until something is inserted or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
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
    pub fn first(&self) -> Option<Place> {
        let first = Place { chunk: 0, at: 0 };
        (!self.is_empty()).then_some(first)
    }

    /// The record of byte `seq`, or the first if that is beyond it.
    pub fn find(&self, seq: u64) -> Option<Place> {
        let ends_before = |c: &Chunk| c.records.back().is_some_and(|r| r.end <= seq);
        let chunk = self.chunks.partition_point(ends_before);
        let records = &self.chunks.get(chunk)?.records;
        let at = records.partition_point(|r| r.end <= seq);
        Some(Place { chunk, at })
    }

    pub fn get(&self, place: Place) -> Option<&Record> {
        self.chunks.get(place.chunk)?.records.get(place.at)
    }

    pub fn next(&self, place: Place) -> Option<Place> {
        let Place { chunk, at } = place;
        if at + 1 < self.chunks.get(chunk)?.records.len() {
            return Some(Place { chunk, at: at + 1 });
        }
        let next = Place {
            chunk: chunk + 1,
            at: 0,
        };
        (next.chunk < self.chunks.len()).then_some(next)
    }

    pub fn before(&self, place: Place) -> Option<Place> {
        let Place { chunk, at } = place;
        if at > 0 {
            return Some(Place { chunk, at: at - 1 });
        }
        let chunk = chunk.checked_sub(1)?;
        let at = self.chunks.get(chunk)?.records.len().checked_sub(1)?;
        Some(Place { chunk, at })
    }

    /// Changes a record. It may become lost, or cease to be.
    pub fn change<T>(&mut self, place: Place, how: impl FnOnce(&mut Record) -> T) -> Option<T> {
        let chunk = self.chunks.get_mut(place.chunk)?;
        let record = chunk.records.get_mut(place.at)?;
        let was_lost = record.is_lost;
        let result = how(record);
        chunk.lost = chunk.lost + usize::from(record.is_lost) - usize::from(was_lost);
        Some(result)
    }

    /// Changes all of them, or all in those chunks in which some are lost.
    pub fn change_all(&mut self, only_lost: bool, mut how: impl FnMut(&mut Record)) {
        for chunk in &mut self.chunks {
            if only_lost && chunk.lost == 0 {
                continue;
            }
            chunk.records.iter_mut().for_each(&mut how);
            chunk.lost = chunk.records.iter().filter(|r| r.is_lost).count();
        }
    }

    pub fn push_back(&mut self, record: Record) {
        if self
            .chunks
            .back()
            .is_none_or(|c| c.records.len() >= CHUNK_MAX)
        {
            self.chunks.push_back(Chunk::default());
        }
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.lost += usize::from(record.is_lost);
            chunk.records.push_back(record);
            self.len += 1;
        }
    }

    /// Places a record before another one.
    pub fn insert(&mut self, place: Place, record: Record) {
        let Place { mut chunk, mut at } = place;
        if self.chunks[chunk].records.len() >= CHUNK_MAX {
            self.halve(chunk);
            if at > CHUNK_MAX / 2 {
                chunk += 1;
                at -= CHUNK_MAX / 2;
            }
        }
        let chunk = &mut self.chunks[chunk];
        chunk.records.insert(at, record);
        chunk.lost += usize::from(record.is_lost);
        self.len += 1;
    }

    fn halve(&mut self, chunk: usize) {
        let old = &mut self.chunks[chunk];
        let records = old.records.split_off(CHUNK_MAX / 2);
        let lost = records.iter().filter(|r| r.is_lost).count();
        old.lost -= lost;
        self.chunks.insert(chunk + 1, Chunk { records, lost });
    }

    pub fn remove(&mut self, place: Place) {
        let Some(chunk) = self.chunks.get_mut(place.chunk) else {
            return;
        };
        let Some(record) = chunk.records.remove(place.at) else {
            return;
        };
        chunk.lost -= usize::from(record.is_lost);
        self.len -= 1;
        self.shrink(place.chunk);
    }

    /// After a removal: no chunk is empty, and small neighbours are one.
    fn shrink(&mut self, chunk: usize) {
        let len = |i: usize| self.chunks.get(i).map_or(CHUNK_MAX, |c| c.records.len());
        let (own, next) = (len(chunk), len(chunk + 1));
        if own == 0 {
            self.chunks.remove(chunk);
        } else if own + next < CHUNK_MAX / 2
            && let Some(mut next) = self.chunks.remove(chunk + 1)
        {
            let own = &mut self.chunks[chunk];
            own.records.append(&mut next.records);
            own.lost += next.lost;
        }
    }

    /// The first lost record.
    pub fn find_lost(&self) -> Option<Place> {
        let chunk = self.chunks.iter().position(|c| c.lost > 0)?;
        let at = self.chunks[chunk].records.iter().position(|r| r.is_lost)?;
        Some(Place { chunk, at })
    }

    /// The numbers kept beside the records are right.
    pub fn is_sound(&self) -> bool {
        let len: usize = self.chunks.iter().map(|c| c.records.len()).sum();
        let lost = |c: &Chunk| c.records.iter().filter(|r| r.is_lost).count();
        let is_chunk_sound = |c: &Chunk| c.lost == lost(c) && !c.records.is_empty();
        len == self.len && self.chunks.iter().all(is_chunk_sound)
    }
}
