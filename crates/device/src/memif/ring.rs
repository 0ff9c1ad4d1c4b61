//! Rings of descriptors in memory that is shared with a peer who may lie.
//!
//! The client owns all memory and fills rings at their head, the server works at their tail:
//! towards the server the client puts frames in at the head, towards the client it puts empty
//! buffers there. A client keeps the ring of empty buffers full, so that in both directions what is
//! between tail and head tells what each side may do, and no side needs a counter of its own.
//! Numbers that the peer may have written are read once, checked, and the copies are used.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use serde::{Deserialize, Serialize};
use slipstack_mem::{RawSlice, Region};

const COOKIE: u32 = 0x03e3_1f20;
const FLAGS_AT: usize = 4;
const HEAD_AT: usize = 6;
const TAIL_AT: usize = 64;
const DESCRIPTORS_AT: usize = 128;
const DESCRIPTOR_LEN: usize = 16;
/// The ring's consumer wants no interrupts.
const FLAG_MASKED: u16 = 1;
/// The frame goes on in the next descriptor.
const DESCRIPTOR_NEXT: u16 = 1;
/// Length of the buffers of a client's memory.
const BUFFER_LEN: usize = 2048;
/// The longest frame: an IP packet of 64 KiB behind an Ethernet header with a tag.
pub(super) const FRAME_MAX: usize = 65_535 + 18;

/// A violation of the protocol by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lie(pub &'static str);

/// Where a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RingPlace {
    pub region: u16,
    pub offset: u32,
    pub log2: u8,
}

/// Everything of a link but its descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LinkShape {
    pub generation: u32,
    pub is_client: bool,
    pub rx: RingPlace,
    pub tx: RingPlace,
    /// Length of each region, in order.
    pub regions: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Desc {
    flags: u16,
    region: u16,
    len: u32,
    offset: u32,
}

/// One direction.
#[derive(Debug)]
struct Ring {
    region: Region,
    offset: usize,
    size: u16,
    is_client: bool,
    /// Where the client's buffers of this ring are in its region; the server reads descriptors.
    buffers: usize,
    /// The other side is woken by it, or wakes us.
    bell: OwnedFd,
}

/// A connected pair of rings, mapped.
#[derive(Debug)]
pub(super) struct Link {
    pub shape: LinkShape,
    regions: Vec<Region>,
    rx: Ring,
    tx: Ring,
}

/// Bytes of a ring with its descriptors.
fn ring_len(log2: u8) -> usize {
    DESCRIPTORS_AT + (DESCRIPTOR_LEN << log2)
}

impl Ring {
    fn new(
        (regions, bell): (&[Region], OwnedFd),
        place: RingPlace,
        (is_client, buffers): (bool, usize),
    ) -> Result<Ring, Lie> {
        let region = regions.get(usize::from(place.region));
        let region = region.ok_or(Lie("a ring is in a region that there is not"))?;
        let offset = place.offset as usize;
        let is_fit = offset.is_multiple_of(64) && place.log2 <= super::options::LOG2_RING_MAX;
        if !is_fit || region.slice(offset, ring_len(place.log2)).is_none() {
            return Err(Lie("a ring lies outside of its region"));
        }
        if region.u32(offset).map(|it| it.load(Ordering::Relaxed)) != Some(COOKIE) {
            return Err(Lie("a ring has no cookie"));
        }
        Ok(Ring {
            region: region.clone(),
            offset,
            size: 1 << place.log2,
            is_client,
            buffers,
            bell,
        })
    }

