//! Records of the connections that the keeper completes, for a successor.
//!
//! The bytes to send are in the region of the program that has ended; the part that changes, the
//! stack's image of the connection, is written here. A record has two halves: the one that is not
//! in force is written and then put in force by one store, so that a keeper killed at any instant
//! leaves a consistent image behind.

use std::io;
use std::sync::atomic::Ordering;

use slipstack_mem::Region;
use slipstack_stack::ConnectionImage;

use crate::leases::ClientId;
use crate::regions::RegionKey;

/// Connections on record; those beyond are completed too, but lost if the keeper dies.
const RECORDS: usize = 4096;
const RECORD_LEN: usize = 1024;
/// Offsets in a record: the half in force (1 or 2, 0 = none), then [`FACTS`] words.
const CURRENT: usize = 0;
const FACTS_AT: usize = 8;
const FACTS: usize = 5;
const HALVES: [usize; 2] = [64, 64 + ConnectionImage::LEN];

const _: () = assert!(HALVES[1] + ConnectionImage::LEN <= RECORD_LEN);

/// A record's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record(usize);

/// A connection on record.
#[derive(Debug)]
pub struct InheritedConnection {
    pub record: Record,
    /// The region with its bytes, and where in it they are (see `HandoverImage::words`).
    pub key: RegionKey,
    pub words: [u64; 3],
    pub image: ConnectionImage,
}

/// The shared memory of the records.
pub fn create() -> io::Result<Region> {
    Region::create("slipstack-orphans", RECORDS * RECORD_LEN)
}

/// The records, and which are free.
#[derive(Debug)]
pub struct Orphans {
    region: Region,
    free: Vec<Record>,
}

impl Orphans {
    /// Continues with the recorded connections.
    pub fn open(region: Region) -> Orphans {
        let mut orphans = Orphans {
            region,
            free: Vec::new(),
        };
        orphans.free = (0..RECORDS)
            .rev()
            .map(Record)
            .filter(|record| orphans.half(*record).is_none())
            .collect();
        orphans
    }

    /// `None`: no room.
    pub fn add(
        &mut self,
        key: RegionKey,
        words: [u64; 3],
        image: &ConnectionImage,
    ) -> Option<Record> {
        let record = self.free.pop()?;
        let facts: [u64; FACTS] = [key.0.0, key.1, words[0], words[1], words[2]];
        for (index, fact) in facts.into_iter().enumerate() {
            self.store(record, FACTS_AT + 8 * index, fact);
        }
        self.renew(record, image);
        Some(record)
    }

    /// Puts a new image in force.
    pub fn renew(&self, record: Record, image: &ConnectionImage) {
        let next = match self.half(record) {
            Some(0) => 1,
            _ => 0,
        };
        let at = record.0 * RECORD_LEN + HALVES[next];
        if self.region.write_from(at, &image.to_bytes()) {
            self.store(record, CURRENT, next as u64 + 1);
        }
    }

    pub fn remove(&mut self, record: Record) {
        self.store(record, CURRENT, 0);
        self.free.push(record);
    }

    /// Everything on record.
    pub fn inherited(&self) -> Vec<InheritedConnection> {
        let inherited_connection = |record: Record| {
            let half = self.half(record)?;
            let mut bytes = [0; ConnectionImage::LEN];
            let at = record.0 * RECORD_LEN + HALVES[half];
            self.region.read_into(at, &mut bytes).then_some(())?;
            let fact = |index: usize| self.load(record, FACTS_AT + 8 * index);
            Some(InheritedConnection {
                record,
                key: (ClientId(fact(0)), fact(1)),
                words: [fact(2), fact(3), fact(4)],
                image: ConnectionImage::from_bytes(&bytes),
            })
        };
        (0..RECORDS)
            .map(Record)
            .filter_map(inherited_connection)
            .collect()
    }

    fn half(&self, record: Record) -> Option<usize> {
        match self.load(record, CURRENT) {
            1 => Some(0),
            2 => Some(1),
            _ => None,
        }
    }

    fn load(&self, record: Record, at: usize) -> u64 {
        let word = self.region.u64(record.0 * RECORD_LEN + at);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn store(&self, record: Record, at: usize, value: u64) {
        if let Some(word) = self.region.u64(record.0 * RECORD_LEN + at) {
            word.store(value, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_reads_the_latest_image_of_those_that_are_left() {
        let region = create().expect("region");
        let image = |byte| ConnectionImage::from_bytes(&[byte; ConnectionImage::LEN]);
        let mut orphans = Orphans::open(region.clone());
        let key = (ClientId(7), 1);
        let gone = orphans.add(key, [0; 3], &image(1)).expect("room");
        let left = orphans.add(key, [4, 5, 6], &image(2)).expect("room");
        orphans.renew(left, &image(3));
        orphans.renew(left, &image(4));
        orphans.remove(gone);
        let mut successor = Orphans::open(region);
        let inherited = successor.inherited();
        assert_eq!(inherited.len(), 1);
        assert_eq!((inherited[0].record, inherited[0].key), (left, key));
        assert_eq!(inherited[0].words, [4, 5, 6]);
        assert_eq!(inherited[0].image, image(4));
        assert_eq!(successor.add(key, [0; 3], &image(5)), Some(gone));
    }

    #[test]
    fn a_full_table_of_orphans_refuses() {
        let mut orphans = Orphans::open(create().expect("region"));
        let image = ConnectionImage::from_bytes(&[0; ConnectionImage::LEN]);
        for _ in 0..RECORDS {
            assert!(orphans.add((ClientId(1), 1), [0; 3], &image).is_some());
        }
        assert!(orphans.add((ClientId(1), 1), [0; 3], &image).is_none());
    }
}
