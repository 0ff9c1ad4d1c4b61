//! Table of the buffers by address, with the contents of each.

use std::collections::VecDeque;
use std::ops::Range;

use slipstack_posix::{Carved, Kept};

/// Distance of two buffers' addresses.
pub const ADDRESS_STEP: usize = 64;
/// Buffers that are not handed over, at most.
pub const CHAINS_MAX: usize = 1 << 20;
/// Bytes in all of them, at most: a program that keeps buffers for ever stalls itself alone.
const BYTES_MAX: usize = 1 << 30;

/// Memory of a buffer's bytes.
#[derive(Debug)]
pub enum Memory {
    /// The library's own.
    Own(Vec<u8>),
    /// Memory that the device gathers from: pieces, with their lengths.
    Carved(Vec<(Carved, usize)>),
}

impl Memory {
    fn own(len: usize) -> Memory {
        Memory::Own(Vec::with_capacity(len))
    }

    /// Copies bytes to offset `at`, up to which it is filled; there is room for them.
    fn fill(&mut self, mut at: usize, mut bytes: &[u8]) {
        match self {
            Memory::Own(own) => {
                own.truncate(at);
                own.extend_from_slice(bytes);
            }
            Memory::Carved(pieces) => {
                for (piece, len) in pieces {
                    let part = bytes.len().min(len.saturating_sub(at));
                    piece.fill(at, &bytes[..part]);
                    bytes = &bytes[part..];
                    at = (at + part).saturating_sub(*len);
                }
            }
        }
    }

    /// Returns where bytes from offset `at` on are to be put, of `len` in all: as many as lie in
    /// one piece.
    fn room(&mut self, mut at: usize, len: usize) -> libc::iovec {
        match self {
            Memory::Own(own) => {
                own.resize(len, 0);
                let room = &mut own[at..];
                libc::iovec {
                    iov_base: room.as_mut_ptr().cast(),
                    iov_len: room.len(),
                }
            }
            Memory::Carved(pieces) => {
                for (piece, len) in pieces {
                    if at < *len {
                        let space = piece.space();
                        return libc::iovec {
                            iov_base: space.iov_base.wrapping_byte_add(at),
                            iov_len: *len - at,
                        };
                    }
                    at -= *len;
                }
                libc::iovec {
                    iov_base: core::ptr::null_mut(),
                    iov_len: 0,
                }
            }
        }
    }
}

/// One buffer: filled from the front, sent from the front.
#[derive(Debug)]
struct Chain {
    /// `None` while it is being sent.
    memory: Option<Memory>,
    len: usize,
    filled: usize,
    sent: usize,
}

/// Buffers that the library has given out under an address.
#[derive(Debug)]
enum Entry {
    ToSend(Chain),
    Received(Kept),
}

/// Bytes of a buffer that is being sent.
#[derive(Debug)]
pub struct Sending {
    pub memory: Memory,
    /// The buffers that have not been sent.
    pub rest: Range<usize>,
}

