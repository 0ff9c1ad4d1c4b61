//! The buffers: by address, and what is in each.

use std::collections::VecDeque;
use std::ops::Range;

/// Distance of two buffers' addresses.
pub const ADDRESS_STEP: usize = 64;
/// Buffers that are not handed over, at most.
pub const CHAINS_MAX: usize = 1 << 20;
/// Bytes in all of them, at most: a program that keeps buffers for ever stalls itself alone.
const BYTES_MAX: usize = 1 << 30;

/// One buffer: filled from the front, sent from the front.
#[derive(Debug)]
struct Chain {
    bytes: Vec<u8>,
    len: usize,
    sent: usize,
}

#[derive(Debug)]
pub struct Chains {
    range: Range<usize>,
    slots: Vec<Option<Chain>>,
    /// Places to use again, the one that was freed first before others.
    free: VecDeque<usize>,
    held: usize,
}

/// Places rest for so many others before they are used again.
const REST: usize = 4096;

impl Chains {
    pub fn new(range: Range<usize>) -> Self {
        Chains {
            range,
            slots: Vec::new(),
            free: VecDeque::new(),
            held: 0,
        }
    }

    /// A buffer for `len` bytes: its address.
    pub fn make(&mut self, len: usize) -> Option<usize> {
        if len > BYTES_MAX - self.held.min(BYTES_MAX) {
            return None;
        }
        let index = match self.free.len() > REST || self.slots.len() == CHAINS_MAX {
            true => self.free.pop_front()?,
            false => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        self.held += len;
        self.slots[index] = Some(Chain {
            bytes: Vec::with_capacity(len),
            len,
            sent: 0,
        });
        Some(self.range.start + index * ADDRESS_STEP)
    }

    fn index(&self, at: usize) -> Option<usize> {
        let offset = at.checked_sub(self.range.start)?;
        (offset % ADDRESS_STEP == 0).then_some(offset / ADDRESS_STEP)
    }

    fn chain(&mut self, at: usize) -> Option<&mut Chain> {
        let index = self.index(at)?;
        self.slots.get_mut(index)?.as_mut()
    }

    /// Appends bytes; `false`: there is no such buffer, or no room in it for all.
    pub fn fill(&mut self, at: usize, bytes: &[u8]) -> bool {
        match self.chain(at) {
            Some(chain) if bytes.len() <= chain.len - chain.bytes.len() => {
                chain.bytes.extend_from_slice(bytes);
                true
            }
            _ => false,
        }
    }

    /// Up to `len` bytes that have not been sent, taken out to be sent; `None`: there is no such
    /// buffer.
    pub fn lend(&mut self, at: usize) -> Option<Vec<u8>> {
        let chain = self.chain(at)?;
        Some(std::mem::take(&mut chain.bytes))
    }

    /// Where the unsent bytes of a buffer begin.
    pub fn sent(&mut self, at: usize) -> usize {
        self.chain(at).map_or(0, |chain| chain.sent)
    }

    /// Gives the bytes back after `count` more of them were sent; the buffer is gone once `is_all`.
    pub fn settle(&mut self, at: usize, bytes: Vec<u8>, count: usize, is_all: bool) {
        if is_all {
            self.free(at);
        } else if let Some(chain) = self.chain(at) {
            chain.bytes = bytes;
            chain.sent += count;
        }
    }

    pub fn free(&mut self, at: usize) -> bool {
        let Some(index) = self.index(at) else {
            return false;
        };
        let chain = self.slots.get_mut(index).and_then(Option::take);
        if let Some(chain) = &chain {
            self.held -= chain.len;
            self.free.push_back(index);
        }
        chain.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_filled_sent_in_parts_and_gone() {
        let mut chains = Chains::new(1 << 20..1 << 27);
        let at = chains.make(6).unwrap();
        assert!(chains.fill(at, b"abc") && chains.fill(at, b"def"));
        assert!(!chains.fill(at, b"g"));
        let bytes = chains.lend(at).unwrap();
        chains.settle(at, bytes, 4, false);
        assert_eq!(chains.sent(at), 4);
        let bytes = chains.lend(at).unwrap();
        assert_eq!(&bytes[4..], b"ef");
        chains.settle(at, bytes, 2, true);
        assert!(chains.lend(at).is_none() && !chains.free(at) && !chains.fill(at, b""));
    }

    #[test]
    fn addresses_that_are_none_are_told_and_memory_is_bounded() {
        let mut chains = Chains::new(1 << 20..1 << 27);
        let at = chains.make(1).unwrap();
        assert!(!chains.fill(at + 1, b"x") && !chains.free(at + 64) && !chains.free(7));
        assert!(chains.make(BYTES_MAX).is_none());
        assert!(chains.free(at) && chains.make(BYTES_MAX).is_some());
    }
}
