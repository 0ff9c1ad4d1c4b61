//! Records of an engine's TIME-WAIT entries, for the keeper to go on with them after the engine's
//! death.
//!
//! One line for each, at the number that the stack gives it; if there are more numbers than lines a
//! later entry replaces an earlier one. A line has the time when its entry is over, and is cleared
//! if the entry ends before. The engine writes; the keeper reads when the engine has died.

use core::sync::atomic::{Ordering, fence};

use slipstack_mem::{Lines, Region};

use crate::addr::{AddrWords, Ends};
use crate::control::TimeWaitEntry;
use crate::layout::{TIME_WAITS, TIME_WAITS_AT};

/// Lines of the page before the records.
const HEADER_LINES: usize = 64;
const USED: u64 = 1;
const STAMPED: u64 = 1 << 16;
/// The time is kept in milliseconds above the window and [`STAMPED`].
const TIME_SHIFT: u32 = 17;
const NS_PER_MS: u64 = 1_000_000;

/// The engine's handle.
#[derive(Debug)]
pub struct TimeWaitRecords {
    lines: Lines,
    /// The numbers of the entries that have the first lines; those behind have never been used.
    numbers: Vec<u32>,
}

impl TimeWaitRecords {
    /// Over the records of a channel's region.
    pub fn new(region: &Region) -> Option<TimeWaitRecords> {
        Some(TimeWaitRecords {
            lines: Lines::new(region, TIME_WAITS_AT, HEADER_LINES + TIME_WAITS)?,
            numbers: Vec::new(),
        })
    }

    /// Writes the record of the entry with this number, or that there is none any more.
    pub fn set(&mut self, number: u32, entry: Option<&TimeWaitEntry>, now_ns: u64) {
        let place = number as usize % TIME_WAITS;
        let line = self.lines.line(HEADER_LINES + place);
        let Some(entry) = entry else {
            if self.numbers.get(place) == Some(&number) {
                line.words[0].store(0, Ordering::Release);
            }
            return;
        };
        if place >= self.numbers.len() {
            self.numbers.resize(place + 1, u32::MAX);
            let used = self.numbers.len() as u64;
            self.lines.line(0).words[0].store(used, Ordering::Release);
        }
        self.numbers[place] = number;
        // A record that is being written is none. No later store comes before this one.
        line.words[0].store(0, Ordering::Release);
        fence(Ordering::Release);
        let Ends { local, remote } = Ends::of(entry.local, entry.remote);
        let (recent, offset) = entry.stamps.unwrap_or_default();
        let until_ms = now_ns / NS_PER_MS + u64::from(entry.left_ms);
        let stamped = if entry.stamps.is_some() { STAMPED } else { 0 };
        let rest = [
            local.ip[0],
            local.ip[1],
            remote.ip[0],
            remote.ip[1],
            pair(entry.snd_nxt, entry.rcv_nxt),
            pair(recent, offset),
            until_ms << TIME_SHIFT | stamped | u64::from(entry.window),
        ];
        for (word, value) in line.words[1..].iter().zip(rest) {
            word.store(value, Ordering::Relaxed);
        }
        let ports = u64::from(local.port) << 32 | u64::from(remote.port) << 16;
        line.words[0].store(ports | USED, Ordering::Release);
    }
}

/// Returns the entries in a channel's region that are not over, those with most time left first.
/// The number is bounded, and any content is possible.
pub fn time_wait_records(region: &Region, now_ns: u64) -> Vec<TimeWaitEntry> {
    let Some(lines) = Lines::new(region, TIME_WAITS_AT, HEADER_LINES + TIME_WAITS) else {
        return Vec::new();
    };
    let used = lines.line(0).words[0].load(Ordering::Acquire);
    let used = usize::try_from(used).unwrap_or(TIME_WAITS).min(TIME_WAITS);
    let record = |place: usize| {
        let line = lines.line(HEADER_LINES + place);
        entry_of(
            std::array::from_fn(|at| line.words[at].load(Ordering::Acquire)),
            now_ns,
        )
    };
    let mut entries: Vec<TimeWaitEntry> = (0..used).filter_map(record).collect();
    entries.sort_unstable_by_key(|entry| core::cmp::Reverse(entry.left_ms));
    entries
}

