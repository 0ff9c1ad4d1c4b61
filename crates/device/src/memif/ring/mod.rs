//! Rings of descriptors in memory that is shared with a peer that is not trusted.
//!
//! The client owns all memory and fills rings at their head, the server works at their tail: in the
//! ring towards the server the client adds frames at the head, in the ring towards itself empty
//! buffers. A client keeps the ring of empty buffers full, so that in both directions the distance
//! from tail to head says what each side may do, and neither side needs a counter of its own.
//! Numbers that the peer may have written are read once, checked, and the copies are used.

#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use serde::{Deserialize, Serialize};
use slipstack_mem::{PrivateFd, RawSlice, Region};

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
/// Metadata of a frame between two ends that take partial checksums: its checksum is partial.
const PARTIAL: u32 = 1;
/// Length of the buffers of a client's memory.
const BUFFER_LEN: usize = 2048;
/// The longest frame: an IP packet of 64 KiB behind an Ethernet header with a tag.
pub(super) const FRAME_MAX: usize = 65_535 + 18;

/// A violation of the protocol by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProtocolViolation(pub &'static str);

/// Position of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RingPlace {
    pub region: u16,
    pub offset: u32,
    pub log2: u8,
}

/// The two rings of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LaneShape {
    pub rx: RingPlace,
    pub tx: RingPlace,
}

/// Everything of a link but its descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ConnectionShape {
    pub generation: u32,
    pub is_client: bool,
    /// Whether the ends take frames whose checksum is partial.
    pub takes_partial: bool,
    /// The queues: where we receive, where we send.
    pub lanes: Vec<LaneShape>,
    /// Length of each region, in order.
    pub regions: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Desc {
    flags: u16,
    region: u16,
    len: u32,
    offset: u32,
    metadata: u32,
}

/// One direction.
#[derive(Debug)]
struct Ring {
    region: Region,
    offset: usize,
    size: u16,
    is_client: bool,
    /// Position of the client's buffers of this ring in its region; the server reads descriptors.
    buffers: usize,
    /// The other side is woken by it, or wakes us.
    bell: PrivateFd,
}

/// One queue in both directions.
#[derive(Debug)]
struct Lane {
    rx: Ring,
    tx: Ring,
}

/// Connected rings, mapped.
#[derive(Debug)]
pub(super) struct Connection {
    pub shape: ConnectionShape,
    regions: Vec<Region>,
    /// One at least.
    lanes: Vec<Lane>,
}

