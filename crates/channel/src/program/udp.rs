//! Datagrams, framed in the same byte rings.
//!
//! The engine may take datagrams back that wait for a program which has the socket from another
//! one: program and engine claim each with a compare-and-swap of the position up to which the ring
//! is read. A program copies a datagram first; if the claim fails, the copy is void.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use slipstack_mem::Guard;

use crate::cell::Cell;
use crate::command::Command;
use crate::datagram::{Envelope, HEADER, Header, PAYLOAD_MAX};
use crate::ids::SockId;

use super::ProgramEnd;
use super::sockets::{RxSide, SockLocal};

/// Reason why a datagram was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// The send buffer is full, or this is longer than any datagram.
    Full,
    /// No memory is left for the datagram.
    NoMemory,
}

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Bytes copied.
    pub len: usize,
    /// Bytes it had.
    pub full_len: usize,
    pub from: SocketAddr,
    /// The address it was sent to.
    pub to: SocketAddr,
    pub envelope: Envelope,
}

impl ProgramEnd {
    /// Queues a datagram whole, however long, while the send buffer is not full:
    /// `sock_alloc_send_pskb()`. The engine reports when it is no longer full.
    pub fn udp_send(
        &self,
        sock: SockId,
        envelope: &Envelope,
        bufs: &[IoSlice<'_>],
    ) -> Result<usize, Unsent> {
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return Err(Unsent::Full);
        };
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        if len > PAYLOAD_MAX {
            return Err(Unsent::Full);
        }
        let header = Header {
            len,
            envelope: *envelope,
        };
        let record = header.record_len();
        let mut tx = local.tx.lock();
        if self.space(sock, &cell, tx.head) == 0 {
            cell.want_tx();
            if self.space(sock, &cell, tx.head) == 0 {
                return Err(Unsent::Full);
            }
        }
        if self.make_room(sock, &cell, &mut tx, record) < record {
            cell.want_tx();
            if self.make_room(sock, &cell, &mut tx, record) < record {
                // Datagrams that still have to leave will make room.
                let is_empty = self.acked(sock, &cell) == tx.head;
                return Err(if is_empty {
                    Unsent::NoMemory
                } else {
                    Unsent::Full
                });
            }
        }
        let ring = tx.ring.ok_or(Unsent::NoMemory)?;
        let region = self.region();
        ring.write(region, tx.head, &header.encode());
        let mut at = tx.head + HEADER as u64;
        for buf in bufs {
            ring.write(region, at, buf);
            at += buf.len() as u64;
        }
        tx.head += record as u64;
        cell.set_tx_head(tx.head);
        if cell.raise_tx() {
            self.push(Command::Send { sock });
        }
        Ok(len)
    }

