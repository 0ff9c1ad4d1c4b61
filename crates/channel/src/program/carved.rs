//! Memory that a program fills before it chooses the connection, and then adds to that connection's
//! stream: the engine gathers frames from it.
//!
//! A piece is carved from blocks of the send arena, one behind the other, so that pieces sent one
//! after the other are contiguous. A block is free again once the program holds nothing in it and
//! everything in it has been acknowledged.

use std::io::IoSlice;

use slipstack_mem::{ByteRing, RING_LOG2_MAX, RawSpace};

use crate::cell::Cell;
use crate::command::Command;
use crate::extents::{EXTENTS_MAX, Extent, gaps};
use crate::ids::SockId;

use super::ProgramEnd;
use super::sockets::TxSide;

/// The longest piece.
pub const CARVED_MAX: usize = 1 << RING_LOG2_MAX;
/// Fewer bytes are copied into the ring: a copy of so few costs less than an extent.
const LENT_MIN: usize = 4096;
/// The shortest block. As the next one is used while the last is acknowledged, short blocks keep a
/// program that makes its pieces one after the other in memory which its processor has cached.
const BLOCK_MIN: usize = 256 << 10;
/// Pieces begin at multiples of this.
const ALIGN: usize = 8;
/// Blocks that are free keep their pages while all blocks together are not larger.
const WARM_MAX: usize = 16 << 20;
/// Room in the send buffer for which a chain of pieces waits.
const CHAIN_ROOM: usize = 2048;
/// Extents of one connection that are not acknowledged, at most; further bytes are copied.
const EXTENTS_OF_ONE_MAX: usize = 1024;

/// A piece of memory, to be given back by [`ProgramEnd::give_carved_back`].
#[derive(Debug, PartialEq, Eq)]
pub struct Carved {
    place: usize,
    len: usize,
}

impl Carved {
    #[expect(clippy::len_without_is_empty, reason = "a piece is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// Bytes to be sent.
#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    Bytes(&'a [u8]),
    /// Offset in the region and length of a part of a piece.
    Piece(usize, usize),
}

impl Source<'_> {
    fn len(&self) -> usize {
        match self {
            Source::Bytes(bytes) => bytes.len(),
            Source::Piece(_, len) => *len,
        }
    }
}

impl ProgramEnd {
    /// Memory for `len` bytes, at most [`CARVED_MAX`]; `None` if there is none.
    pub fn carve(&self, len: usize) -> Option<Carved> {
        let room = len.next_multiple_of(ALIGN);
        if len == 0 || room > CARVED_MAX {
            return None;
        }
        if let Some(place) = self.inner.carvings.lock().take(room) {
            return Some(Carved { place, len });
        }
        // Half of the arena is for rings.
        let held_max = self.inner.arena.lock().range().len() / 2;
        if self.inner.carvings.lock().held + room.max(BLOCK_MIN) > held_max {
            return None;
        }
        let block = self.allocate(room.max(BLOCK_MIN))?;
        let (before, place) = {
            let mut carvings = self.inner.carvings.lock();
            (carvings.begin(block), carvings.take(room))
        };
        self.free_block(before);
        place.map(|place| Carved { place, len })
    }

