//! The engine's side of a socket's receive ring.
//!
//! Bytes are stored at their offset, out of order too; the program sees them once the head has
//! passed them. The ring is allocated for the first byte, replaced by a larger one when bytes do
//! not fit, and freed when everything has been read.

use core::sync::atomic::{Ordering, fence};

use slipstack_mem::{ByteRing, RawSpace, RingWord};

use crate::datagram::{Envelope, HEADER, Header};
use crate::engine_end::{Contradiction, EngineEnd};
use crate::ids::SockId;
use crate::layout::PUNCH_MIN;
use crate::shrink::Lap;
use crate::urgent::{UrgentAhead, UrgentWord};

/// The engine's state of one receive ring.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRing {
    ring: Option<ByteRing>,
    generation: u32,
    /// The program has read up to here, as far as we looked.
    consumed: u64,
    /// The part of `consumed` that was reported to the stack. The position of the next notice is
    /// counted from here: counted from `consumed` it could run ahead of the reader for ever, and
    /// the window would never open again.
    notified_until: u64,
    /// In-order bytes published.
    head: u64,
    /// After the last byte stored, in order or not.
    stored_end: u64,
    lap: Lap,
}

impl ReceiveRing {
    /// Before anything has been received.
    pub const NEW: ReceiveRing = ReceiveRing {
        ring: None,
        generation: 0,
        consumed: 0,
        notified_until: 0,
        head: 0,
        stored_end: 0,
        lap: Lap::NEW,
    };

    /// Puts bytes at their stream offset. `false` = no room.
    // On the path of each segment; its other caller is cold.
    #[inline(always)]
    pub fn store(&mut self, end: &mut EngineEnd, sock: SockId, offset: u64, bytes: &[u8]) -> bool {
        let upto = offset + bytes.len() as u64;
        let Some(ring) = self.make_room(end, sock, offset, upto) else {
            return false;
        };
        ring.write(end.region(), offset, bytes);
        self.stored_end = self.stored_end.max(upto);
        true
    }

