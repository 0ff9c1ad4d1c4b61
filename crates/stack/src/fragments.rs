//! Fragments that wait for the rest of their packets (RFC 791 3.2, RFC 8200 4.5, RFC 5722).
//!
//! Waiting fragments are bounded: in bytes including their overhead, in pieces of a packet, and in
//! time. A packet whose pieces contradict each other is refused together with all its later
//! fragments.
//!
//! Likewise RFC 1122 3.3.2.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::counters::Counter;
use crate::rng::SipKey;
use crate::time::Instant;

/// Pieces of one packet: a packet of 64 KiB over a link with an MTU of 576 has 119.
pub const PIECES_MAX: usize = 128;
/// Bytes that a packet and each of its pieces are charged besides their own.
const PACKET_COST: usize = 320;
const PIECE_COST: usize = 64;
/// Places that the first piece of a packet makes.
const FEW_PIECES: usize = 4;
/// Entries of the queue of deadlines that may belong to nothing any more, besides one for each
/// packet that waits.
const STALE_MAX: usize = 64;

/// Which packet a fragment belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub src: IpAddr,
    pub dst: IpAddr,
    /// RFC 8200 4.5: of no meaning in IPv6, where it is 0.
    pub protocol: u8,
    pub identification: u32,
}

/// A fragment whose format and addresses have been checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment<'a> {
    pub key: Key,
    pub offset: u16,
    pub has_more: bool,
    pub tos: u8,
    /// The whole packet that carried it, for an error about the first fragment.
    pub packet: &'a [u8],
    /// The header with which the fragmentable part begins, if this is the first.
    pub next_header: u8,
    pub payload: &'a [u8],
}

/// All of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    /// Next header of the first fragment.
    pub next_header: u8,
    pub tos: u8,
    pub payload: Vec<u8>,
}

/// A packet that was given up although its first fragment had come: that one, as far as an error
/// quotes it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    pub fragments: u64,
    pub first: Vec<u8>,
}

/// Reason why a fragment goes no further, with the number of fragments that go with it.
pub(crate) type Refusal = (Counter, u64);

#[derive(Debug)]
struct Piece {
    offset: u16,
    bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> usize {
        usize::from(self.offset) + self.bytes.len()
    }
}

#[derive(Debug)]
struct Partial {
    key: Key,
    hash: u64,
    deadline: Instant,
    /// In order, without overlap.
    pieces: Vec<Piece>,
    /// Payload bytes that are here.
    len: usize,
    /// Known from the last fragment.
    total: Option<usize>,
    next_header: u8,
    tos: u8,
    /// The ECN codepoints of all fragments, one bit each.
    ecn: u8,
    /// As much of the first fragment's packet as an error quotes.
    first: Vec<u8>,
    /// RFC 5722 4: all that still comes of it is dropped.
    is_refused: bool,
}

/// Buffers that the packet that made room leaves to the one that it was for.
#[derive(Debug, Default)]
struct Spare {
    pieces: Option<Vec<Piece>>,
    bytes: Option<Vec<u8>>,
}

impl Spare {
    /// Room for a piece, unless it would keep much more than is charged for it.
    fn room(&mut self, len: usize) -> Vec<u8> {
        let room = self.bytes.take().unwrap_or_default();
        if room.capacity() <= 2 * len {
            room
        } else {
            Vec::with_capacity(len)
        }
    }

    fn keep(&mut self, mut pieces: Vec<Piece>) {
        self.bytes = pieces.pop().map(|piece| piece.bytes);
        if let Some(bytes) = &mut self.bytes {
            bytes.clear();
        }
        pieces.clear();
        self.pieces = (pieces.capacity() <= FEW_PIECES).then_some(pieces);
    }
}

impl Partial {
    fn new(key: Key, hash: u64, deadline: Instant, spare: &mut Spare) -> Partial {
        Partial {
            key,
            hash,
            deadline,
            pieces: spare.pieces.take().unwrap_or_default(),
            len: 0,
            total: None,
            next_header: 0,
            tos: 0,
            ecn: 0,
            first: Vec::new(),
            is_refused: false,
        }
    }

    fn cost(&self) -> usize {
        PACKET_COST + self.first.len() + self.pieces.len() * PIECE_COST + self.len
    }