#[derive(Debug)]
pub struct Chains {
    range: Range<usize>,
    slots: Vec<Option<Entry>>,
    /// Places to use again, the one that was freed first before others.
    free: VecDeque<usize>,
    held: usize,
    /// Bytes of buffers, by their places, while the process forks.
    saved: Vec<(usize, Vec<u8>)>,
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
            saved: Vec::new(),
        }
    }

    fn add(&mut self, entry: Entry) -> Option<usize> {
        let index = match self.free.len() > REST || self.slots.len() == CHAINS_MAX {
            true => self.free.pop_front()?,
            false => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        self.slots[index] = Some(entry);
        Some(self.range.start + index * ADDRESS_STEP)
    }

    /// A buffer for `len` bytes, in this memory or in the library's own: its address.
    pub fn make(&mut self, len: usize, memory: Option<Memory>) -> Option<usize> {
        if len > BYTES_MAX - self.held.min(BYTES_MAX) {
            return None;
        }
        let at = self.add(Entry::ToSend(Chain {
            memory: Some(memory.unwrap_or_else(|| Memory::own(len))),
            len,
            filled: 0,
            sent: 0,
        }))?;
        self.held += len;
        Some(at)
    }

    /// Takes received bytes in: their address.
    pub fn receive(&mut self, kept: Kept) -> Option<usize> {
        self.add(Entry::Received(kept))
    }

    fn entry(&mut self, at: usize) -> Option<&mut Option<Entry>> {
        let offset = at.checked_sub(self.range.start)?;
        let index = (offset % ADDRESS_STEP == 0).then_some(offset / ADDRESS_STEP)?;
        self.slots.get_mut(index)
    }

    fn chain(&mut self, at: usize) -> Option<&mut Chain> {
        match self.entry(at)? {
            Some(Entry::ToSend(chain)) => Some(chain),
            _ => None,
        }
    }

    /// Memory of received bytes.
    pub fn received(&mut self, at: usize) -> Option<[libc::iovec; 2]> {
        match self.entry(at)? {
            Some(Entry::Received(kept)) => Some(kept.pieces()),
            _ => None,
        }
    }

    /// Appends bytes; `false`: there is no such buffer, or no room in it for all.
    pub fn fill(&mut self, at: usize, bytes: &[u8]) -> bool {
        let Some(chain) = self.chain(at) else {
            return false;
        };
        match &mut chain.memory {
            Some(memory) if bytes.len() <= chain.len - chain.filled => {
                memory.fill(chain.filled, bytes);
                chain.filled += bytes.len();
                true
            }
            _ => false,
        }
    }

    /// Address for the next bytes; `None`: there is no such buffer.
    pub fn room(&mut self, at: usize) -> Option<libc::iovec> {
        let chain = self.chain(at)?;
        let (filled, len) = (chain.filled, chain.len);
        chain.memory.as_mut().map(|memory| memory.room(filled, len))
    }

    /// The program has put `count` bytes where [`Chains::room`] has said.
    pub fn filled(&mut self, at: usize, count: usize) -> bool {
        match self.chain(at) {
            Some(chain) if count <= chain.len - chain.filled => {
                chain.filled += count;
                true
            }
            _ => false,
        }
    }

    /// Takes the bytes of a buffer out to be sent, at most `len`; `None`: there is no such buffer.
    pub fn lend(&mut self, at: usize, len: usize) -> Option<Sending> {
        let chain = self.chain(at)?;
        let end = chain.filled.min(chain.sent.saturating_add(len));
        Some(Sending {
            memory: chain.memory.take()?,
            rest: chain.sent..end,
        })
    }

    /// Gives the bytes back after `count` more of them were sent; the buffer is gone once `is_all`.
    pub fn settle(&mut self, at: usize, sending: Sending, count: usize, is_all: bool) {
        if is_all {
            self.free(at);
        } else if let Some(chain) = self.chain(at) {
            chain.memory = Some(sending.memory);
            chain.sent += count;
        }
    }

    pub fn free(&mut self, at: usize) -> bool {
        let Some(entry) = self.entry(at).and_then(Option::take) else {
            return false;
        };
        match entry {
            Entry::ToSend(chain) => self.held -= chain.len,
            Entry::Received(kept) => kept.give_back(),
        }
        self.free.push_back((at - self.range.start) / ADDRESS_STEP);
        true
    }

    /// Before a fork: bytes of buffers in memory that the child will not have.
    pub fn save(&mut self) {
        for (index, entry) in self.slots.iter().enumerate() {
            if let Some(Entry::ToSend(chain)) = entry
                && let Some(Memory::Carved(pieces)) = &chain.memory
            {
                let mut bytes = vec![0; chain.filled];
                let mut rest = &mut bytes[..];
                for (piece, len) in pieces {
                    let (part, after) = rest.split_at_mut((*len).min(rest.len()));
                    piece.read(part);
                    rest = after;
                }
                self.saved.push((index, bytes));
            }
        }
    }

    pub fn forget_saved(&mut self) {
        self.saved.clear();
    }

    /// In a forked child: unsent buffers are its own, as they were saved; received bytes are its
    /// parent's.
    pub fn become_saved(&mut self) {
        for (index, bytes) in core::mem::take(&mut self.saved) {
            if let Some(Some(Entry::ToSend(chain))) = self.slots.get_mut(index)
                && let Some(Memory::Carved(pieces)) = chain.memory.replace(Memory::Own(bytes))
            {
                pieces.into_iter().for_each(|(piece, _)| piece.forget());
            }
        }
        for index in 0..self.slots.len() {
            if let Some(Entry::Received(_)) = &self.slots[index]
                && let Some(Entry::Received(kept)) = self.slots[index].take()
            {
                kept.forget();
                self.free.push_back(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `count` of the bytes that wait; returns all of those.
    fn send(chains: &mut Chains, at: usize, count: usize, is_all: bool) -> Option<Vec<u8>> {
        let sending = chains.lend(at, usize::MAX)?;
        let Memory::Own(bytes) = &sending.memory else {
            return None;
        };
        let waiting = bytes[sending.rest.clone()].to_vec();
        chains.settle(at, sending, count, is_all);
        Some(waiting)
    }

    #[test]
    fn a_buffer_is_filled_then_sent_in_parts_then_freed() {
        let mut chains = Chains::new(1 << 20..1 << 27);
        let at = chains.make(6, None).unwrap();
        assert!(chains.fill(at, b"abc"));
        assert_eq!(chains.room(at).map(|room| room.iov_len), Some(3));
        assert!(chains.fill(at, b"def") && !chains.filled(at, 1));
        assert!(!chains.fill(at, b"g"));
        assert_eq!(send(&mut chains, at, 4, false).unwrap(), b"abcdef");
        assert_eq!(send(&mut chains, at, 2, true).unwrap(), b"ef");
        assert!(chains.lend(at, 1).is_none() && !chains.free(at) && !chains.fill(at, b""));
    }

    #[test]
    fn a_buffer_that_is_being_sent_is_neither_filled_nor_sent_again() {
        let mut chains = Chains::new(1 << 20..1 << 27);
        let at = chains.make(6, None).unwrap();
        assert!(chains.fill(at, b"abc"));
        let sending = chains.lend(at, 2).unwrap();
        assert_eq!(sending.rest, 0..2);
        assert!(!chains.fill(at, b"d") && chains.lend(at, 1).is_none());
        chains.settle(at, sending, 2, false);
        assert!(chains.fill(at, b"d"));
        assert_eq!(send(&mut chains, at, 2, true).unwrap(), b"cd");
    }

    #[test]
    fn invalid_addresses_are_reported_and_memory_is_bounded() {
        let mut chains = Chains::new(1 << 20..1 << 27);
        let at = chains.make(1, None).unwrap();
        assert!(!chains.fill(at + 1, b"x") && !chains.free(at + 64) && !chains.free(7));
        assert!(chains.make(BYTES_MAX, None).is_none());
        assert!(chains.free(at) && chains.make(BYTES_MAX, None).is_some());
    }
}
