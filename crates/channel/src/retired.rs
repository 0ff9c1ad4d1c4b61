//! Memory of receive rings, and replaced rings in which the program still keeps bytes.
//!
//! Replaced rings are listed until all bytes of the socket have been given back, or it is closed.

use slipstack_mem::ByteRing;

use crate::engine_end::EngineEnd;
use crate::ids::SockId;

/// Rings of one program that wait, at most: no ring in which bytes are kept is replaced then.
const RETIRED_MAX: usize = 256;

impl EngineEnd {
    /// Bytes of the receive arena in use.
    pub fn rx_memory(&self) -> usize {
        self.arena.in_use()
    }

    fn is_kept(&self, index: u32) -> bool {
        self.cell(index).is_some_and(|cell| cell.rx_kept())
    }

    /// Returns whether the ring of a socket may be replaced by another one.
    pub(crate) fn may_replace(&mut self, sock: SockId) -> bool {
        self.free_given_back();
        self.retired.len() < RETIRED_MAX || !self.is_kept(sock.index)
    }

    /// Frees a ring that another one has replaced, now or when the program has given back its
    /// bytes. The new ring has been published.
    pub(crate) fn retire(&mut self, sock: SockId, ring: ByteRing) {
        match self.is_kept(sock.index) {
            true => self.retired.push((sock.index, ring)),
            false => self.arena.free(ring),
        }
    }

    /// Frees the rings of sockets of which nothing is kept any more.
    pub(crate) fn free_given_back(&mut self) {
        for at in (0..self.retired.len()).rev() {
            if !self.is_kept(self.retired[at].0) {
                let (_, ring) = self.retired.swap_remove(at);
                self.arena.free(ring);
            }
        }
    }

    /// Frees the rings of a socket that is closed.
    pub(crate) fn free_retired(&mut self, sock: SockId) {
        for at in (0..self.retired.len()).rev() {
            if self.retired[at].0 == sock.index {
                let (_, ring) = self.retired.swap_remove(at);
                self.arena.free(ring);
            }
        }
    }
}