    /// Returns the position of a piece, or the error of an invalid one.
    fn place(&self, fragment: &Fragment<'_>) -> Result<usize, Counter> {
        let (begin, end) = (
            usize::from(fragment.offset),
            usize::from(fragment.offset) + fragment.payload.len(),
        );
        let at = self
            .pieces
            .partition_point(|piece| piece.offset < fragment.offset);
        let (before, after) = self.pieces.split_at(at);
        // RFC 8200 4.5: an exact duplicate may be ignored.
        let is_same = after.first().is_some_and(|next| {
            next.offset == fragment.offset && next.bytes.len() == fragment.payload.len()
        });
        // RFC 791 does not mention it: an IPv4 packet may have been fragmented differently (as on
        // Linux).
        let is_cut_again =
            fragment.has_more && fragment.key.src.is_ipv4() && self.covers(at, begin, end);
        if is_same || is_cut_again {
            return Err(Counter::DropFragmentDuplicate);
        }
        let overlaps = before.last().is_some_and(|last| last.end() > begin)
            || after
                .first()
                .is_some_and(|next| usize::from(next.offset) < end);
        let highest = self.pieces.last().map_or(0, Piece::end);
        let contradicts = match (fragment.has_more, self.total) {
            (true, Some(total)) => end > total,
            (true, None) => false,
            (false, Some(total)) => end != total,
            (false, None) => end < highest,
        };
        if overlaps || contradicts {
            return Err(Counter::DropFragmentOverlap);
        }
        if self.pieces.len() == PIECES_MAX {
            return Err(Counter::DropFragmentPieces);
        }
        Ok(at)
    }

    /// Returns whether all of these bytes are here; `at` is the first piece that does not begin
    /// before them.
    fn covers(&self, at: usize, begin: usize, end: usize) -> bool {
        let (before, after) = self.pieces.split_at(at);
        let reached = before.last().map_or(begin, |last| last.end().max(begin));
        if after
            .first()
            .is_none_or(|next| usize::from(next.offset) > reached)
        {
            return reached >= end;
        }
        let within = after.partition_point(|piece| usize::from(piece.offset) < end);
        let within = &after[..within];
        let beyond = within
            .last()
            .map_or(0, |last| last.end().saturating_sub(end));
        // Pieces do not overlap, so their lengths add up to the whole when nothing is missing.
        let held: usize = within.iter().map(|piece| piece.bytes.len()).sum();
        reached - begin + held - beyond >= end - begin
    }

    /// Puts a piece at its place; `bytes` is empty room.
    fn put(&mut self, at: usize, fragment: &Fragment<'_>, mut bytes: Vec<u8>, quote_len: usize) {
        bytes.extend_from_slice(fragment.payload);
        let offset = fragment.offset;
        self.pieces.insert(at, Piece { offset, bytes });
        self.len += fragment.payload.len();
        self.ecn |= 1 << (fragment.tos & 3);
        if !fragment.has_more {
            self.total = Some(usize::from(offset) + fragment.payload.len());
        }
        if offset == 0 {
            self.next_header = fragment.next_header;
            self.tos = fragment.tos;
            self.first = fragment.packet[..quote_len].to_vec();
        }
    }

    /// Drops its pieces, and remembers that it was refused.
    fn refuse(&mut self) -> u64 {
        let fragments = self.pieces.len() as u64;
        self.is_refused = true;
        self.pieces = Vec::new();
        self.first = Vec::new();
        self.len = 0;
        fragments
    }

    fn join(mut self) -> Result<Whole, Refusal> {
        // RFC 3168 5.3: congestion that one fragment met is the packet's; not with fragments of
        // senders that know nothing of it.
        let saw = |codepoint: u8| self.ecn & 1 << codepoint != 0;
        if saw(3) && saw(0) {
            return Err((Counter::DropFragmentEcn, self.refuse()));
        }
        let mut payload = Vec::with_capacity(self.len);
        for piece in &self.pieces {
            payload.extend_from_slice(&piece.bytes);
        }
        Ok(Whole {
            next_header: self.next_header,
            tos: self.tos | if saw(3) { 3 } else { 0 },
            payload,
        })
    }
}

/// The packets of one family that are not whole yet.
#[derive(Debug)]
pub(crate) struct Fragments {
    partials: HashTable<Partial>,
    /// In the order of arrival; some belong to packets that are gone.
    deadlines: VecDeque<(Instant, u64, Key)>,
    spare: Spare,
    hash_key: SipKey,
    /// Time for which the rest is waited for, in ns.
    patience_ns: u64,
    /// Bytes of a packet that an error about it quotes.
    quote_max: usize,
    cost: usize,
    cost_max: usize,
}

impl Fragments {
    pub fn new(hash_key: SipKey, patience_ns: u64, quote_max: usize, cost_max: usize) -> Self {
        Self {
            partials: HashTable::new(),
            deadlines: VecDeque::new(),
            spare: Spare::default(),
            hash_key,
            patience_ns,
            quote_max,
            cost: 0,
            cost_max,
        }
    }

    /// Bytes that are held, as they are charged.
    #[cfg(test)]
    pub fn cost(&self) -> usize {
        self.cost
    }

