//! Stream bytes from the engine to the program.
//!
//! The engine owns the receive rings and may replace one at any time (it grows while bytes
//! wait), so the reader looks at the ring word again after copying and starts over when it has
//! changed.

use core::sync::atomic::{Ordering, fence};
use std::io::IoSliceMut;

use slipstack_mem::ByteRing;

use crate::cell::Cell;
use crate::command::Command;
use crate::ids::SockId;

use super::ProgramEnd;
use super::sockets::RxSide;
use super::urgent::Asked;

impl ProgramEnd {
    /// Bytes that wait to be read (for datagrams including their framing).
    #[inline]
    pub fn rx_available(&self, sock: SockId) -> usize {
        match self.cell(sock.index) {
            Some(cell) if cell.state().generation == sock.generation => {
                cell.rx_head()
                    .saturating_sub(cell.rx_tail().max(cell.rx_read())) as usize
            }
            _ => 0,
        }
    }

    /// Copies waiting bytes out and consumes them.
    pub fn recv(&self, sock: SockId, bufs: &mut [IoSliceMut<'_>]) -> usize {
        self.take(sock, bufs, 0, true)
    }

    /// Copies waiting bytes from `skip` bytes on (SO_PEEK_OFF) without consuming them.
    pub fn peek(&self, sock: SockId, bufs: &mut [IoSliceMut<'_>], skip: usize) -> usize {
        self.take(sock, bufs, skip, false)
    }

    /// Consumes up to `len` waiting bytes unseen (MSG_TRUNC).
    pub fn discard(&self, sock: SockId, len: usize) -> usize {
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return 0;
        };
        let mut rx = local.rx.lock();
        if !cell.urgent().is_none() {
            let asked = Asked {
                skip: 0,
                most: len,
                consume: true,
            };
            return self.take_near_mark(sock, local, &cell, &mut rx, None, &asked);
        }
        let len = len.min(self.waiting(sock, &cell, rx.tail));
        rx.tail += len as u64;
        self.consumed(sock, &cell, &rx);
        len
    }

    pub(super) fn waiting(&self, sock: SockId, cell: &Cell<'_>, tail: u64) -> usize {
        if cell.state().generation != sock.generation {
            return 0;
        }
        cell.rx_head().saturating_sub(tail) as usize
    }

    fn take(&self, sock: SockId, bufs: &mut [IoSliceMut<'_>], skip: usize, consume: bool) -> usize {
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return 0;
        };
        let mut rx = local.rx.lock();
        let waiting = self.waiting(sock, &cell, rx.tail);
        if skip >= waiting {
            return 0;
        }
        // The mark is read after the head, because the engine writes it before the head.
        if !cell.urgent().is_none() {
            let asked = Asked {
                skip,
                most: bufs.iter().map(|buf| buf.len()).sum(),
                consume,
            };
            return self.take_near_mark(sock, local, &cell, &mut rx, Some(bufs), &asked);
        }
        let from = rx.tail + skip as u64;
        let len = self.copy_out(&cell, from, waiting - skip, bufs);
        if consume && len > 0 {
            rx.tail += len as u64;
            self.consumed(sock, &cell, &rx);
        }
        len
    }

    /// Copies up to `len` bytes from stream offset `from` on.
    pub(super) fn copy_out(
        &self,
        cell: &Cell<'_>,
        from: u64,
        len: usize,
        bufs: &mut [IoSliceMut<'_>],
    ) -> usize {
        loop {
            let word = cell.rx_ring();
            let mut copied = 0;
            if let Some(ring) = ByteRing::validate(word, &self.inner.receive_arena) {
                for buf in bufs.iter_mut() {
                    let part = buf.len().min(len - copied);
                    copied += ring.read(&self.inner.region, from + copied as u64, &mut buf[..part]);
                    if copied == len {
                        break;
                    }
                }
            }
            fence(Ordering::Acquire);
            if cell.rx_ring() == word {
                return copied;
            }
        }
    }

    /// Publishes how far the program has read, and notifies the engine if it asked for that.
    pub(super) fn consumed(&self, sock: SockId, cell: &Cell<'_>, rx: &RxSide) {
        let tail = rx.released();
        if rx.kept_count() > 0 {
            cell.set_rx_read(rx.tail);
        }
        cell.set_rx_tail(tail);
        if tail >= cell.notify_at() && cell.raise_rx() {
            self.push(Command::Consumed { sock });
        }
    }
}
