//! Datagrams that came back with an error, for the socket's error queue.

use std::io::IoSliceMut;

use slipstack_mem::ByteRing;

use crate::ids::SockId;
use crate::returned::{HEADER, Returned};

use super::ProgramEnd;

impl ProgramEnd {
    /// Returns whether a returned datagram waits.
    pub fn has_returned(&self, sock: SockId) -> bool {
        self.cell(sock.index).is_some_and(|cell| {
            cell.state().generation == sock.generation
                && cell.returned_head() > cell.returned_tail()
        })
    }

    /// Returns the oldest returned error without its payload, and leaves it in the queue.
    pub fn next_returned(&self, sock: SockId) -> Option<Returned> {
        let cell = self.cell(sock.index)?;
        if !self.has_returned(sock) {
            return None;
        }
        let ring = ByteRing::validate(cell.returned_ring(), &self.inner.receive_arena)?;
        let at = cell.returned_tail();
        let mut bytes = [0; HEADER];
        ring.read(&self.inner.region, at, &mut bytes);
        let waiting = cell.returned_head().saturating_sub(at);
        Returned::decode(&bytes).filter(|it| it.record_len() as u64 <= waiting)
    }

    /// Takes the first returned datagram; returns how much of its payload the buffers took.
    pub fn take_returned(
        &self,
        sock: SockId,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Option<(Returned, usize)> {
        let local = self.inner.sockets.find(sock)?;
        let _turn = local.rx.lock();
        let it = self.next_returned(sock)?;
        let cell = self.cell(sock.index)?;
        let ring = ByteRing::validate(cell.returned_ring(), &self.inner.receive_arena)?;
        let at = cell.returned_tail();
        let mut copied = 0;
        for buf in bufs {
            let part = buf.len().min(it.len - copied);
            let from = at + (HEADER + copied) as u64;
            copied += ring.read(&self.inner.region, from, &mut buf[..part]);
        }
        cell.set_returned_tail(at + it.record_len() as u64);
        Some((it, copied))
    }
}
