//! The engine's view of a send ring.

use core::net::SocketAddr;
use core::sync::atomic::{Ordering, fence};

use slipstack_mem::{ByteRing, RawSlice, RingWord};

use crate::datagram::{Envelope, HEADER, Header};
use crate::engine_end::{Contradiction, EngineEnd};
use crate::ids::SockId;

/// The engine's view of the bytes in a send ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Stream offset after the last byte.
    pub upto: u64,
    /// The program announced that more follows at once.
    pub more: bool,
}

/// The engine's view of a socket's send ring: its own checked copy of the program's words.
#[derive(Clone, Copy, Debug)]
pub struct SendSide {
    ring: Option<ByteRing>,
    generation: u32,
    head: u64,
    acked: u64,
}

impl SendSide {
    /// Before the program has sent anything.
    pub const NEW: SendSide = SendSide {
        ring: None,
        generation: 0,
        head: 0,
        acked: 0,
    };

    /// Reads the program's position and its ring. If they are invalid nothing changes.
    #[inline]
    pub fn look(&mut self, end: &mut EngineEnd, sock: SockId) -> Sent {
        let Some(cell) = end.cell(sock.index) else {
            return Sent {
                upto: self.head,
                more: false,
            };
        };
        cell.lower_tx();
        let (mut head, mark) = (cell.tx_head(), cell.tx_mark());
        let word = cell.tx_ring();
        let more = mark.is_more();
        let sent = |upto: u64| Sent { upto, more };
        if mark.extents_end() > self.acked {
            head = end.known_head(sock, mark.extents_end(), head, self.head);
        }
        if head < self.head {
            end.note_contradiction(Contradiction::Position);
            return sent(self.head);
        }
        if word.generation() != self.generation || self.ring.is_none() {
            self.adopt_ring(end, sock, word);
        }
        let size = self.ring.map_or(0, |ring| ring.size() as u64);
        if head - self.acked > size {
            // The ring cannot hold the announced bytes. If a fresh ring was attached after
            // everything was acknowledged, the old one is gone and this is invalid as well.
            end.note_contradiction(Contradiction::SendRing);
            return sent(self.head);
        }
        self.head = head;
        sent(head)
    }

    fn adopt_ring(&mut self, end: &mut EngineEnd, sock: SockId, word: RingWord) {
        if word.is_none() {
            if self.head == self.acked {
                self.ring = None;
            }
            return;
        }
        let Some(ring) = ByteRing::validate(word, &end.send_arena) else {
            end.note_contradiction(Contradiction::SendRing);
            return;
        };
        self.ring = Some(ring);
        self.generation = word.generation();
        if let Some(cell) = end.cell(sock.index) {
            cell.set_tx_ring_seen(word.generation());
        }
    }

