//! Longest-prefix match in a few steps, however many prefixes there are: binary search over prefix
//! lengths.
//!
//! After Waldvogel, Varghese, Turner and Plattner, "Scalable High Speed IP Routing Lookups" (1997):
//! a hash table holds each prefix, and beside it markers, which say at a shorter length that a
//! longer one may match. Each entry knows the best route for its prefix, so that a search that a
//! marker has misled needs no backtracking.

use alloc::vec::Vec;
use core::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;

use super::{Entry, Length, mask};

/// Position of a route: the place of its length and the place among the routes of that.
pub(super) type Position = (u8, u32);

/// Index of one table. It is good for the entries that it was built from.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// Prefix lengths, the longest first.
    lengths: Vec<u8>,
    known: HashMap<(u8, u128), Option<Position>, BuildHasherDefault<Mixer>>,
}

impl Index {
    pub fn of(lengths: &[Length]) -> Index {
        let mut index = Index {
            lengths: lengths.iter().map(|length| length.len).collect(),
            known: HashMap::default(),
        };
        for (at, length) in lengths.iter().enumerate() {
            for (place, entry) in length.entries.iter().enumerate() {
                let key = (length.len, entry.prefix.bits);
                // The first route of a prefix has the smallest metric.
                let is_first = place == 0 || length.entries[place - 1].prefix != entry.prefix;
                if is_first {
                    index.known.insert(key, Some((at as u8, place as u32)));
                    index.mark(at, entry);
                }
            }
        }
        index.complete(lengths);
        index
    }

    /// Leaves markers on the way of a search to a prefix.
    fn mark(&mut self, wanted: usize, entry: &Entry) {
        let (mut low, mut high) = (0, self.lengths.len());
        while low < high {
            let middle = low.midpoint(high);
            if middle == wanted {
                return;
            }
            if middle > wanted {
                // A shorter length is looked up first, and must direct the search further.
                let len = self.lengths[middle];
                let key = (len, entry.prefix.bits & mask(len));
                self.known.entry(key).or_insert(None);
                high = middle;
            } else {
                low = middle + 1;
            }
        }
    }

    /// Gives each marker the best route for it.
    fn complete(&mut self, lengths: &[Length]) {
        let mut found = Vec::new();
        for (&(len, bits), _) in self.known.iter().filter(|(_, place)| place.is_none()) {
            let shorter = lengths.iter().enumerate().filter(|(_, it)| it.len < len);
            let best = shorter.filter_map(|(at, it)| Some((at as u8, it.find(bits)? as u32)));
            found.push(((len, bits), best.into_iter().next()));
        }
        self.known.extend(found);
    }

    /// The longest prefix that an address begins with.
    pub fn find(&self, address: u128) -> Option<Position> {
        let (mut low, mut high) = (0, self.lengths.len());
        let mut best = None;
        while low < high {
            let middle = low.midpoint(high);
            let len = self.lengths[middle];
            match self.known.get(&(len, address & mask(len))) {
                Some(place) => {
                    best = *place;
                    high = middle;
                }
                None => low = middle + 1,
            }
        }
        best
    }
}

/// A hash for configured values, whose keys no attacker chooses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, word: u64) {
        const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0 = (self.0 ^ word).wrapping_mul(MULTIPLIER);
        self.0 ^= self.0 >> 32;
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.mix(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.mix(number.into());
    }

    fn write_u128(&mut self, number: u128) {
        self.mix((number >> 64) as u64);
        self.mix(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