    /// Receives the next datagram, cut to the length of the buffers; `peek` leaves it in place.
    pub fn udp_recv(
        &self,
        sock: SockId,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Option<Datagram> {
        match peek {
            true => {
                let mut receiving = self.udp_receiving(sock)?;
                let (header, len) = receiving.copy(bufs)?;
                datagram(&header, len)
            }
            false => self.udp_receiving(sock)?.take(bufs),
        }
    }

    /// As [`ProgramEnd::udp_recv`], if the next datagram is that at `at` still.
    pub fn udp_recv_at(
        &self,
        sock: SockId,
        at: u64,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Option<Datagram> {
        let mut receiving = self.udp_receiving(sock)?;
        let (header, len) = receiving.copy(bufs)?;
        let is_it = receiving.rx.tail == at && (peek || receiving.claim(&header));
        is_it.then(|| datagram(&header, len)).flatten()
    }

    /// The reader's side of a socket, which knows what the engine has taken back.
    #[inline]
    fn udp_side(&self, sock: SockId) -> Option<(&SockLocal, Cell<'_>, Guard<'_, RxSide>)> {
        let local = self.inner.sockets.find(sock)?;
        let cell = self.cell(sock.index)?;
        let mut rx = local.rx.lock();
        rx.tail = rx.tail.max(cell.rx_tail());
        Some((local, cell, rx))
    }

    /// Copies the payload of the datagram at an offset of the ring, as far as there is room.
    #[inline]
    fn udp_copy(
        &self,
        sock: SockId,
        cell: &Cell<'_>,
        at: u64,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Option<(Header, usize)> {
        let header = self.udp_header(sock, cell, at)?;
        let len = match header.len {
            0 => 0,
            len => self.copy_out(cell, at + HEADER as u64, len, bufs),
        };
        Some((header, len))
    }

    /// Begins to take several datagrams: no other thread takes one before this is dropped.
    pub fn udp_receiving(&self, sock: SockId) -> Option<Receiving<'_>> {
        let (_, cell, rx) = self.udp_side(sock)?;
        Some(Receiving {
            program: self,
            sock,
            cell,
            rx,
            is_any: false,
        })
    }

    /// Peeks at the datagram that contains the byte `skip` of all waiting ones (SO_PEEK_OFF), from
    /// that byte on; the second result is the number of its bytes before it. An empty one is found
    /// once: `found_empty`, which the caller keeps, is the end of the latest one found
    /// (__skb_try_recv_from_queue()).
    pub fn udp_peek_at(
        &self,
        sock: SockId,
        bufs: &mut [IoSliceMut<'_>],
        skip: usize,
        found_empty: &AtomicU64,
    ) -> Option<(Datagram, usize)> {
        let mut receiving = self.udp_receiving(sock)?;
        let known_to = found_empty.load(Ordering::Relaxed);
        loop {
            let at = receiving.rx.tail;
            let found = self.udp_find_at((sock, &receiving.cell), at, bufs, (skip, known_to));
            if receiving.is_there_still(at) {
                let (datagram, skip, end) = found?;
                if datagram.full_len == 0 {
                    found_empty.store(end, Ordering::Relaxed);
                }
                return Some((datagram, skip));
            }
        }
    }

    /// As [`ProgramEnd::udp_peek_at`], from a place of the ring on; also returns the end of the
    /// datagram there. `known_to`: empty ones up to there are passed over.
    fn udp_find_at(
        &self,
        (sock, cell): (SockId, &Cell<'_>),
        mut at: u64,
        bufs: &mut [IoSliceMut<'_>],
        (mut skip, known_to): (usize, u64),
    ) -> Option<(Datagram, usize, u64)> {
        loop {
            let header = self.udp_header(sock, cell, at)?;
            let end = at + header.record_len() as u64;
            let is_known = header.len == 0 && end <= known_to;
            if skip < header.len || (skip == 0 && !is_known) {
                let from = at + (HEADER + skip) as u64;
                let len = match header.len - skip {
                    0 => 0,
                    len => self.copy_out(cell, from, len, bufs),
                };
                return Some((datagram(&header, len)?, skip, end));
            }
            skip -= header.len;
            at = end;
        }
    }

    /// The header at an offset of the ring, if all of its datagram is there.
    pub(super) fn udp_header(&self, sock: SockId, cell: &Cell<'_>, at: u64) -> Option<Header> {
        let waiting = self.waiting(sock, cell, at);
        let mut bytes = [0; HEADER];
        if waiting < HEADER {
            return None;
        }
        let read = self.copy_out(cell, at, HEADER, &mut [IoSliceMut::new(&mut bytes)]);
        let header = Header::decode(&bytes).filter(|_| read == HEADER)?;
        (header.record_len() <= waiting).then_some(header)
    }

    /// Returns the place of the next datagram in the ring, and the length of its payload.
    pub fn udp_next_at(&self, sock: SockId) -> Option<(u64, usize)> {
        let mut receiving = self.udp_receiving(sock)?;
        let (header, _) = receiving.copy(&mut [])?;
        Some((receiving.rx.tail, header.len))
    }

    /// The offset after all that has come.
    pub fn udp_received_to(&self, sock: SockId) -> u64 {
        self.udp_side(sock).map_or(0, |(_, cell, rx)| {
            rx.tail + self.waiting(sock, &cell, rx.tail) as u64
        })
    }

    /// Length of the next datagram's payload (FIONREAD).
    pub fn udp_next_len(&self, sock: SockId) -> Option<usize> {
        self.udp_recv(sock, &mut [], true)
            .map(|datagram| datagram.full_len)
    }
}

/// A socket whose datagrams are being taken, one after the other. The engine learns of the room at
/// the end.
pub struct Receiving<'a> {
    program: &'a ProgramEnd,
    sock: SockId,
    cell: Cell<'a>,
    rx: Guard<'a, RxSide>,
    is_any: bool,
}

impl Receiving<'_> {
    /// Takes the next datagram, cut to the length of the buffers.
    pub fn take(&mut self, bufs: &mut [IoSliceMut<'_>]) -> Option<Datagram> {
        loop {
            let (header, len) = self.copy(bufs)?;
            if self.claim(&header) {
                return datagram(&header, len);
            }
        }
    }

    /// Copies the next datagram, cut to the length of the buffers, without taking it.
    #[inline]
    fn copy(&mut self, bufs: &mut [IoSliceMut<'_>]) -> Option<(Header, usize)> {
        loop {
            let at = self.rx.tail;
            let copied = self.program.udp_copy(self.sock, &self.cell, at, bufs);
            if self.is_there_still(at) {
                return copied;
            }
        }
    }

    /// Returns whether what was copied from `at` on was there all the time: the engine may have
    /// taken it back, and put something else there.
    #[inline]
    fn is_there_still(&mut self, at: u64) -> bool {
        fence(Ordering::Acquire);
        let tail = self.cell.rx_tail();
        self.rx.tail = at.max(tail);
        tail <= at
    }

    /// Makes the datagram at the reader's position this program's; `false`: the engine has taken it
    /// back.
    #[inline]
    fn claim(&mut self, header: &Header) -> bool {
        let at = self.rx.tail;
        let upto = at + header.record_len() as u64;
        let is_claimed = self.cell.claim_rx(at, upto);
        self.rx.tail = match is_claimed {
            true => upto,
            false => at.max(self.cell.rx_tail()),
        };
        self.is_any |= is_claimed;
        is_claimed
    }
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        if self.is_any {
            self.program
                .notify_consumed(self.sock, &self.cell, self.rx.tail);
        }
    }
}

fn datagram(header: &Header, len: usize) -> Option<Datagram> {
    Some(Datagram {
        len,
        full_len: header.len,
        from: header.envelope.peer?,
        to: header.envelope.local?,
        envelope: header.envelope,
    })
}