/// Frames put into a queue that the peer does not see yet. Each publication costs the peer, which
/// polls the ring's head, a transfer of its cache line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub lane: usize,
    pub frames: u16,
    /// The next descriptor, and how many there are from it on.
    next: u16,
    left: u16,
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
    ) -> Result<Ring, ProtocolViolation> {
        let region = regions.get(usize::from(place.region));
        let region = region.ok_or(ProtocolViolation(
            "a ring is in a region that does not exist",
        ))?;
        let offset = place.offset as usize;
        let is_fit =
            offset.is_multiple_of(64) && place.log2 <= crate::memif::options::LOG2_RING_MAX;
        if !is_fit || region.slice(offset, ring_len(place.log2)).is_none() {
            return Err(ProtocolViolation("a ring lies outside of its region"));
        }
        if region.u32(offset).map(|it| it.load(Ordering::Relaxed)) != Some(COOKIE) {
            return Err(ProtocolViolation("a ring has no cookie"));
        }
        Ok(Ring {
            region: region.clone(),
            offset,
            size: 1 << place.log2,
            is_client,
            buffers,
            bell: bell.into(),
        })
    }

    #[inline]
    fn load(&self, at: usize) -> u16 {
        let word = self.region.u16(self.offset + at);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Number of descriptors that are ours to use, and the first of them.
    #[inline]
    fn usable(&self) -> Result<(u16, u16), ProtocolViolation> {
        let (head, tail) = (self.load(HEAD_AT), self.load(TAIL_AT));
        let between = head.wrapping_sub(tail);
        if between > self.size {
            return Err(ProtocolViolation(
                "the distance from a ring's tail to its head exceeds its length",
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
        let [a, b, c, d, e, f, g, h, i, j, k, l, metadata @ ..] = bytes;
        Desc {
            flags: u16::from_ne_bytes([a, b]),
            region: u16::from_ne_bytes([c, d]),
            len: u32::from_ne_bytes([e, f, g, h]),
            offset: u32::from_ne_bytes([i, j, k, l]),
            metadata: u32::from_ne_bytes(metadata),
        }
    }

    #[inline]
    fn write(&self, index: u16, desc: Desc) {
        let mut bytes = [0; DESCRIPTOR_LEN];
        bytes[..2].copy_from_slice(&desc.flags.to_ne_bytes());
        bytes[2..4].copy_from_slice(&desc.region.to_ne_bytes());
        bytes[4..8].copy_from_slice(&desc.len.to_ne_bytes());
        bytes[8..12].copy_from_slice(&desc.offset.to_ne_bytes());
        bytes[12..].copy_from_slice(&desc.metadata.to_ne_bytes());
        self.region.write_from(self.desc_at(index), &bytes);
    }

    /// Returns the whole buffer of a descriptor: a client knows its own, a server reads it from the
    /// ring.
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
            metadata: 0,
        }
    }

    fn wants_interrupt(&self) -> bool {
        fence(Ordering::SeqCst);
        !self.is_masked()
    }

    fn is_masked(&self) -> bool {
        self.load(FLAGS_AT) & FLAG_MASKED != 0
    }

    fn set_masked(&self, is_masked: bool) {
        if let Some(word) = self.region.u16(self.offset + FLAGS_AT) {
            let flags = if is_masked { FLAG_MASKED } else { 0 };
            word.store(flags, Ordering::Release);
        }
        // The peer rings for frames that it publishes later; the next check sees earlier ones.
        fence(Ordering::SeqCst);
    }
}

impl Lane {
    fn bells(&self) -> [BorrowedFd<'_>; 2] {
        [self.rx.bell.as_fd(), self.tx.bell.as_fd()]
    }
}

impl Connection {
    /// Maps a link from its shape and its descriptors: the two bells of each queue, then the
    /// regions.
    pub(super) fn open(
        shape: ConnectionShape,
        fds: Vec<OwnedFd>,
    ) -> Result<Connection, ProtocolViolation> {
        let mut fds = fds.into_iter();
        let mut bells = Vec::new();
        for _ in &shape.lanes {
            let (Some(rx_bell), Some(tx_bell)) = (fds.next(), fds.next()) else {
                return Err(ProtocolViolation("a descriptor is missing"));
            };
            bells.push([rx_bell, tx_bell]);
        }
        let mut regions = Vec::new();
        for (fd, len) in fds.zip(&shape.regions) {
            let region = Region::open_foreign(fd, *len);
            regions.push(
                region.map_err(|_| ProtocolViolation("a region is too short or not sealed"))?,
            );
        }
        if regions.len() != shape.regions.len() {
            return Err(ProtocolViolation("the descriptor of a region is missing"));
        }
        let mut lanes = Vec::new();
        for (places, [rx_bell, tx_bell]) in shape.lanes.iter().zip(bells) {
            let buffers = Buffers::of(places.tx.log2);
            // A client's queues follow each other, each with its buffers after its rings.
            let base = places.tx.offset as usize;
            let rx = (shape.is_client, base + buffers.to_client);
            let tx = (shape.is_client, base + buffers.to_server);
            lanes.push(Lane {
                rx: Ring::new((&regions, rx_bell), places.rx, rx)?,
                tx: Ring::new((&regions, tx_bell), places.tx, tx)?,
            });
        }
        if lanes.is_empty() {
            return Err(ProtocolViolation("a link has no rings"));
        }
        Ok(Connection {
            lanes,
            regions,
            shape,
        })
    }

    /// Memory and rings of a client, a queue for each pair of bells, all buffers offered to the
    /// server.
    pub(super) fn make(
        generation: u32,
        log2: u8,
        bells: Vec<[OwnedFd; 2]>,
        takes_partial: bool,
    ) -> std::io::Result<Result<Connection, ProtocolViolation>> {
        let len = Buffers::of(log2).end;
        let region = Region::create("slipstack-memif", len * bells.len())?;
        let place = |offset: usize| RingPlace {
            region: 0,
            offset: offset as u32,
            log2,
        };
        let lanes = (0..bells.len()).map(|lane| LaneShape {
            tx: place(lane * len),
            rx: place(lane * len + ring_len(log2)),
        });
        let shape = ConnectionShape {
            generation,
            is_client: true,
            takes_partial,
            lanes: lanes.collect(),
            regions: vec![region.len()],
        };
        for ring in shape.lanes.iter().flat_map(|lane| [lane.tx, lane.rx]) {
            region.write_from(ring.offset as usize, &COOKIE.to_ne_bytes());
        }
        let mut fds: Vec<OwnedFd> = bells.into_iter().flatten().collect();
        fds.push(region.try_clone_fd()?);
        let link = Connection::open(shape, fds);
        for Lane { rx, tx } in link.iter().flat_map(|link| &link.lanes) {
            for index in 0..rx.size {
                tx.write(index, tx.buffer(index));
                rx.write(index, rx.buffer(index));
            }
            rx.advance(rx.size);
        }
        Ok(link)
    }

    /// Returns the descriptors that [`Connection::open`] takes.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let bells = self.lanes.iter().flat_map(Lane::bells);
        let regions = self.regions.iter().map(Region::fd);
        bells.chain(regions).collect()
    }

    /// Number of queues in each direction.
    pub(super) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Wakes us when the peer has sent by this queue.
    pub(super) fn rx_bell(&self, lane: usize) -> BorrowedFd<'_> {
        self.lanes[lane].rx.bell.as_fd()
    }

    /// Returns whether the peer has sent by this queue, or violated the protocol.
    #[inline]
    pub(super) fn has_rx(&self, lane: usize) -> bool {
        let waiting = self.lanes[lane].rx.usable();
        waiting.map_or(true, |(count, _)| count > 0)
    }

    /// Asks the peer not to ring for frames of this queue, or to ring again.
    pub(super) fn set_rx_masked(&self, lane: usize, is_masked: bool) {
        self.lanes[lane].rx.set_masked(is_masked);
    }

    /// Returns whether the peer has been asked not to ring.
    pub(super) fn is_rx_masked(&self, lane: usize) -> bool {
        self.lanes[lane].rx.is_masked()
    }

    /// Position of the next frame of this queue: it changes with every frame that is taken.
    pub(super) fn rx_position(&self, lane: usize) -> u16 {
        self.lanes[lane].rx.usable().map_or(0, |(_, first)| first)
    }

    /// Copies frames out one after the other, passes each copy to `take`, and whether its checksum
    /// is partial, and gives the buffers of all back at the end. Returns how many there were:
    /// `most` at most, and only complete ones.
    #[inline]
    pub(super) fn receive(
        &self,
        lane: usize,
        most: usize,
        into: &mut [u8],
        mut take: impl FnMut(&mut [u8], bool),
    ) -> Result<usize, ProtocolViolation> {
        let rx = &self.lanes[lane].rx;
        let (count, first) = rx.usable()?;
        let (mut used, mut frames) = (0, 0);
        while used < count && frames < most {
            let Some((len, pieces, is_partial)) =
                self.copy_out(rx, first.wrapping_add(used), count - used, into)?
            else {
                break;
            };
            used += pieces;
            frames += 1;
            take(&mut into[..len], is_partial);
        }
        if used > 0 {
            if rx.is_client {
                for n in 0..used {
                    let index = first.wrapping_add(n);
                    rx.write(index, rx.buffer(index));
                }
            }
            rx.advance(first.wrapping_add(used));
        }
        Ok(frames)
    }

    /// Returns the length of the frame that begins at `first`, how many descriptors it has, and
    /// whether its checksum is partial.
    #[inline]
    fn copy_out(
        &self,
        rx: &Ring,
        first: u16,
        count: u16,
        into: &mut [u8],
    ) -> Result<Option<(usize, u16, bool)>, ProtocolViolation> {
        let (mut len, mut used) = (0, 0);
        while used < count {
            let desc = rx.read(first.wrapping_add(used));
            let piece = self.place(desc)?;
            let Some(space) = into.get_mut(len..len + piece.len()) else {
                return Err(ProtocolViolation("a frame is longer than 64 KiB"));
            };
            piece.copy_to(space);
            len += piece.len();
            used += 1;
            if desc.flags & DESCRIPTOR_NEXT == 0 {
                let is_partial = self.shape.takes_partial && desc.metadata == PARTIAL;
                return Ok(Some((len, used, is_partial)));
            }
        }
        match used == rx.size {
            true => Err(ProtocolViolation("a frame has no end")),
            false => Ok(None),
        }
    }

    fn place(&self, desc: Desc) -> Result<RawSlice<'_>, ProtocolViolation> {
        let region = self.regions.get(usize::from(desc.region));
        let slice = region.and_then(|it| it.slice(desc.offset as usize, desc.len as usize));
        slice.ok_or(ProtocolViolation("a buffer lies outside of its region"))
    }

    /// Begins to send by a queue, at which nobody else works until the batch is published.
    pub(super) fn begin(&self, lane: usize) -> Result<Batch, ProtocolViolation> {
        let (left, next) = self.lanes[lane].tx.usable()?;
        Ok(Batch {
            lane,
            frames: 0,
            next,
            left,
        })
    }

    /// Shows the peer the frames of a batch.
    #[inline]
    pub(super) fn publish(&self, batch: &Batch) {
        if batch.frames > 0 {
            self.lanes[batch.lane].tx.advance(batch.next);
        }
    }

    /// Adds a frame to a batch, in one piece. Its checksum may be partial only if the peer takes
    /// that. `false`: the ring is full.
    #[inline]
    pub(super) fn put(
        &self,
        batch: &mut Batch,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        is_partial: bool,
    ) -> Result<bool, ProtocolViolation> {
        debug_assert!(!is_partial || self.shape.takes_partial);
        let tx = &self.lanes[batch.lane].tx;
        let index = batch.next;
        let len = header.len() + payload[0].len() + payload[1].len();
        if batch.left == 0 {
            return Ok(false);
        }
        let mut desc = tx.buffer(index);
        if (desc.len as usize) < len {
            return Err(ProtocolViolation("a buffer is shorter than a frame"));
        }
        let region = self.regions.get(usize::from(desc.region));
        let region = region.ok_or(ProtocolViolation(
            "a buffer is in a region that does not exist",
        ))?;
        let at = desc.offset as usize;
        let second = at + header.len();
        let is_inside = region.write_from(at, header)
            && copy(region, second, payload[0])
            && copy(region, second + payload[0].len(), payload[1]);
        if !is_inside {
            return Err(ProtocolViolation("a buffer lies outside of its region"));
        }
        desc.len = len as u32;
        desc.flags = 0;
        desc.metadata = if is_partial { PARTIAL } else { 0 };
        tx.write(index, desc);
        batch.next = index.wrapping_add(1);
        batch.left -= 1;
        batch.frames += 1;
        Ok(true)
    }

    /// Wakes the peer if it sleeps on this queue.
    pub(super) fn ring(&self, lane: usize) {
        let tx = &self.lanes[lane].tx;
        if tx.wants_interrupt() {
            let _ = rustix::io::write(&tx.bell, &1u64.to_ne_bytes());
        }
    }
}

/// Position of a client's buffers in its region.
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