    /// Returns the place of a piece.
    pub fn carved_space(&self, piece: &Carved) -> RawSpace<'_> {
        let space = self.inner.region.space(piece.place, piece.len);
        space.unwrap_or(RawSpace::EMPTY)
    }

    /// Copies bytes into a piece; `false`: they are too many.
    pub fn fill_carved(&self, piece: &Carved, at: usize, bytes: &[u8]) -> bool {
        let is_room = at <= piece.len && bytes.len() <= piece.len - at;
        is_room && self.inner.region.write_from(piece.place + at, bytes)
    }

    /// Copies the first bytes of a piece out; `false`: it has fewer.
    pub fn read_carved(&self, piece: &Carved, out: &mut [u8]) -> bool {
        out.len() <= piece.len && self.inner.region.read_into(piece.place, out)
    }

    /// Frees a piece; the parts of it that are in a stream stay until they are acknowledged.
    pub fn give_carved_back(&self, piece: Carved) {
        let last = self.inner.carvings.lock().leave_block(piece.place);
        self.free_block(last);
    }

    fn free_block(&self, block: Option<ByteRing>) {
        let Some(block) = block else { return };
        if self.inner.carvings.lock().held > WARM_MAX {
            let _ = self.inner.region.punch(block.offset(), block.size());
        }
        self.give_back(&mut self.inner.arena.lock(), block);
    }

    /// As [`ProgramEnd::send`], for bytes in pieces of this program: they are not copied, and must
    /// not be changed; other bytes are copied. As FreeBSD does with a chain of buffers, all are
    /// taken if there is room for [`CHAIN_ROOM`] bytes, even beyond the limit of the send buffer,
    /// as long as the largest ring has room for them.
    pub fn send_carved(&self, sock: SockId, bufs: &[IoSlice<'_>]) -> usize {
        let total = bufs.iter().map(|buf| buf.len()).sum();
        let sources = bufs.iter().map(|buf| match self.place_of(buf) {
            Some(place) => Source::Piece(place, buf.len()),
            None => Source::Bytes(buf),
        });
        self.send_sources(sock, sources, total)
    }

    /// Returns the offset of bytes in the region if an extent for them is worthwhile.
    fn place_of(&self, bytes: &[u8]) -> Option<usize> {
        let place = self.inner.region.offset_of(bytes)?;
        let is_piece = || self.inner.carvings.lock().block_of(place).is_some();
        (bytes.len() >= LENT_MIN && is_piece()).then_some(place)
    }

    /// Sends the bytes of the sources, `total` in all; returns how many were taken.
    fn send_sources<'a>(
        &self,
        sock: SockId,
        sources: impl Iterator<Item = Source<'a>>,
        total: usize,
    ) -> usize {
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return 0;
        };
        let mut tx = local.tx.lock();
        let least = total.min(CHAIN_ROOM);
        if self.space(sock, &cell, tx.head) < least {
            cell.want_tx();
            if self.space(sock, &cell, tx.head) < least {
                return 0;
            }
        }
        let mut sent = 0;
        for source in sources {
            sent += self.put_source(sock, &cell, &mut tx, &source);
        }
        if sent < total {
            cell.want_tx();
        }
        self.publish(sock, &cell, &tx, false);
        sent
    }

    /// Puts as many bytes into the stream as the ring has room for.
    fn put_source(
        &self,
        sock: SockId,
        cell: &Cell<'_>,
        tx: &mut TxSide,
        source: &Source<'_>,
    ) -> usize {
        let len = source.len();
        let mut room = self.make_room(sock, cell, tx, len);
        if room < len {
            room = self.starve(sock, cell, tx, len);
        }
        let Some(ring) = tx.ring.filter(|_| room > 0) else {
            return 0;
        };
        let region = &self.inner.region;
        match *source {
            Source::Bytes(bytes) => {
                ring.write(region, tx.head, &bytes[..room]);
            }
            Source::Piece(place, _) if !self.lend(sock, tx, place, room) => {
                ring.copy_in(region, tx.head, place, room);
            }
            Source::Piece(..) => {}
        }
        tx.head += room as u64;
        room
    }

    /// Announces `len` bytes of a piece at the head of the stream; `false`: there are too many
    /// extents.
    fn lend(&self, sock: SockId, tx: &mut TxSide, place: usize, len: usize) -> bool {
        let extent = Extent {
            start: tx.head,
            end: tx.head + len as u64,
            place,
        };
        let is_noted = self.note_extent(tx, extent);
        if is_noted {
            self.push(Command::Extent {
                sock,
                at: extent.start,
                place: place as u64,
                len: len as u64,
            });
        }
        is_noted
    }

    /// Records bytes in a piece as an extent; returns `false` if there are too many extents.
    fn note_extent(&self, tx: &mut TxSide, extent: Extent) -> bool {
        let lent = tx.lent.get_or_insert_default();
        let mut carvings = self.inner.carvings.lock();
        let is_full = lent.extents.len() >= EXTENTS_OF_ONE_MAX || carvings.extents >= EXTENTS_MAX;
        match lent.extents.back_mut() {
            Some(last) if last.is_continued_by(&extent) && carvings.are_of_one(last, &extent) => {
                last.end = extent.end;
            }
            _ if is_full => return false,
            _ => {
                carvings.use_block(extent.place);
                carvings.extents += 1;
                lent.extents.push_back(extent);
            }
        }
        lent.end = extent.end;
        true
    }

    /// Releases the lent bytes that the peer has acknowledged.
    pub(super) fn reap_lent(&self, tx: &mut TxSide, acked: u64) {
        let Some(lent) = &mut tx.lent else { return };
        while let Some(first) = lent.extents.front().filter(|first| first.end <= acked) {
            let last = {
                let mut carvings = self.inner.carvings.lock();
                carvings.extents -= 1;
                carvings.leave_block(first.place)
            };
            lent.extents.pop_front();
            self.free_block(last);
        }
    }

    /// Copies the bytes of a ring from `acked` on to the ring that replaces it.
    pub(super) fn copy_ring(&self, tx: &TxSide, old: &ByteRing, new: &ByteRing, acked: u64) {
        let region = &self.inner.region;
        match &tx.lent {
            Some(lent) if !lent.extents.is_empty() => {
                for (at, len) in gaps(&lent.extents, acked, tx.head.max(acked)) {
                    old.copy_to(region, new, at, len);
                }
            }
            _ => {
                let live = tx.head.saturating_sub(acked) as usize;
                old.copy_to(region, new, acked, live);
            }
        }
    }

    /// Tells the engine how far a ring is filled.
    #[inline]
    pub(super) fn publish(&self, sock: SockId, cell: &Cell<'_>, tx: &TxSide, more: bool) {
        cell.set_tx_mark(tx.mark(more));
        cell.set_tx_head(tx.head);
        if cell.raise_tx() {
            self.push(Command::Send { sock });
        }
    }
}

#[cfg(test)]
#[path = "tests/carved.rs"]
mod tests;
