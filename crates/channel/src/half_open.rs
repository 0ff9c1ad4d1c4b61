//! Records of an engine's half-open connections, for the keeper to give them to another listener
//! after the engine's death.
//!
//! One line for each, at the number that the stack gives it. The engine writes; the keeper reads
//! when the engine has died. The stack knows what the words mean.

use core::sync::atomic::{Ordering, fence};

use slipstack_mem::{Lines, Region};

use crate::layout::{HALF_OPEN, HALF_OPEN_AT};

/// Lines of the page before the records.
const HEADER_LINES: usize = 64;
/// Words of a record; the first one is 0 where there is none.
const WORDS: usize = 8;

/// The engine's handle.
#[derive(Debug)]
pub struct HalfOpenRecords {
    lines: Lines,
    /// Places below this one have been used.
    used: u32,
}

impl HalfOpenRecords {
    /// Over the records of a channel's region.
    pub fn new(region: &Region) -> Option<HalfOpenRecords> {
        Some(HalfOpenRecords {
            lines: Lines::new(region, HALF_OPEN_AT, HEADER_LINES + HALF_OPEN)?,
            used: 0,
        })
    }

    /// Writes the record of a place, or that it has none. Places beyond the table are left out.
    #[inline]
    pub fn set(&mut self, place: u32, record: Option<[u64; WORDS]>) {
        if place as usize >= HALF_OPEN {
            return;
        }
        if place >= self.used {
            self.used = place + 1;
            let used = u64::from(self.used);
            self.lines.line(0).words[0].store(used, Ordering::Release);
        }
        let line = self.lines.line(HEADER_LINES + place as usize);
        // A record that is being written is none. No later store comes before this one.
        line.words[0].store(0, Ordering::Release);
        fence(Ordering::Release);
        if let Some([head, rest @ ..]) = record {
            for (word, value) in line.words[1..].iter().zip(rest) {
                word.store(value, Ordering::Relaxed);
            }
            line.words[0].store(head, Ordering::Release);
        }
    }
}

/// Returns the records in a channel's region. The number is bounded, and any content is possible.
pub fn half_open_records(region: &Region) -> Vec<[u64; WORDS]> {
    let Some(lines) = Lines::new(region, HALF_OPEN_AT, HEADER_LINES + HALF_OPEN) else {
        return Vec::new();
    };
    let used = lines.line(0).words[0].load(Ordering::Acquire);
    let used = usize::try_from(used).unwrap_or(HALF_OPEN).min(HALF_OPEN);
    let record = |place: usize| {
        let line = lines.line(HEADER_LINES + place);
        let record: [u64; WORDS] = std::array::from_fn(|at| line.words[at].load(Ordering::Acquire));
        (record[0] != 0).then_some(record)
    };
    (0..used).filter_map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::REGION_BYTES;

    #[test]
    fn a_reader_sees_the_half_open_connections_that_there_are() {
        let region = Region::create("test", REGION_BYTES).unwrap();
        let mut records = HalfOpenRecords::new(&region).unwrap();
        assert!(half_open_records(&region).is_empty());
        records.set(3, Some([3; WORDS]));
        records.set(0, Some([1; WORDS]));
        records.set(HALF_OPEN as u32, Some([2; WORDS]));
        assert_eq!(half_open_records(&region), [[1; WORDS], [3; WORDS]]);
        records.set(3, None);
        records.set(0, Some([4; WORDS]));
        assert_eq!(half_open_records(&region), [[4; WORDS]]);
    }

    #[test]
    fn a_table_of_random_words_is_read_without_harm() {
        let region = Region::create("test", REGION_BYTES).unwrap();
        let used = region.u64(HALF_OPEN_AT).unwrap();
        used.store(u64::MAX, Ordering::Relaxed);
        assert!(half_open_records(&region).is_empty());
        let last = HALF_OPEN_AT + (HEADER_LINES + HALF_OPEN) * 64 - 64;
        region.u64(last).unwrap().store(9, Ordering::Relaxed);
        assert_eq!(half_open_records(&region).len(), 1);
    }
}