    /// The bytes `[at, at + len)` of the stream of `sock`; empty when they are not all there.
    #[inline]
    pub fn gather<'a>(
        &self,
        end: &'a EngineEnd,
        sock: SockId,
        at: u64,
        len: usize,
    ) -> [RawSlice<'a>; 2] {
        match self.ring {
            Some(ring) if at >= self.acked && at + len as u64 <= self.head => {
                match end.extents.is_empty() {
                    true => ring.slices(&end.region, at, len),
                    false => end.gather_extents(sock, ring, at, len),
                }
            }
            _ => [RawSlice::EMPTY; 2],
        }
    }

    /// Copies bytes outside the ring into it, for a keeper that goes on without the program.
    pub fn settle_extents(&self, end: &EngineEnd, sock: SockId) {
        if let Some(ring) = self.ring {
            end.settle_extents(sock, ring, self.acked, self.head);
        }
    }

    /// Records that the peer has everything before `upto`; notifies the program if it waits for
    /// room. Returns `true` if it waits for bytes to be sent, and [`SendSide::tell_sent`] is to
    /// follow.
    #[inline]
    pub fn on_acked(&mut self, end: &mut EngineEnd, sock: SockId, upto: u64) -> bool {
        self.acked = upto.clamp(self.acked, self.head);
        if !end.extents.is_empty() {
            end.extents.forget_before(sock, self.acked);
        }
        let Some(cell) = end.cell(sock.index) else {
            return false;
        };
        cell.set_tx_tail(self.acked);
        fence(Ordering::SeqCst);
        cell.is_tx_wanted() && self.wake_above_low_water(end, sock)
    }

    /// Publishes that `unsent` of the bytes seen in the ring have not been sent yet
    /// (TCP_NOTSENT_LOWAT).
    pub fn tell_sent(&self, end: &mut EngineEnd, sock: SockId, unsent: u32) {
        let Some(cell) = end.cell(sock.index) else {
            return;
        };
        let sent = self.head.saturating_sub(unsent.into());
        cell.set_tx_sent(sent);
        fence(Ordering::SeqCst);
        let waiting = cell.tx_head().saturating_sub(sent);
        if cell.is_tx_wanted() && waiting.saturating_mul(2) < cell.low_water() {
            self.wake(end, sock);
        }
    }

    /// Tells the program that there is room, if it waits and a third of the buffer is free.
    #[inline]
    pub fn wake_writer(&self, end: &mut EngineEnd, sock: SockId) {
        let Some(cell) = end.cell(sock.index) else {
            return;
        };
        fence(Ordering::SeqCst);
        if cell.is_tx_wanted() {
            self.wake_above_low_water(end, sock);
        }
    }

    /// As [`SendSide::on_acked`].
    fn wake_above_low_water(&self, end: &mut EngineEnd, sock: SockId) -> bool {
        let Some(cell) = end.cell(sock.index) else {
            return false;
        };
        if cell.low_water() != 0 {
            return true;
        }
        self.wake(end, sock);
        false
    }

    fn wake(&self, end: &mut EngineEnd, sock: SockId) {
        let Some(cell) = end.cell(sock.index) else {
            return;
        };
        let used = cell.tx_head().saturating_sub(self.acked);
        let limit = cell.sndbuf();
        if limit.saturating_sub(used).saturating_mul(3) >= limit {
            cell.clear_tx_wanted();
            end.changed(sock);
        }
    }

    pub fn head(&self) -> u64 {
        self.head
    }

    pub fn acked(&self) -> u64 {
        self.acked
    }

    pub fn ring(&self) -> Option<ByteRing> {
        self.ring
    }

    /// Returns the peer that the envelope of the next datagram names.
    pub fn next_peer(&self, end: &EngineEnd) -> Option<SocketAddr> {
        let held = (self.head - self.acked) as usize;
        let mut bytes = [0; HEADER];
        let ring = self.ring?;
        ring.read(&end.region, self.acked, &mut bytes[..HEADER.min(held)]);
        Header::decode(&bytes)?.envelope.peer
    }

    /// Copies the next datagram's payload out and returns its envelope; everything up to its end
    /// counts as sent. `may_go` is asked first, with the length of the payload.
    pub fn next_datagram(
        &mut self,
        end: &mut EngineEnd,
        sock: SockId,
        payload: &mut Vec<u8>,
        may_go: impl FnOnce(usize) -> bool,
    ) -> Option<Envelope> {
        let held = (self.head - self.acked) as usize;
        if held == 0 {
            return None;
        }
        let mut bytes = [0; HEADER];
        let ring = self.ring?;
        let read = ring.read(&end.region, self.acked, &mut bytes[..HEADER.min(held)]);
        let header = Header::decode(&bytes).filter(|_| read == HEADER);
        let Some(header) = header.filter(|header| header.record_len() <= held) else {
            end.note_contradiction(Contradiction::Datagram);
            return None;
        };
        if !may_go(header.len) {
            return None;
        }
        payload.resize(header.len, 0);
        ring.read(&end.region, self.acked + HEADER as u64, payload);
        let upto = self.acked + header.record_len() as u64;
        self.on_acked(end, sock, upto);
        Some(header.envelope)
    }
}