    /// Stores `len` bytes that `fill` writes itself. Returns `false` if there is no room or `fill`
    /// failed.
    pub fn store_with(
        &mut self,
        end: &mut EngineEnd,
        sock: SockId,
        (offset, len): (u64, usize),
        fill: impl FnOnce([RawSpace<'_>; 2]) -> bool,
    ) -> bool {
        let upto = offset + len as u64;
        let Some(ring) = self.make_room(end, sock, offset, upto) else {
            return false;
        };
        let is_filled = fill(ring.spaces(end.region(), offset, len));
        if is_filled {
            self.stored_end = self.stored_end.max(upto);
        }
        is_filled
    }

    /// The ring, if bytes from `offset` to `upto` have room in it.
    #[inline(always)]
    fn make_room(
        &mut self,
        end: &mut EngineEnd,
        sock: SockId,
        offset: u64,
        upto: u64,
    ) -> Option<ByteRing> {
        if offset < self.head {
            return None;
        }
        let fits = |ring: &ReceiveRing| {
            ring.ring
                .is_some_and(|ring_| upto - ring.consumed <= ring_.size() as u64)
        };
        if !fits(self) {
            self.observe(end, sock);
            if !fits(self) && !self.grow(end, sock, (upto - self.consumed) as usize) {
                return None;
            }
        }
        if self.ring.is_some_and(Lap::concerns) {
            self.note_use(end, sock, upto);
        }
        self.ring
    }

    #[inline(never)]
    fn grow(&mut self, end: &mut EngineEnd, sock: SockId, need: usize) -> bool {
        if self.ring.is_some() && !end.may_replace(sock) {
            return false;
        }
        // A stream that outgrew a ring will outgrow the next size too: twice is enough room.
        let wish = match self.ring {
            Some(ring) => need.max(2 * ring.size()),
            None => need,
        };
        let Some(larger) = end
            .arena
            .allocate(wish)
            .or_else(|| end.arena.allocate(need))
        else {
            return false;
        };
        self.replace(end, sock, larger);
        true
    }

    #[cold]
    fn note_use(&mut self, end: &mut EngineEnd, sock: SockId, upto: u64) {
        let Some(ring) = self.ring else { return };
        self.observe(end, sock);
        let live = self.stored_end.max(upto) - self.consumed;
        if let Some(needed) = self.lap.note(ring, upto, live as usize)
            && end.may_replace(sock)
            && let Some(smaller) = end.arena.allocate(needed)
        {
            self.replace(end, sock, smaller);
        }
    }

    fn replace(&mut self, end: &mut EngineEnd, sock: SockId, ring: ByteRing) {
        if let Some(old) = self.ring {
            let live = (self.stored_end - self.consumed) as usize;
            old.copy_to(end.region(), &ring, self.consumed, live);
        }
        let old = self.ring.replace(ring);
        self.lap = Lap::NEW;
        self.publish_ring(end, sock);
        if let Some(old) = old {
            end.retire(sock, old);
        }
    }

    fn publish_ring(&mut self, end: &mut EngineEnd, sock: SockId) {
        let last = RingWord::detached(self.generation);
        self.generation = last.next_generation();
        let word = match self.ring {
            Some(ring) => ring.word(self.generation),
            None => RingWord::detached(self.generation),
        };
        if let Some(cell) = end.cell(sock.index) {
            cell.set_rx_ring(word);
        }
    }

    /// Publishes in-order bytes up to `upto` and notifies the program. `step`: the program shall
    /// notify once it has read that many more bytes than the stack knows of.
    #[inline]
    pub fn publish(&mut self, end: &mut EngineEnd, sock: SockId, upto: u64, step: u64) {
        self.head = upto.clamp(self.head, self.stored_end);
        if let Some(cell) = end.cell(sock.index) {
            let mark = self.notified_until.saturating_add(step);
            if cell.notify_at() < mark {
                cell.set_notify_at(mark);
            }
            cell.set_rx_head(self.head);
        }
        end.changed(sock);
    }

    /// Publishes the peer's urgent mark at `at`, with the byte there once it has arrived. A reader
    /// at the former mark does not read that byte any more (Linux: tcp_check_urg).
    #[cold]
    pub fn mark_urgent(&mut self, end: &mut EngineEnd, sock: SockId, at: u64, byte: Option<u8>) {
        let tail = self.observe(end, sock);
        if let Some(cell) = end.cell(sock.index) {
            let former = cell.urgent().mark();
            if former == Some(tail) && former != Some(at) && tail < self.head {
                cell.set_urgent_skipped(tail + 1);
            }
            cell.set_urgent(UrgentWord::new(at, byte));
        }
        end.changed(sock);
    }

    /// Reads the program's position. The caller reports it to the stack.
    #[inline]
    pub fn look(&mut self, end: &mut EngineEnd, sock: SockId) -> u64 {
        self.notified_until = self.observe(end, sock);
        self.notified_until
    }

    /// Returns whether the program has yet to read something. Tells the caller no position.
    pub fn has_unread(&mut self, end: &mut EngineEnd, sock: SockId) -> bool {
        self.unread(end, sock) > 0
    }

    /// Bytes that the program has yet to read.
    pub fn unread(&mut self, end: &mut EngineEnd, sock: SockId) -> u64 {
        self.head - self.observe(end, sock)
    }

    #[inline]
    fn observe(&mut self, end: &mut EngineEnd, sock: SockId) -> u64 {
        let Some(tail) = end.cell(sock.index).map(|cell| cell.rx_tail()) else {
            return self.consumed;
        };
        if tail < self.consumed || tail > self.head {
            end.note_contradiction(Contradiction::Position);
        } else {
            self.consumed = tail;
        }
        self.consumed
    }

    /// Handles the program's notice that it has read far enough, and sets the position of the next
    /// notice.
    pub fn on_consumed(&mut self, end: &mut EngineEnd, sock: SockId, step: u64) -> u64 {
        let Some(cell) = end.cell(sock.index) else {
            return self.consumed;
        };
        cell.lower_rx();
        let consumed = self.look(end, sock);
        if let Some(cell) = end.cell(sock.index) {
            cell.set_notify_at(consumed + step);
            // The program may have passed the new mark before it was set.
            fence(Ordering::SeqCst);
            if cell.rx_tail() >= consumed + step {
                return self.look(end, sock);
            }
        }
        consumed
    }

    /// Frees the ring if everything in it has been read; otherwise the program notifies when it
    /// has. Returns `true` if no ring is attached afterwards.
    pub fn release_if_empty(&mut self, end: &mut EngineEnd, sock: SockId) -> bool {
        if self.ring.is_none() {
            return true;
        }
        if self.observe(end, sock) != self.stored_end {
            if let Some(cell) = end.cell(sock.index)
                && cell.notify_at() > self.stored_end
            {
                cell.set_notify_at(self.stored_end);
                fence(Ordering::SeqCst);
            }
            // The program may have read the rest before it could see the mark.
            if self.observe(end, sock) != self.stored_end {
                return false;
            }
        }
        self.release(end, sock);
        true
    }

    /// Frees the ring whatever is in it, because the program is done with the socket.
    pub fn release(&mut self, end: &mut EngineEnd, sock: SockId) {
        if !end.retired.is_empty() {
            end.free_retired(sock);
        }
        if let Some(ring) = self.ring.take() {
            self.publish_ring(end, sock);
            if ring.size() >= PUNCH_MIN {
                let _ = end.region().punch(ring.offset(), ring.size());
            }
            end.arena.free(ring);
        }
    }

    /// Returns all bytes received in order, for a connection that was never read from; `None` if it
    /// was, or if they are more than `max`.
    pub fn untouched(&self, end: &EngineEnd, max: usize) -> Option<Vec<u8>> {
        let len = usize::try_from(self.head).ok()?;
        if self.consumed != 0 || len > max {
            return None;
        }
        let mut bytes = vec![0; len];
        if let Some(ring) = self.ring {
            ring.read(end.region(), 0, &mut bytes);
        }
        Some(bytes)
    }

    /// Returns bytes received in order and not read; `None` when there are more than `max`.
    /// [`ReceiveRing::look`] comes before.
    pub fn rest(&self, end: &EngineEnd, max: usize) -> Option<Vec<u8>> {
        let len = usize::try_from(self.head - self.consumed).ok()?;
        if len > max {
            return None;
        }
        let mut bytes = vec![0; len];
        if let Some(ring) = self.ring {
            ring.read(end.region(), self.consumed, &mut bytes);
        }
        Some(bytes)
    }

    /// Returns the datagrams that the program has not read, at most `max` bytes of them.
    pub fn unread_datagrams(
        &mut self,
        end: &mut EngineEnd,
        sock: SockId,
        max: usize,
    ) -> Vec<(Envelope, Vec<u8>)> {
        self.observe(end, sock);
        let bytes = self.rest(end, max).unwrap_or_default();
        let found = parse_datagrams(&bytes);
        found
            .map(|(header, payload)| (header.envelope, payload.to_vec()))
            .collect()
    }

    /// Returns where the program reads next, and the oldest datagrams that it has not read, which
    /// take at most `max` bytes, each with the place behind it.
    pub fn oldest_datagrams(
        &mut self,
        end: &mut EngineEnd,
        sock: SockId,
        max: usize,
    ) -> (u64, Vec<(Envelope, Vec<u8>, u64)>) {
        let unread = self.unread(end, sock) as usize;
        let mut bytes = vec![0; unread.min(max)];
        if let Some(ring) = self.ring {
            ring.read(end.region(), self.consumed, &mut bytes);
        }
        let mut at = self.consumed;
        let found = parse_datagrams(&bytes).map(|(header, payload)| {
            at += header.record_len() as u64;
            (header.envelope, payload.to_vec(), at)
        });
        (self.consumed, found.collect())
    }

    /// Takes the datagrams back from `from` up to `upto`, which [`ReceiveRing::oldest_datagrams`]
    /// has returned; `false`: the program has read one of them meanwhile.
    pub fn take_back(&mut self, end: &EngineEnd, sock: SockId, from: u64, upto: u64) -> bool {
        let cell = end.cell(sock.index);
        let is_ours = cell.is_some_and(|cell| !cell.rx_kept() && cell.claim_rx(from, upto));
        if is_ours {
            self.consumed = upto;
        }
        is_ours
    }

    /// Returns the urgent data that the program has not read past. [`ReceiveRing::look`] comes
    /// before.
    pub fn urgent_ahead(&self, end: &EngineEnd, sock: SockId) -> UrgentAhead {
        let cell = end.cell(sock.index);
        cell.map_or_else(UrgentAhead::default, |cell| {
            UrgentAhead::of(&cell, self.consumed)
        })
    }

    /// Publishes the output of [`ReceiveRing::urgent_ahead`] in a ring from which nothing has been
    /// read. The bytes are published after it.
    pub fn restore_urgent(&mut self, end: &mut EngineEnd, sock: SockId, ahead: UrgentAhead) {
        let Some(cell) = end.cell(sock.index) else {
            return;
        };
        if ahead.skips_first {
            cell.set_urgent_skipped(self.consumed + 1);
        }
        if let Some((at, byte)) = ahead.mark {
            cell.set_urgent(UrgentWord::new(self.consumed + at, byte));
        }
    }

    #[inline]
    pub fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    pub fn head(&self) -> u64 {
        self.head
    }

    /// Returns the read position that was last reported to the stack.
    pub fn notified_until(&self) -> u64 {
        self.notified_until
    }

    /// Appends a datagram unless more than `limit` bytes would wait.
    pub fn push_datagram(
        &mut self,
        end: &mut EngineEnd,
        sock: SockId,
        envelope: &Envelope,
        payload: &[u8],
        limit: u64,
    ) -> bool {
        let header = Header {
            len: payload.len(),
            envelope: *envelope,
        };
        let record = header.record_len() as u64;
        self.observe(end, sock);
        let at = self.head;
        if at + record - self.consumed > limit {
            return false;
        }
        // The padding is reserved with the header's store so that the record is whole or absent.
        if !self.reserve(end, sock, at + record)
            || !self.store(end, sock, at, &header.encode())
            || !self.store(end, sock, at + HEADER as u64, payload)
        {
            return false;
        }
        self.stored_end = at + record;
        self.publish(end, sock, at + record, limit / 2);
        true
    }

    fn reserve(&mut self, end: &mut EngineEnd, sock: SockId, upto: u64) -> bool {
        let need = upto - self.consumed;
        match self.ring {
            Some(ring) if need <= ring.size() as u64 => true,
            _ => self.grow(end, sock, need as usize),
        }
    }
}

/// The whole datagrams in a copy of a ring.
fn parse_datagrams(bytes: &[u8]) -> impl Iterator<Item = (Header, &[u8])> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let (header, after) = rest.split_first_chunk::<HEADER>()?;
        // The program can write into the ring.
        let header = Header::decode(header)?;
        let payload = after.get(..header.len)?;
        rest = after.get(header.record_len() - HEADER..)?;
        Some((header, payload))
    })
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;

    use super::*;
    use crate::cell::Limits;
    use crate::program::ProgramEnd;
    use slipstack_terms::Transport;

    #[test]
    fn each_datagram_is_read_or_taken_back() {
        let mut engine = EngineEnd::create().unwrap();
        let program = ProgramEnd::open(engine.region().clone()).unwrap();
        let sock = program.open_socket(Transport::Udp).unwrap();
        assert!(engine.begin(
            sock,
            Limits {
                send: 0,
                receive: 1 << 16
            }
        ));
        let mut ring = ReceiveRing::NEW;
        let envelope = Envelope {
            peer: Some(([10, 0, 0, 2], 7).into()),
            local: Some(([10, 0, 0, 1], 53).into()),
            ..Envelope::default()
        };
        for number in 0..6u8 {
            assert!(ring.push_datagram(&mut engine, sock, &envelope, &[number; 30], 1 << 16));
        }
        let mut buf = [0; 40];
        let mut read = |program: &ProgramEnd| {
            let got = program.udp_recv(sock, &mut [IoSliceMut::new(&mut buf)], false);
            got.map(|it| (it.len, buf[0]))
        };
        assert_eq!(read(&program), Some((30, 0)));
        let (at, _) = program.udp_next_at(sock).unwrap();
        let (from, oldest) = ring.oldest_datagrams(&mut engine, sock, 250);
        let numbers: Vec<u8> = oldest.iter().map(|it| it.1[0]).collect();
        assert_eq!(numbers, [1, 2], "no more than so many bytes");
        assert_eq!(from, at);
        assert!(ring.take_back(&engine, sock, from, oldest[1].2));
        assert_eq!(program.udp_recv_at(sock, at, &mut [], false), None);
        let (from, oldest) = ring.oldest_datagrams(&mut engine, sock, 1 << 16);
        assert_eq!(read(&program), Some((30, 3)));
        assert!(!ring.take_back(&engine, sock, from, oldest[0].2));
        assert_eq!(program.rx_available(sock), 2 * (HEADER + 32));
        assert_eq!(read(&program), Some((30, 4)));
        assert_eq!(read(&program), Some((30, 5)));
        assert_eq!(read(&program), None);
        assert!(
            ring.oldest_datagrams(&mut engine, sock, 1 << 16)
                .1
                .is_empty()
        );
    }
}