    #[inline]
    fn load(&self, at: usize) -> u16 {
        let word = self.region.u16(self.offset + at);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// How many descriptors are ours to use, and the first of them.
    #[inline]
    fn usable(&self) -> Result<(u16, u16), Lie> {
        let (head, tail) = (self.load(HEAD_AT), self.load(TAIL_AT));
        let between = head.wrapping_sub(tail);
        if between > self.size {
            return Err(Lie(
                "the head of a ring is further from its tail than the ring is long",
            ));
        }
        Ok(match self.is_client {
            true => (self.size - between, head),
            false => (between, tail),
        })
    }

    /// Hands descriptors to the other side.
    #[inline]
    fn advance(&self, to: u16) {
        let at = if self.is_client { HEAD_AT } else { TAIL_AT };
        if let Some(word) = self.region.u16(self.offset + at) {
            word.store(to, Ordering::Release);
        }
    }

    fn desc_at(&self, index: u16) -> usize {
        let index = usize::from(index & (self.size - 1));
        self.offset + DESCRIPTORS_AT + DESCRIPTOR_LEN * index
    }

    #[inline]
    fn read(&self, index: u16) -> Desc {
        let mut bytes = [0; DESCRIPTOR_LEN];
        self.region.read_into(self.desc_at(index), &mut bytes);
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = bytes;
        Desc {
            flags: u16::from_ne_bytes([a, b]),
            region: u16::from_ne_bytes([c, d]),
            len: u32::from_ne_bytes([e, f, g, h]),
            offset: u32::from_ne_bytes([i, j, k, l]),
        }
    }

    #[inline]
    fn write(&self, index: u16, desc: Desc) {
        let mut bytes = [0; DESCRIPTOR_LEN];
        bytes[..2].copy_from_slice(&desc.flags.to_ne_bytes());
        bytes[2..4].copy_from_slice(&desc.region.to_ne_bytes());
        bytes[4..8].copy_from_slice(&desc.len.to_ne_bytes());
        bytes[8..12].copy_from_slice(&desc.offset.to_ne_bytes());
        self.region.write_from(self.desc_at(index), &bytes);
    }

    /// The whole buffer of a descriptor: a client knows its own, a server is told.
    #[inline]
    fn buffer(&self, index: u16) -> Desc {
        if !self.is_client {
            return self.read(index);
        }
        let at = self.buffers + BUFFER_LEN * usize::from(index & (self.size - 1));
        Desc {
            flags: 0,
            region: 0,
            len: BUFFER_LEN as u32,
            offset: at as u32,
        }
    }

    fn wants_interrupt(&self) -> bool {
        fence(Ordering::SeqCst);
        self.load(FLAGS_AT) & FLAG_MASKED == 0
    }
}

impl Link {
    /// Maps a link from its shape and its descriptors: the two bells, then the regions.
    pub(super) fn open(shape: LinkShape, fds: Vec<OwnedFd>) -> Result<Link, Lie> {
        let mut fds = fds.into_iter();
        let (Some(rx_bell), Some(tx_bell)) = (fds.next(), fds.next()) else {
            return Err(Lie("a descriptor is missing"));
        };
        let mut regions = Vec::new();
        for (fd, len) in fds.zip(&shape.regions) {
            let region = Region::open_foreign(fd, *len);
            regions.push(region.map_err(|_| Lie("a region is too short or not sealed"))?);
        }
        if regions.len() != shape.regions.len() {
            return Err(Lie("the descriptor of a region is missing"));
        }
        let buffers = Buffers::of(shape.tx.log2);
        let (tx_buffers, rx_buffers) = (buffers.to_server, buffers.to_client);
        Ok(Link {
            rx: Ring::new((&regions, rx_bell), shape.rx, (shape.is_client, rx_buffers))?,
            tx: Ring::new((&regions, tx_bell), shape.tx, (shape.is_client, tx_buffers))?,
            regions,
            shape,
        })
    }

    /// Memory and rings of a client, all buffers offered to the server.
    pub(super) fn make(
        generation: u32,
        log2: u8,
        bells: [OwnedFd; 2],
    ) -> std::io::Result<Result<Link, Lie>> {
        let buffers = Buffers::of(log2);
        let region = Region::create("slipstack-memif", buffers.end)?;
        let place = |offset: usize| RingPlace {
            region: 0,
            offset: offset as u32,
            log2,
        };
        let shape = LinkShape {
            generation,
            is_client: true,
            tx: place(0),
            rx: place(ring_len(log2)),
            regions: vec![region.len()],
        };
        for ring in [shape.tx, shape.rx] {
            region.write_from(ring.offset as usize, &COOKIE.to_ne_bytes());
        }
        let [rx_bell, tx_bell] = bells;
        let fds = vec![rx_bell, tx_bell, region.try_clone_fd()?];
        let link = Link::open(shape, fds);
        if let Ok(link) = &link {
            for index in 0..link.rx.size {
                link.tx.write(index, link.tx.buffer(index));
                link.rx.write(index, link.rx.buffer(index));
            }
            link.rx.advance(link.rx.size);
        }
        Ok(link)
    }

    /// Returns the descriptors that [`Link::open`] takes.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let bells = [self.rx.bell.as_fd(), self.tx.bell.as_fd()];
        let regions = self.regions.iter().map(Region::fd);
        bells.into_iter().chain(regions).collect()
    }