fn entry_of(words: [u64; 8], now_ns: u64) -> Option<TimeWaitEntry> {
    let [
        head,
        local_0,
        local_1,
        remote_0,
        remote_1,
        numbers,
        stamps,
        terms,
    ] = words;
    let left_ms = (terms >> TIME_SHIFT).saturating_sub(now_ns / NS_PER_MS);
    let addr = |ip, shift: u32| {
        let port = (head >> shift) as u16;
        AddrWords { ip, port }.decode()
    };
    let (snd_nxt, rcv_nxt) = halves(numbers);
    (head & USED != 0 && left_ms > 0).then(|| TimeWaitEntry {
        local: addr([local_0, local_1], 32),
        remote: addr([remote_0, remote_1], 16),
        snd_nxt,
        rcv_nxt,
        window: terms as u16,
        stamps: (terms & STAMPED != 0).then(|| halves(stamps)),
        left_ms: u32::try_from(left_ms).unwrap_or(u32::MAX),
    })
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(pair: u64) -> (u32, u32) {
    ((pair >> 32) as u32, pair as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::REGION_BYTES;

    const SECOND: u64 = 1_000_000_000;

    fn entry(port: u16, stamps: Option<(u32, u32)>) -> TimeWaitEntry {
        TimeWaitEntry {
            local: "10.0.0.1:80".parse().unwrap(),
            remote: ([10, 0, 0, 2], port).into(),
            snd_nxt: u32::MAX,
            rcv_nxt: 7,
            window: u16::MAX,
            stamps,
            left_ms: 60_000,
        }
    }

    #[test]
    fn a_reader_sees_the_entries_that_are_not_over() {
        let region = Region::create("test", REGION_BYTES).unwrap();
        let mut records = TimeWaitRecords::new(&region).unwrap();
        let v6 = TimeWaitEntry {
            local: "[fd00::1]:80".parse().unwrap(),
            remote: "[fd00::2]:9".parse().unwrap(),
            ..entry(9, None)
        };
        records.set(3, Some(&entry(1, Some((1, u32::MAX)))), SECOND);
        records.set(0, Some(&v6), 11 * SECOND);
        assert_eq!(time_wait_records(&region, 70 * SECOND).len(), 1);
        let late = |entry: TimeWaitEntry, left_ms| TimeWaitEntry { left_ms, ..entry };
        let first = late(entry(1, Some((1, u32::MAX))), 50_000);
        let all = time_wait_records(&region, 11 * SECOND);
        assert_eq!(all, [late(v6, 60_000), first]);
        records.set(TIME_WAITS as u32, Some(&entry(2, None)), 12 * SECOND);
        assert_eq!(time_wait_records(&region, 61 * SECOND).len(), 1);
        assert!(time_wait_records(&region, 72 * SECOND).is_empty());
        // The first of these numbers has no record any more.
        for (number, left) in [(0, 2), (3, 1), (TIME_WAITS as u32, 0), (9000, 0)] {
            records.set(number, None, 12 * SECOND);
            assert_eq!(
                time_wait_records(&region, 12 * SECOND).len(),
                left,
                "{number}"
            );
        }
    }

    #[test]
    fn a_table_of_random_words_is_read_without_harm() {
        let region = Region::create("test", REGION_BYTES).unwrap();
        let used = region.u64(TIME_WAITS_AT).unwrap();
        used.store(u64::MAX, Ordering::Relaxed);
        assert!(time_wait_records(&region, 0).is_empty());
        let last = TIME_WAITS_AT + (HEADER_LINES + TIME_WAITS) * 64 - 64;
        for at in (last..last + 64).step_by(8) {
            region.u64(at).unwrap().store(u64::MAX, Ordering::Relaxed);
        }
        let [found] = time_wait_records(&region, u64::MAX)[..] else {
            panic!("not one");
        };
        assert!(found.left_ms > 0);
    }
}
