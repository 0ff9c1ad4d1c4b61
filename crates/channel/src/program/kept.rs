//! Received bytes that a program keeps in place beyond the call that returned them, and gives back
//! in any order.
//!
//! To the engine they are unread, so that their room is not reused: a program that never gives them
//! back stalls its own connection. A ring that is replaced meanwhile stays until all of it has been
//! given back ([`crate::retired`]).

use core::sync::atomic::{Ordering, fence};

use slipstack_mem::{ByteRing, RawSlice};

use crate::ids::SockId;

use super::ProgramEnd;
use super::sockets::Kept;

/// Segments of one connection that are kept, at most.
pub const KEPT_MAX: usize = 1024;

/// Bytes to be kept, and the position by which they are given back.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    pub at: u64,
    /// Two pieces if the end of the ring is between them.
    pub pieces: [RawSlice<'a>; 2],
}

/// Reasons for which nothing is given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepError {
    Nothing,
    /// [`KEPT_MAX`] are out.
    Full,
}

impl ProgramEnd {
    /// Returns up to `most` received bytes, to be kept in place.
    pub fn keep(&self, sock: SockId, most: usize) -> Result<Segment<'_>, KeepError> {
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return Err(KeepError::Nothing);
        };
        let mut rx = local.rx.lock();
        if rx.kept_count() >= KEPT_MAX {
            return Err(KeepError::Full);
        }
        // An engine that replaces the ring from here on finds the mark, or the ring below is the
        // new one.
        cell.set_rx_kept(true);
        fence(Ordering::SeqCst);
        let at = rx.tail;
        let len = self.waiting(sock, &cell, at).min(most);
        let ring = ByteRing::validate(cell.rx_ring(), &self.inner.receive_arena);
        let Some(ring) = ring.filter(|_| len > 0) else {
            cell.set_rx_kept(rx.kept_count() > 0);
            return Err(KeepError::Nothing);
        };
        rx.kept.make().push_back(Kept {
            start: at,
            is_back: false,
        });
        rx.tail += len as u64;
        self.consumed(sock, &cell, &rx);
        let pieces = ring.slices(&self.inner.region, at, len);
        Ok(Segment { at, pieces })
    }

    /// Handles the close of the socket: kept bytes count as read.
    pub(super) fn give_all_back(&self, sock: SockId) {
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return;
        };
        if cell.rx_kept() {
            let mut rx = local.rx.lock();
            rx.kept.take();
            self.consumed(sock, &cell, &rx);
        }
    }

    /// Takes back the segment at a position; returns `false` if none was given out there.
    pub fn give_segment_back(&self, sock: SockId, at: u64) -> bool {
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return false;
        };
        let mut rx = local.rx.lock();
        let Some(all) = rx.kept.get_mut() else {
            return false;
        };
        let found = all.binary_search_by_key(&at, |kept| kept.start);
        let Some(kept) = found.ok().and_then(|index| all.get_mut(index)) else {
            return false;
        };
        if std::mem::replace(&mut kept.is_back, true) {
            return false;
        }
        while all.front().is_some_and(|first| first.is_back) {
            all.pop_front();
        }
        self.consumed(sock, &cell, &rx);
        if rx.kept_count() == 0 {
            cell.set_rx_read(0);
            cell.set_rx_kept(false);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::recv::tests::receiving;

    const STEP: u64 = 1 << 20;

    fn bytes(segment: &Segment<'_>) -> Vec<u8> {
        let [first, second] = segment.pieces;
        let mut out = vec![0; first.len() + second.len()];
        first.copy_to(&mut out);
        second.copy_to(&mut out[first.len()..]);
        out
    }

    #[test]
    fn segments_stay_as_they_are_while_the_ring_grows_and_come_back_in_any_order() {
        let (mut engine, program, sock, mut ring) = receiving();
        assert!(ring.store(&mut engine, sock, 0, &[1; 1000]));
        ring.publish(&mut engine, sock, 1000, STEP);
        let first = program.keep(sock, 600).unwrap();
        let second = program.keep(sock, 600).unwrap();
        assert_eq!(program.keep(sock, 1).err(), Some(KeepError::Nothing));
        assert_eq!(program.rx_available(sock), 0);

        assert!(ring.store(&mut engine, sock, 1000, &[2; 100_000]));
        ring.publish(&mut engine, sock, 101_000, STEP);
        assert_eq!(engine.retired.len(), 1);
        let third = program.keep(sock, usize::MAX).unwrap();
        assert_eq!(
            (bytes(&first), bytes(&second)),
            (vec![1; 600], vec![1; 400])
        );
        assert_eq!(bytes(&third), vec![2; 100_000]);

        assert!(program.give_segment_back(sock, second.at));
        assert!(!program.give_segment_back(sock, second.at));
        assert!(!program.give_segment_back(sock, 7));
        assert_eq!(ring.unread(&mut engine, sock), 101_000);
        assert!(program.give_segment_back(sock, first.at));
        assert_eq!(ring.unread(&mut engine, sock), 100_000);
        assert!(program.give_segment_back(sock, third.at));
        assert!(ring.release_if_empty(&mut engine, sock));
        assert!(engine.retired.is_empty());
        assert_eq!(engine.arena.in_use(), 0);
    }
}