    /// Wakes us when the peer has sent.
    pub(super) fn rx_bell(&self) -> BorrowedFd<'_> {
        self.rx.bell.as_fd()
    }

    pub(super) fn has_rx(&self) -> bool {
        self.rx.usable().map_or(true, |(count, _)| count > 0)
    }

    /// Copies the next frame out and gives its buffers back. Returns its length; `None`: none
    /// waits, or its end is not there yet.
    #[inline]
    pub(super) fn receive(&self, into: &mut [u8]) -> Result<Option<usize>, Lie> {
        let (count, first) = self.rx.usable()?;
        let (mut len, mut used) = (0, 0);
        loop {
            if used == count {
                return match used == self.rx.size {
                    true => Err(Lie("a frame has no end")),
                    false => Ok(None),
                };
            }
            let desc = self.rx.read(first.wrapping_add(used));
            let piece = self.place(desc)?;
            let Some(space) = into.get_mut(len..len + piece.len()) else {
                return Err(Lie("a frame is longer than 64 KiB"));
            };
            piece.copy_to(space);
            len += piece.len();
            used += 1;
            if desc.flags & DESCRIPTOR_NEXT == 0 {
                break;
            }
        }
        let next = first.wrapping_add(used);
        if self.rx.is_client {
            for n in 0..used {
                let index = first.wrapping_add(n);
                self.rx.write(index, self.rx.buffer(index));
            }
        }
        self.rx.advance(next);
        Ok(Some(len))
    }

    fn place(&self, desc: Desc) -> Result<RawSlice<'_>, Lie> {
        let region = self.regions.get(usize::from(desc.region));
        let slice = region.and_then(|it| it.slice(desc.offset as usize, desc.len as usize));
        slice.ok_or(Lie("a buffer lies outside of its region"))
    }

    /// Puts a frame in, in one piece. `false`: the ring is full, or the peer's buffers are too
    /// short.
    #[inline]
    pub(super) fn send(&self, header: &[u8], payload: [RawSlice<'_>; 2]) -> Result<bool, Lie> {
        let (count, index) = self.tx.usable()?;
        let len = header.len() + payload[0].len() + payload[1].len();
        if count == 0 {
            return Ok(false);
        }
        let mut desc = self.tx.buffer(index);
        if (desc.len as usize) < len {
            return Err(Lie("a buffer is shorter than a frame"));
        }
        let region = self.regions.get(usize::from(desc.region));
        let region = region.ok_or(Lie("a buffer is in a region that there is not"))?;
        let at = desc.offset as usize;
        let second = at + header.len();
        let is_inside = region.write_from(at, header)
            && copy(region, second, payload[0])
            && copy(region, second + payload[0].len(), payload[1]);
        if !is_inside {
            return Err(Lie("a buffer lies outside of its region"));
        }
        desc.len = len as u32;
        desc.flags = 0;
        self.tx.write(index, desc);
        self.tx.advance(index.wrapping_add(1));
        Ok(true)
    }

    /// Wakes the peer if it sleeps.
    pub(super) fn ring(&self) {
        if self.tx.wants_interrupt() {
            let _ = rustix::io::write(&self.tx.bell, &1u64.to_ne_bytes());
        }
    }
}

/// Where a client's buffers are in its region.
struct Buffers {
    to_server: usize,
    to_client: usize,
    end: usize,
}

impl Buffers {
    fn of(log2: u8) -> Buffers {
        let to_server = (2 * ring_len(log2)).next_multiple_of(BUFFER_LEN);
        let to_client = to_server + (BUFFER_LEN << log2);
        Buffers {
            to_server,
            to_client,
            end: to_client + (BUFFER_LEN << log2),
        }
    }
}

