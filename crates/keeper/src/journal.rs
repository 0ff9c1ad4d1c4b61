//! The journal: the state that a successor needs, written to a shared region after every change.
//!
//! The region has two halves; a change is written to the one that is not in force, which is then
//! put in force by one store, so that a keeper killed at any instant leaves a consistent state
//! behind.

use std::io;
use std::sync::atomic::Ordering;

use serde::Serialize;
use serde::de::DeserializeOwned;
use slipstack_mem::{PAGE, Region};

/// Longest state. The tables of the leases are bounded so that they fit.
const HALF_LEN: usize = 16 << 20;
const HALVES: [usize; 2] = [PAGE, PAGE + HALF_LEN];
/// Offsets of the header's words.
const CURRENT: usize = 0;
const LENGTHS: [usize; 2] = [8, 16];
const FINISHED: usize = 24;

/// The region in which a keeper writes down its state.
#[derive(Debug)]
pub struct Journal {
    region: Region,
}

impl Journal {
    pub fn create() -> io::Result<Journal> {
        Ok(Journal {
            region: Region::create("slipstack-state", PAGE + 2 * HALF_LEN)?,
        })
    }

    /// Writes a state and puts it in force. False: it does not fit, the former one stays in force.
    pub fn write<T: Serialize>(&self, state: &T) -> bool {
        let Ok(bytes) = serde_json::to_vec(state) else {
            return false;
        };
        let next = 1 - self.current();
        if bytes.len() > HALF_LEN || !self.region.write_from(HALVES[next], &bytes) {
            return false;
        }
        self.store(LENGTHS[next], bytes.len() as u64);
        self.store(CURRENT, next as u64);
        true
    }

    /// The state in force, if there is one and it can be read.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        let current = self.current();
        let len = self.load(LENGTHS[current]) as usize;
        if len == 0 || len > HALF_LEN {
            return None;
        }
        let mut bytes = vec![0; len];
        self.region
            .read_into(HALVES[current], &mut bytes)
            .then_some(())?;
        serde_json::from_slice(&bytes).ok()
    }

    /// The keeper ends in order: no successor is wanted.
    pub fn finish(&self) {
        self.store(FINISHED, 1);
    }

    pub fn is_finished(&self) -> bool {
        self.load(FINISHED) != 0
    }

    fn current(&self) -> usize {
        usize::from(self.load(CURRENT) != 0)
    }

    fn load(&self, offset: usize) -> u64 {
        self.region
            .u64(offset)
            .map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn store(&self, offset: usize, value: u64) {
        if let Some(word) = self.region.u64(offset) {
            word.store(value, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_state_is_read_back() {
        let journal = Journal::create().expect("region");
        assert_eq!(journal.read::<Vec<u32>>(), None);
        for round in 0..5u32 {
            assert!(journal.write(&vec![round; 1000]));
            assert_eq!(journal.read(), Some(vec![round; 1000]));
        }
    }

    #[test]
    fn a_state_that_does_not_fit_leaves_the_former_one() {
        let journal = Journal::create().expect("region");
        assert!(journal.write(&"small"));
        assert!(!journal.write(&"x".repeat(HALF_LEN)));
        assert_eq!(journal.read(), Some("small".to_owned()));
        assert!(!journal.is_finished());
        journal.finish();
        assert!(journal.is_finished());
    }
}
