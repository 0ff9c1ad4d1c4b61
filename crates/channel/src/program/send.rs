//! Stream bytes from the program to the engine.
//!
//! The program owns the send rings: it allocates one for the first byte, replaces it by a larger
//! one when it is full and takes it back when everything is acknowledged. The engine gathers
//! frames straight from the ring, so a replaced ring is freed only once the engine has said that
//! it reads from a newer one.

use core::sync::atomic::Ordering;
use std::io::IoSlice;

use slipstack_mem::{ByteRing, RingWord};

use crate::cell::Cell;
use crate::command::Command;
use crate::ids::SockId;
use crate::layout::PUNCH_MIN;
use crate::shrink::Lap;

use super::ProgramEnd;
use super::sockets::{SockLocal, TxSide};

/// Sockets that [`ProgramEnd::release_idle`] checks without success before it gives up.
const RELEASE_PATIENCE: u32 = 32;
/// Datagram bytes that may wait to be sent before the engine has set a limit.
const SNDBUF_UNSEEN: u64 = 212_992;

impl ProgramEnd {
    /// Returns the number of bytes that [`ProgramEnd::send`] would take now. If it is zero, the
    /// engine will report when there is room again.
    pub fn tx_space(&self, sock: SockId) -> usize {
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return 0;
        };
        let Some(head) = local.tx.lock().open_head() else {
            return 0;
        };
        let space = self.space(sock, &cell, head);
        if space > 0 {
            return space;
        }
        cell.want_tx();
        self.space(sock, &cell, head)
    }

    /// Returns whether a third of the send buffer is free, Linux's condition for a writable socket.
    /// If not, the engine will report when it is.
    pub fn is_writable(&self, sock: SockId) -> bool {
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return false;
        };
        let Some(head) = local.tx.lock().open_head() else {
            return false;
        };
        let enough = |space: usize| space as u64 * 3 >= self.limit(sock, &cell);
        if enough(self.space(sock, &cell, head)) {
            return true;
        }
        cell.want_tx();
        enough(self.space(sock, &cell, head))
    }

    /// Bytes written that the peer has not acknowledged (SIOCOUTQ).
    pub fn tx_unacked(&self, sock: SockId) -> usize {
        match (self.inner.sockets.find(sock), self.cell(sock.index)) {
            (Some(local), Some(cell)) => {
                let head = local.tx.lock().head;
                head.saturating_sub(self.acked(sock, &cell)) as usize
            }
            _ => 0,
        }
    }

    /// Returns the number of written bytes that have not been sent, as far as the engine has
    /// reported ([`ProgramEnd::tell_sent`]).
    pub fn tx_unsent(&self, sock: SockId) -> usize {
        match (self.inner.sockets.find(sock), self.cell(sock.index)) {
            (Some(local), Some(cell)) => {
                let head = local.tx.lock().head;
                let gone = self.acked(sock, &cell).max(cell.tx_sent());
                head.saturating_sub(gone) as usize
            }
            _ => 0,
        }
    }

    /// Asks the engine to publish how far written data has been sent.
    pub fn tell_sent(&self, sock: SockId) {
        self.push(Command::TellSent { sock });
    }

    /// Requests a report when less than half of `low_water` bytes are unsent.
    pub fn want_sent(&self, sock: SockId, low_water: u32) {
        if let Some(cell) = self.cell(sock.index)
            && cell.want_sent(low_water)
        {
            self.tell_sent(sock);
        }
    }

    /// As [`ProgramEnd::tx_unacked`]; while there are any, the engine reports when they become
    /// fewer and two thirds of the buffer or less.
    pub fn await_acked(&self, sock: SockId) -> usize {
        if let Some(cell) = self.cell(sock.index) {
            cell.want_tx();
        }
        self.tx_unacked(sock)
    }

    /// The limit of bytes that wait to be sent or acknowledged (SO_SNDBUF).
    pub fn tx_limit(&self, sock: SockId) -> usize {
        self.cell(sock.index)
            .map_or(0, |cell| self.limit(sock, &cell) as usize)
    }

    /// The size of the receive buffer (SO_RCVBUF), as it is now.
    pub fn rx_limit(&self, sock: SockId) -> usize {
        self.cell(sock.index)
            .filter(|cell| cell.state().generation == sock.generation)
            .map_or(0, |cell| cell.rcvbuf() as usize)
    }

    pub(super) fn limit(&self, sock: SockId, cell: &Cell<'_>) -> u64 {
        if cell.state().generation == sock.generation {
            cell.sndbuf()
        } else {
            SNDBUF_UNSEEN
        }
    }

    pub(super) fn acked(&self, sock: SockId, cell: &Cell<'_>) -> u64 {
        if cell.state().generation == sock.generation {
            cell.tx_tail()
        } else {
            0
        }
    }

    pub(super) fn space(&self, sock: SockId, cell: &Cell<'_>, head: u64) -> usize {
        let used = head.saturating_sub(self.acked(sock, cell));
        self.limit(sock, cell).saturating_sub(used) as usize
    }

    /// Copies as much as there is room for into the send ring and notifies the engine. `more`: the
    /// program will send more at once (MSG_MORE). Returns the bytes taken; if they are fewer than
    /// given, the engine will report when there is room, or [`ProgramEnd::notify_starved`] when
    /// there is memory.
    pub fn send(&self, sock: SockId, bufs: &[IoSlice<'_>], more: bool) -> usize {
        self.put(sock, bufs, more, |_, _| {})
    }

    /// `announce` is called with the end of the bytes before the engine hears of them, and with
    /// whether they are all.
    #[cold]
    pub(super) fn send_marked(
        &self,
        sock: SockId,
        bufs: &[IoSlice<'_>],
        announce: impl FnOnce(u64, bool),
    ) -> usize {
        self.put(sock, bufs, false, announce)
    }

    #[inline]
    fn put(
        &self,
        sock: SockId,
        bufs: &[IoSlice<'_>],
        more: bool,
        announce: impl FnOnce(u64, bool),
    ) -> usize {
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return 0;
        };
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        if total == 0 {
            return 0;
        }
        let mut tx = local.tx.lock();
        let mut space = self.space(sock, &cell, tx.head);
        if space < total {
            cell.want_tx();
            space = self.space(sock, &cell, tx.head);
        }
        let wanted = total.min(space);
        let mut room = self.make_room(sock, &cell, &mut tx, wanted);
        if room < wanted {
            room = self.starve(sock, &cell, &mut tx, wanted);
        }
        let Some(ring) = tx.ring.filter(|_| room > 0) else {
            return 0;
        };
        let end = tx.head + room as u64;
        for buf in bufs {
            let len = buf.len().min((end - tx.head) as usize);
            ring.write(&self.inner.region, tx.head, &buf[..len]);
            tx.head += len as u64;
        }
        announce(tx.head, room == total);
        self.publish(sock, &cell, &tx, more);
        room
    }

    /// Sees to it that the ring takes `wanted` more bytes; returns how many it takes: none if it is
    /// sealed.
    pub(super) fn make_room(
        &self,
        sock: SockId,
        cell: &Cell<'_>,
        tx: &mut TxSide,
        wanted: usize,
    ) -> usize {
        if tx.is_sealed {
            return 0;
        }
        let acked = self.acked(sock, cell);
        let used = tx.head.saturating_sub(acked) as usize;
        if tx.retired.get().is_some() {
            self.reap(sock, cell, tx);
        }
        if tx.lent.is_some() {
            self.reap_lent(tx, acked);
        }
        if let Some(ring) = tx.ring
            && ring.size() - used.min(ring.size()) >= wanted
        {
            if Lap::concerns(ring)
                && let Some(needed) = tx.lap.note(ring, tx.head, used + wanted)
                && let Some(smaller) = self.inner.arena.lock().allocate(needed)
            {
                self.attach_ring(sock, cell, tx, smaller, acked);
            }
            return wanted;
        }
        if wanted == 0 {
            return 0;
        }
        let need = match tx.ring {
            // Growing doubles at least, so that a stream's bytes are copied once on average.
            Some(ring) => (used + wanted).max(ring.size() + 1),
            None => wanted,
        };
        let Some(larger) = self.allocate(need) else {
            let size = tx.ring.map_or(0, |ring| ring.size());
            return wanted.min(size - used.min(size));
        };
        self.attach_ring(sock, cell, tx, larger, acked);
        wanted.min(larger.size() - used.min(larger.size()))
    }

    fn attach_ring(
        &self,
        sock: SockId,
        cell: &Cell<'_>,
        tx: &mut TxSide,
        ring: ByteRing,
        acked: u64,
    ) {
        tx.generation = RingWord::detached(tx.generation).next_generation();
        tx.lap = Lap::NEW;
        if let Some(old) = tx.ring.replace(ring) {
            self.copy_ring(tx, &old, &ring, acked);
            let replaced_by = tx.generation;
            tx.retired.make().push((old, replaced_by));
        }
        cell.set_tx_ring(ring.word(tx.generation));
        if let Some(local) = self.inner.sockets.find(sock)
            && !local.is_listed.swap(true, Ordering::Relaxed)
        {
            self.inner.ring_holders.lock().push_back(sock.index);
        }
    }

    pub(super) fn allocate(&self, need: usize) -> Option<ByteRing> {
        if let Some(ring) = self.inner.arena.lock().allocate(need) {
            return Some(ring);
        }
        self.release_idle();
        self.inner.arena.lock().allocate(need)
    }

    /// Frees replaced rings that the engine no longer reads.
    fn reap(&self, sock: SockId, cell: &Cell<'_>, tx: &mut TxSide) {
        if cell.state().generation != sock.generation {
            return;
        }
        let seen = cell.tx_ring_seen();
        let mut arena = self.inner.arena.lock();
        let Some(retired) = tx.retired.get_mut() else {
            return;
        };
        retired.retain(|(ring, replaced_by)| {
            let is_seen = seen.wrapping_sub(*replaced_by) & 0x3fff_ffff < 0x2000_0000;
            if is_seen {
                self.give_back(&mut arena, *ring);
            }
            !is_seen
        });
        if retired.is_empty() {
            tx.retired.take();
        }
    }

    /// Frees send rings whose bytes are all acknowledged; stops after a bounded number of others.
    /// To be called before a thread blocks: an idle connection then owns no ring.
    pub fn release_idle(&self) {
        let mut patience = RELEASE_PATIENCE;
        let listed = self.inner.ring_holders.lock().len();
        for _ in 0..listed {
            let Some(index) = self.inner.ring_holders.lock().pop_front() else {
                return;
            };
            if !self.release_ring(index) {
                self.inner.ring_holders.lock().push_back(index);
                patience -= 1;
                if patience == 0 {
                    return;
                }
            }
        }
    }

    /// `false` when the socket of this index still owns a ring.
    fn release_ring(&self, index: u32) -> bool {
        let (Some(local), Some(cell)) = (self.inner.sockets.slot(index), self.cell(index)) else {
            return true;
        };
        let Some(mut tx) = local.tx.try_lock() else {
            return false;
        };
        let sock = SockId {
            index,
            generation: local.generation.load(Ordering::Acquire),
        };
        if sock.generation != 0 {
            self.reap(sock, &cell, &mut tx);
            self.reap_lent(&mut tx, self.acked(sock, &cell));
        }
        let is_idle = sock.generation != 0 && self.acked(sock, &cell) == tx.head;
        if is_idle && let Some(ring) = tx.ring.take() {
            tx.generation = RingWord::detached(tx.generation).next_generation();
            cell.set_tx_ring(RingWord::detached(tx.generation));
            if ring.size() >= PUNCH_MIN {
                let _ = self.inner.region.punch(ring.offset(), ring.size());
            }
            self.give_back(&mut self.inner.arena.lock(), ring);
        }
        let owns_one = tx.ring.is_some() || tx.retired.get().is_some();
        local.is_listed.store(owns_one, Ordering::Relaxed);
        !owns_one
    }

    /// Bytes of the send arena in use.
    pub fn tx_memory(&self) -> usize {
        self.inner.arena.lock().in_use()
    }

    /// Frees all rings of a socket that the engine has released.
    pub(super) fn drop_rings(&self, local: &SockLocal) {
        let mut tx = local.tx.lock();
        self.reap_lent(&mut tx, u64::MAX);
        let mut arena = self.inner.arena.lock();
        if let Some(ring) = tx.ring.take() {
            self.give_back(&mut arena, ring);
        }
        for (ring, _) in tx.retired.take() {
            self.give_back(&mut arena, ring);
        }
        local.is_closing.store(true, Ordering::Release);
    }
}
