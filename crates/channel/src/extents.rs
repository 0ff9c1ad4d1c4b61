//! Parts of send streams that lie outside their rings, in memory that a program filled before it
//! chose the connection.
//!
//! The ring reserves their room. A reader that needs more than two pieces of memory at once, or
//! bytes that outlive the program, copies them to their place in the ring.

use std::collections::{BTreeMap, VecDeque};

use slipstack_mem::{ByteRing, RawSlice};

use crate::engine_end::{Contradiction, EngineEnd};
use crate::ids::SockId;

/// Extents of one program that the engine knows, at most.
pub(crate) const EXTENTS_MAX: usize = 32_768;

/// A contiguous range of a stream that lies somewhere else in the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Offset in the region of the first byte.
    pub(crate) place: usize,
}

impl Extent {
    pub(crate) fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether `next` goes on where this one ends, in the stream and in memory.
    pub(crate) fn is_continued_by(&self, next: &Extent) -> bool {
        self.end == next.start && self.place + self.len() == next.place
    }

    /// The part of it in `[from, upto)`.
    pub(crate) fn part(&self, from: u64, upto: u64) -> Option<Extent> {
        let (start, end) = (self.start.max(from), self.end.min(upto));
        (start < end).then(|| Extent {
            start,
            end,
            place: self.place + (start - self.start) as usize,
        })
    }
}

/// Returns the stretches of `[from, upto)` that no extent covers; `extents` are in order.
pub(crate) fn gaps(
    extents: &VecDeque<Extent>,
    from: u64,
    upto: u64,
) -> impl Iterator<Item = (u64, usize)> {
    let ends = extents.iter().map(|extent| (extent.start, extent.end));
    let mut at = from;
    ends.chain([(upto, upto)]).filter_map(move |(start, end)| {
        let gap = (at, start.min(upto).saturating_sub(at) as usize);
        at = at.max(end);
        (gap.1 > 0).then_some(gap)
    })
}

/// A program's extents as the engine knows them, by the sockets' indices.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    of: BTreeMap<u32, VecDeque<Extent>>,
    count: usize,
}

impl Extents {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// `false`: they overlap, or are too many.
    fn add(&mut self, sock: SockId, extent: Extent) -> bool {
        let extents = self.of.entry(sock.index).or_default();
        match extents.back_mut() {
            Some(last) if last.end > extent.start => return false,
            Some(last) if last.is_continued_by(&extent) => last.end = extent.end,
            _ if self.count >= EXTENTS_MAX => return false,
            _ => {
                extents.push_back(extent);
                self.count += 1;
            }
        }
        true
    }

    #[inline]
    pub(crate) fn forget(&mut self, sock: SockId) {
        if !self.is_empty() {
            self.remove(sock);
        }
    }

    #[cold]
    fn remove(&mut self, sock: SockId) {
        if let Some(extents) = self.of.remove(&sock.index) {
            self.count -= extents.len();
        }
    }

    /// The peer has everything before `acked`.
    #[inline(never)]
    pub(crate) fn forget_before(&mut self, sock: SockId, acked: u64) {
        let Some(extents) = self.of.get_mut(&sock.index) else {
            return;
        };
        while extents.front().is_some_and(|first| first.end <= acked) {
            extents.pop_front();
            self.count -= 1;
        }
        if extents.is_empty() {
            self.of.remove(&sock.index);
        }
    }
}

/// Two pieces of memory, or the news that there are more.
struct Pieces<'a> {
    found: [RawSlice<'a>; 2],
    count: usize,
    are_too_many: bool,
}

impl<'a> Pieces<'a> {
    fn add<const N: usize>(&mut self, more: [RawSlice<'a>; N]) {
        for piece in more.into_iter().filter(|piece| !piece.is_empty()) {
            match self.found.get_mut(self.count) {
                Some(place) => *place = piece,
                None => self.are_too_many = true,
            }
            self.count += 1;
        }
    }
}

impl EngineEnd {
    /// Notes an extent that the program has announced.
    pub fn add_extent(&mut self, sock: SockId, at: u64, place: u64, len: u64) {
        let lies_in = |start: u64, len: u64, bounds: (u64, u64)| {
            len > 0
                && start >= bounds.0
                && start.checked_add(len).is_some_and(|end| end <= bounds.1)
        };
        let arena = (self.send_arena.start as u64, self.send_arena.end as u64);
        // Half of all offsets fit beside a flag.
        if !lies_in(place, len, arena) || !lies_in(at, len, (0, u64::MAX >> 1)) {
            self.note_contradiction(Contradiction::SendRing);
            return;
        }
        let extent = Extent {
            start: at,
            end: at + len,
            place: place as usize,
        };
        if !self.extents.add(sock, extent) {
            self.note_contradiction(Contradiction::SendRing);
        }
    }

    /// Returns the position up to which bytes may be gathered if the program's head is `head`: not
    /// beyond the known extents, while the last one announced, which ends at `extents_end`, has not
    /// arrived. `seen` is the head at the last look.
    #[cold]
    pub(crate) fn known_head(&self, sock: SockId, extents_end: u64, head: u64, seen: u64) -> u64 {
        let last = self.extents.of.get(&sock.index).and_then(VecDeque::back);
        let known = last.map_or(0, |last| last.end);
        match extents_end <= known {
            true => head,
            false => head.min(known.max(seen)),
        }
    }

    /// As [`ByteRing::slices`], for a stream parts of which may lie outside the ring.
    #[inline(never)]
    pub(crate) fn gather_extents(
        &self,
        sock: SockId,
        ring: ByteRing,
        at: u64,
        len: usize,
    ) -> [RawSlice<'_>; 2] {
        let upto = at + len as u64;
        let Some(extents) = self.extents.of.get(&sock.index) else {
            return ring.slices(self.region(), at, len);
        };
        let first = extents.partition_point(|extent| extent.end <= at);
        let mut pieces = Pieces {
            found: [RawSlice::EMPTY; 2],
            count: 0,
            are_too_many: false,
        };
        let mut next = at;
        for extent in extents.range(first..).map_while(|it| it.part(at, upto)) {
            pieces.add(ring.slices(self.region(), next, (extent.start - next) as usize));
            let piece = self.region().slice(extent.place, extent.len());
            pieces.add([piece.unwrap_or(RawSlice::EMPTY)]);
            next = extent.end;
        }
        pieces.add(ring.slices(self.region(), next, (upto - next) as usize));
        if !pieces.are_too_many {
            return pieces.found;
        }
        self.settle_extents(sock, ring, at, upto);
        ring.slices(self.region(), at, len)
    }

    /// Copies the extents in `[from, upto)` to their place in the ring.
    pub(crate) fn settle_extents(&self, sock: SockId, ring: ByteRing, from: u64, upto: u64) {
        let extents = self.extents.of.get(&sock.index);
        let parts = extents.into_iter().flatten();
        for part in parts.filter_map(|extent| extent.part(from, upto)) {
            ring.copy_in(self.region(), part.start, part.place, part.len());
        }
    }
}
