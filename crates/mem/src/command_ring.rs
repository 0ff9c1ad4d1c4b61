//! Fixed-size commands from many threads of one process to one reader, possibly in another process.
//!
//! A cell is one cache line: a sequence word and seven words of payload. Writers claim a position
//! with one CAS on a private counter, so the reader trusts only the sequence word of the next cell,
//! and a writer that stores a wrong one delays only itself.

use crate::region::{Lines, Region};
use crate::sync::{AtomicU64, Ordering};

/// Payload words of one command.
pub const PAYLOAD_WORDS: usize = 7;

/// The writers' side; `push` may be called by several threads.
#[derive(Debug)]
pub struct CommandRing {
    cells: Lines,
    mask: u64,
    next: AtomicU64,
}

impl CommandRing {
    /// `cells` is a power of two; the cells are lines of `region` from `offset`, fresh (zero) or
    /// left behind by an earlier writer.
    pub fn new(region: &Region, offset: usize, cells: usize) -> Option<CommandRing> {
        let (cells, mask) = checked(region, offset, cells)?;
        Some(CommandRing {
            cells,
            mask,
            next: AtomicU64::new(0),
        })
    }

    /// `false` when the ring is full.
    #[inline]
    pub fn push(&self, payload: &[u64; PAYLOAD_WORDS]) -> bool {
        let mut position = self.next.load(Ordering::Relaxed);
        loop {
            let index = position & self.mask;
            let line = self.cells.line(index as usize);
            let expected = position - index;
            let sequence = line.words[0].load(Ordering::Acquire);
            if sequence == expected {
                let claim = self.next.compare_exchange_weak(
                    position,
                    position + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                match claim {
                    Ok(_) => {
                        for (word, value) in line.words[1..].iter().zip(payload) {
                            word.store(*value, Ordering::Relaxed);
                        }
                        line.words[0].store(expected + 1, Ordering::Release);
                        return true;
                    }
                    Err(now) => position = now,
                }
            } else {
                let now = self.next.load(Ordering::Relaxed);
                if now == position {
                    return false;
                }
                position = now;
            }
        }
    }
}

/// The reader's side.
#[derive(Debug)]
pub struct CommandReader {
    cells: Lines,
    mask: u64,
    next: u64,
}

impl CommandReader {
    pub fn new(region: &Region, offset: usize, cells: usize) -> Option<CommandReader> {
        let (cells, mask) = checked(region, offset, cells)?;
        Some(CommandReader {
            cells,
            mask,
            next: 0,
        })
    }

    #[inline]
    pub fn pop(&mut self) -> Option<[u64; PAYLOAD_WORDS]> {
        let index = self.next & self.mask;
        let line = self.cells.line(index as usize);
        // A cell's sequence is `lap` when free and `lap + 1` when filled, where `lap` is the
        // position of the lap's first cell; zeroed memory is the first lap's free state.
        let lap = self.next - index;
        if line.words[0].load(Ordering::Acquire) != lap + 1 {
            return None;
        }
        let mut payload = [0; PAYLOAD_WORDS];
        for (value, word) in payload.iter_mut().zip(&line.words[1..]) {
            *value = word.load(Ordering::Relaxed);
        }
        line.words[0].store(lap + self.mask + 1, Ordering::Release);
        self.next += 1;
        Some(payload)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        let index = self.next & self.mask;
        let lap = self.next - index;
        self.cells.line(index as usize).words[0].load(Ordering::Acquire) != lap + 1
    }
}

fn checked(region: &Region, offset: usize, cells: usize) -> Option<(Lines, u64)> {
    if cells < 2 || !cells.is_power_of_two() {
        return None;
    }
    Some((Lines::new(region, offset, cells)?, cells as u64 - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(cells: usize) -> (CommandRing, CommandReader) {
        let region = Region::create("test", cells * 64).unwrap();
        (
            CommandRing::new(&region, 0, cells).unwrap(),
            CommandReader::new(&region, 0, cells).unwrap(),
        )
    }

    #[test]
    fn commands_come_out_in_order_and_a_full_ring_refuses() {
        let (ring, mut reader) = pair(4);
        for lap in 0..10u64 {
            for i in 0..4 {
                assert!(ring.push(&[lap * 4 + i; PAYLOAD_WORDS]));
            }
            assert!(!ring.push(&[99; PAYLOAD_WORDS]));
            for i in 0..4 {
                assert_eq!(reader.pop(), Some([lap * 4 + i; PAYLOAD_WORDS]));
            }
            assert_eq!(reader.pop(), None);
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn many_threads_neither_lose_nor_duplicate_items() {
        const EACH: u64 = 20_000;
        let (ring, mut reader) = pair(64);
        let mut next = [0u64; 3];
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let ring = &ring;
                scope.spawn(move || {
                    for i in 0..EACH {
                        let command = [thread, i, i ^ 5, 0, 0, 0, thread + i];
                        while !ring.push(&command) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            while next.iter().sum::<u64>() < 3 * EACH {
                let Some(command) = reader.pop() else {
                    std::thread::yield_now();
                    continue;
                };
                let [thread, i, x, _, _, _, sum] = command;
                assert_eq!((x, sum), (i ^ 5, thread + i));
                assert_eq!(i, next[thread as usize]);
                next[thread as usize] += 1;
            }
        });
    }

    #[test]
    fn random_words_in_the_cells_never_panic() {
        let region = Region::create("test", 8 * 64).unwrap();
        let mut reader = CommandReader::new(&region, 0, 8).unwrap();
        let mut seed = 1u64;
        for _ in 0..100_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            let at = (seed >> 33) as usize % 64;
            let word = region.u64(at * 8).unwrap();
            word.store((seed >> 20) & 0x1f, Ordering::Relaxed);
            reader.pop();
        }
    }
}
