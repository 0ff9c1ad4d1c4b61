//! Access to bytes where they lie in the rings, for a program that wants to avoid a copy.
//!
//! The engine may replace a receive ring in any of its turns. The slices that
//! [`ProgramEnd::peek_in_place`] and [`ProgramEnd::datagram_in_place`] return are therefore valid
//! only until the engine's next turn; their callers run on the engine's thread or drive the engine
//! themselves.

use slipstack_mem::{ByteRing, RawSlice, RawSpace};

use crate::datagram::{Envelope, HEADER};
use crate::ids::SockId;

use super::ProgramEnd;

/// A received datagram in its ring.
#[derive(Clone, Copy, Debug)]
pub struct DatagramInPlace<'a> {
    pub envelope: Envelope,
    /// Two pieces if the payload wraps around the end of the ring.
    pub payload: [RawSlice<'a>; 2],
    /// See [`DatagramInPlace::end`].
    end: u64,
}

impl ProgramEnd {
    /// Returns the stream bytes that wait to be read: two pieces if they wrap around the end of
    /// the ring. They stay there until [`ProgramEnd::consume`].
    #[inline]
    pub fn peek_in_place(&self, sock: SockId) -> [RawSlice<'_>; 2] {
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return [RawSlice::EMPTY; 2];
        };
        let tail = local.rx.lock().tail;
        let len = self.waiting(sock, &cell, tail);
        match ByteRing::validate(cell.rx_ring(), &self.inner.receive_arena) {
            Some(ring) if len > 0 => ring.slices(&self.inner.region, tail, len),
            _ => [RawSlice::EMPTY; 2],
        }
    }

    /// Consumes up to `len` bytes that wait; returns how many.
    #[inline]
    pub fn consume(&self, sock: SockId, len: usize) -> usize {
        self.discard(sock, len)
    }

    /// Returns room in the send ring for up to `len` bytes, in two pieces if it wraps: less, or
    /// none, if the buffer is full or there is no memory. Then the engine reports when there is
    /// more. Bytes put there leave with [`ProgramEnd::commit`].
    #[inline]
    pub fn reserve(&self, sock: SockId, len: usize) -> [RawSpace<'_>; 2] {
        let none = [RawSpace::EMPTY, RawSpace::EMPTY];
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return none;
        };
        let mut tx = local.tx.lock();
        let mut space = self.space(sock, &cell, tx.head);
        if space < len {
            cell.want_tx();
            space = self.space(sock, &cell, tx.head);
        }
        let wanted = len.min(space);
        let mut room = self.make_room(sock, &cell, &mut tx, wanted);
        if room < wanted {
            room = self.starve(sock, &cell, &mut tx, wanted);
        }
        match tx.ring.filter(|_| room > 0) {
            Some(ring) => ring.spaces(&self.inner.region, tx.head, room),
            None => none,
        }
    }

    /// Sends the first `len` bytes of the last [`ProgramEnd::reserve`] of this socket. `more`: the
    /// program will send more at once.
    #[inline]
    pub fn commit(&self, sock: SockId, len: usize, more: bool) {
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return;
        };
        let mut tx = local.tx.lock();
        let room = tx.ring.map_or(0, |ring| {
            let used = tx.head.saturating_sub(self.acked(sock, &cell));
            (ring.size() as u64).saturating_sub(used)
        });
        let len = (len as u64).min(room);
        if len == 0 {
            return;
        }
        tx.head += len;
        self.publish(sock, &cell, &tx, more);
    }

    /// Returns the next datagram in place, without consuming it.
    pub fn datagram_in_place(&self, sock: SockId) -> Option<DatagramInPlace<'_>> {
        let local = self.inner.sockets.find(sock)?;
        let cell = self.cell(sock.index)?;
        let tail = local.rx.lock().tail;
        let header = self.udp_header(sock, &cell, tail)?;
        let payload = match header.len {
            0 => [RawSlice::EMPTY; 2],
            len => {
                let ring = ByteRing::validate(cell.rx_ring(), &self.inner.receive_arena)?;
                ring.slices(&self.inner.region, tail + HEADER as u64, len)
            }
        };
        Some(DatagramInPlace {
            envelope: header.envelope,
            payload,
            end: tail + header.record_len() as u64,
        })
    }

    /// Takes the datagram that [`ProgramEnd::datagram_in_place`] returned.
    pub fn consume_datagram(&self, sock: SockId, end: DatagramEnd) {
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return;
        };
        let mut rx = local.rx.lock();
        if end.0 > rx.tail && end.0 - rx.tail <= self.waiting(sock, &cell, rx.tail) as u64 {
            rx.tail = end.0;
            self.consumed(sock, &cell, &rx);
        }
    }
}

/// End of a datagram in its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramEnd(u64);

impl DatagramInPlace<'_> {
    pub fn end(&self) -> DatagramEnd {
        DatagramEnd(self.end)
    }
}