fn copy(region: &Region, at: usize, from: RawSlice<'_>) -> bool {
    from.is_empty()
        || region
            .space(at, from.len())
            .is_some_and(|to| to.copy_raw(from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memif::control::bell;

    type Lies = fn(&Ring);

    /// A client and its server in one process.
    fn pair() -> (Link, Link) {
        let bells = [bell().unwrap(), bell().unwrap()];
        let client = Link::make(1, 4, bells).unwrap().unwrap();
        let [rx_bell, tx_bell, region] = client.descriptors()[..] else {
            panic!();
        };
        let fds = [tx_bell, rx_bell, region].map(|fd| fd.try_clone_to_owned().unwrap());
        let shape = LinkShape {
            is_client: false,
            rx: client.shape.tx,
            tx: client.shape.rx,
            ..client.shape.clone()
        };
        (client, Link::open(shape, fds.into()).unwrap())
    }

    fn send(link: &Link, frame: &[u8]) -> bool {
        let (header, payload) = frame.split_at(frame.len() / 2);
        link.send(header, [RawSlice::of(payload), RawSlice::EMPTY])
            .unwrap()
    }

    fn receive(link: &Link) -> Option<Vec<u8>> {
        let mut buffer = vec![0; FRAME_MAX];
        let len = link.receive(&mut buffer).unwrap()?;
        buffer.truncate(len);
        Some(buffer)
    }

    #[test]
    fn frames_go_both_ways_in_order_and_a_full_ring_takes_none() {
        let (client, server) = pair();
        for lap in 0..5 {
            for (from, to) in [(&client, &server), (&server, &client)] {
                for number in 0..16 {
                    assert!(send(from, &[lap, number, 1, 2, 3]));
                }
                assert!(!send(from, &[9; 60]));
                assert!(to.has_rx());
                for number in 0..16 {
                    assert_eq!(receive(to), Some(vec![lap, number, 1, 2, 3]));
                }
                assert_eq!(receive(to), None);
                assert!(!to.has_rx());
            }
        }
    }

    #[test]
    fn a_frame_in_several_buffers_is_put_together() {
        let (client, server) = pair();
        for part in [[1; 40], [2; 40]] {
            assert!(send(&client, &part));
        }
        let mut first = server.rx.read(0);
        first.flags = DESCRIPTOR_NEXT;
        server.rx.write(0, first);
        assert_eq!(receive(&server), Some([[1; 40], [2; 40]].concat()));
        assert_eq!(receive(&server), None);
    }

    #[test]
    fn a_peer_that_lies_in_its_rings_is_found_out() {
        let lies: [(&str, Lies); 5] = [
            ("further", |ring| {
                ring.region
                    .u16(HEAD_AT)
                    .unwrap()
                    .store(17, Ordering::Relaxed)
            }),
            ("outside", |ring| {
                change(ring, |desc| desc.offset = u32::MAX)
            }),
            ("outside", |ring| change(ring, |desc| desc.len = u32::MAX)),
            ("outside", |ring| change(ring, |desc| desc.region = 1)),
            ("no end", |ring| {
                ring.region
                    .u16(HEAD_AT)
                    .unwrap()
                    .store(16, Ordering::Relaxed);
                for index in 0..16 {
                    let mut desc = ring.read(index);
                    desc.flags = DESCRIPTOR_NEXT;
                    desc.len = 1;
                    ring.write(index, desc);
                }
            }),
        ];
        for (word, lie) in lies {
            let (client, server) = pair();
            assert!(send(&client, &[5; 60]));
            lie(&client.tx);
            let found = server.receive(&mut vec![0; FRAME_MAX]).unwrap_err();
            assert!(found.0.contains(word), "{word}: {found:?}");
        }
        for lie in [
            |desc: &mut Desc| desc.offset = u32::MAX,
            |desc: &mut Desc| desc.region = 7,
            |desc: &mut Desc| desc.len = 8,
        ] {
            let (client, server) = pair();
            change(&client.rx, lie);
            assert!(server.send(&[1; 60], [RawSlice::EMPTY; 2]).is_err());
        }
    }

    fn change(ring: &Ring, how: impl Fn(&mut Desc)) {
        let mut desc = ring.read(0);
        how(&mut desc);
        ring.write(0, desc);
    }

    #[test]
    fn a_ring_that_is_none_is_refused() {
        let (client, _) = pair();
        let open = |change: fn(&mut LinkShape)| {
            let mut shape = client.shape.clone();
            change(&mut shape);
            let fds = client.descriptors();
            let fds = fds.iter().map(|fd| fd.try_clone_to_owned().unwrap());
            Link::open(shape, fds.collect()).unwrap_err()
        };
        open(|shape| shape.rx.offset += 64);
        open(|shape| shape.rx.offset = u32::MAX - 63);
        open(|shape| shape.rx.log2 = 15);
        open(|shape| shape.tx.region = 1);
        open(|shape| shape.regions[0] += 4096);
        open(|shape| shape.regions.push(1));
    }
}