    /// Adds a fragment; returns `Ok(Some)` if it completes its packet. Refusals are reported to
    /// `on_refusal`, also of packets that had to make room.
    pub fn take(
        &mut self,
        now: Instant,
        fragment: &Fragment<'_>,
        mut on_refusal: impl FnMut(Refusal),
    ) -> Option<Whole> {
        let hash = hash_of(&self.hash_key, &fragment.key);
        let quote_len = self.quote_len(fragment);
        let charge = PIECE_COST + fragment.payload.len() + quote_len;
        if !self.make_room(PACKET_COST + charge, &mut on_refusal) {
            on_refusal((Counter::DropFragmentMemory, 1));
            return None;
        }
        let Self {
            partials,
            deadlines,
            spare,
            cost,
            patience_ns,
            ..
        } = self;
        let partial = match partials.entry(hash, |p| p.key == fragment.key, |p| p.hash) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let partial = Partial::new(fragment.key, hash, now.plus_nanos(*patience_ns), spare);
                *cost += partial.cost();
                deadlines.push_back((partial.deadline, hash, partial.key));
                entry.insert(partial).into_mut()
            }
        };
        if partial.is_refused {
            on_refusal((Counter::DropFragmentOverlap, 1));
            return None;
        }
        let at = match partial.place(fragment) {
            Ok(at) => at,
            Err(Counter::DropFragmentDuplicate) => {
                on_refusal((Counter::DropFragmentDuplicate, 1));
                return None;
            }
            Err(why) => {
                let before = partial.cost();
                let fragments = partial.refuse();
                *cost -= before - partial.cost();
                on_refusal((why, fragments + 1));
                return None;
            }
        };
        let before = partial.cost();
        let bytes = spare.room(fragment.payload.len());
        partial.put(at, fragment, bytes, quote_len);
        *cost += partial.cost() - before;
        // Pieces do not overlap, so their lengths add up to the whole when nothing is missing.
        if partial.total != Some(partial.len) {
            return None;
        }
        let whole = self.remove(hash, |p| p.key == fragment.key)?;
        self.drop_stale();
        whole.join().map_err(on_refusal).ok()
    }

    fn quote_len(&self, fragment: &Fragment<'_>) -> usize {
        match fragment.offset {
            0 => fragment.packet.len().min(self.quote_max),
            _ => 0,
        }
    }

    /// DEVIATION(Linux): there the new fragment is refused; here the oldest packets are dropped,
    /// because the fragments of an honest one arrive together and those of a flood wait for
    /// nothing.
    fn make_room(&mut self, cost: usize, on_refusal: &mut impl FnMut(Refusal)) -> bool {
        while self.cost + cost > self.cost_max {
            let Some((deadline, hash, key)) = self.deadlines.pop_front() else {
                return false;
            };
            if let Some(oldest) = self.remove_waiting(deadline, hash, &key) {
                on_refusal((Counter::DropFragmentMemory, oldest.pieces.len() as u64));
                self.spare.keep(oldest.pieces);
            }
        }
        true
    }

    /// Removes expired packets, one at a time.
    pub fn pop_expired(&mut self, now: Instant) -> Option<Expired> {
        while let Some(&(deadline, hash, key)) =
            self.deadlines.front().filter(|(at, ..)| *at <= now)
        {
            self.deadlines.pop_front();
            if let Some(partial) = self.remove_waiting(deadline, hash, &key) {
                return Some(Expired {
                    fragments: partial.pieces.len() as u64,
                    first: partial.first,
                });
            }
        }
        None
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.front().map(|(at, ..)| *at)
    }

    /// The packet that waits until exactly then.
    fn remove_waiting(&mut self, deadline: Instant, hash: u64, key: &Key) -> Option<Partial> {
        self.remove(hash, |p| p.deadline == deadline && p.key == *key)
    }

    fn remove(&mut self, hash: u64, is_it: impl FnMut(&Partial) -> bool) -> Option<Partial> {
        let entry = self.partials.find_entry(hash, is_it).ok()?;
        let (partial, _) = entry.remove();
        self.cost -= partial.cost();
        Some(partial)
    }

    /// Keeps the queue of deadlines as short as the table, in constant time on average.
    fn drop_stale(&mut self) {
        if self.deadlines.len() <= 2 * self.partials.len() + STALE_MAX {
            return;
        }
        let Self {
            partials,
            deadlines,
            ..
        } = self;
        deadlines.retain(|(deadline, hash, key)| {
            let is_it = |p: &Partial| p.deadline == *deadline && p.key == *key;
            partials.find(*hash, is_it).is_some()
        });
    }
}

/// A keyed hash, because the sender of fragments chooses their fields.
fn hash_of(hash_key: &SipKey, key: &Key) -> u64 {
    let words = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => [0, u64::from(ip.to_bits())],
        IpAddr::V6(ip) => [(ip.to_bits() >> 64) as u64, ip.to_bits() as u64],
    };
    let ([a, b], [c, d]) = (words(key.src), words(key.dst));
    let last = u64::from(key.identification) << 8 | u64::from(key.protocol);
    hash_key.hash_words([a, b, c, d, last])
}

#[cfg(test)]
mod tests;
