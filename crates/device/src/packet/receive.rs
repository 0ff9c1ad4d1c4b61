//! The receiving half of a packet socket.
//!
//! The consumer's position is in shared memory: it is stored after a frame was handled and before
//! its slot is given back, so that a successor sees which of the two is still to be done.

use std::io;
use std::os::fd::BorrowedFd;

use slipstack_mem::wall_ns_at;
use slipstack_terms::LinkTags;
use slipstack_wire::{RxChecksum, RxMeta};

use super::RingParams;
use super::arrivals::Arrivals;
use super::large::{Announced, Large, Taken};
use super::raw::{self, RxRing, SlotHeader};
use crate::device::{DeviceCounters, Sink, Takes};
use crate::position::RingPosition;
use crate::tags::{self, Tags, Untagging};
use crate::vnet::{self, Received};

/// Bytes of large frames after which a run ends, so that the data is still in the cache when the
/// program reads it.
const LARGE_BYTES_MAX: usize = 128 * 1024;
/// Number of turns without a frame after which the descriptor is checked for an error, which would
/// keep it readable for ever.
const EMPTY_TURNS_MAX: u32 = 64;

#[derive(Debug)]
pub(crate) struct Receive {
    ring: RxRing,
    position: RingPosition,
    /// Index of the next slot to check; equals the shared position.
    next: u32,
    large: Large,
    /// Handed over in this run.
    large_bytes: usize,
    empty_turns: u32,
    /// The VLAN of the device's own link, 0 = untagged.
    vlan: u16,
    /// Further VLANs whose frames are accepted.
    vlans: Tags,
    /// A frame without the inner tag, which the kernel leaves in it.
    untagged: Vec<u8>,
}

/// A slot's status word, and the link of its frame.
#[derive(Clone, Copy)]
struct Slot {
    status: u32,
    link: u16,
    /// A tag is still in the frame's bytes.
    has_inner: bool,
}

impl Receive {
    pub(crate) fn adopt(
        fd: BorrowedFd<'_>,
        params: RingParams,
        vlan: u16,
        position: RingPosition,
    ) -> io::Result<Receive> {
        let ring = RxRing::map(fd, params)?;
        let next = position.load() % ring.count();
        let receive = Receive {
            ring,
            position,
            next,
            large: Large::default(),
            large_bytes: 0,
            empty_turns: 0,
            vlan,
            vlans: Tags::default(),
            untagged: Vec::new(),
        };
        receive.release_leftover();
        Ok(receive)
    }

    /// Frames of these VLANs are handed over too.
    pub(crate) fn set_vlans(&mut self, vlans: &[LinkTags]) {
        self.vlans.set(vlans);
    }

    /// A predecessor that died between storing its position and giving the slot back leaves a
    /// consumed slot just before the position. A full ring has a fresh frame there, which differs
    /// by being younger than the one at the position.
    fn release_leftover(&self) {
        let before = (self.next + self.ring.count() - 1) % self.ring.count();
        if self.ring.status(before) & raw::STATUS_USER == 0 {
            return;
        }
        let is_consumed = self.ring.status(self.next) & raw::STATUS_USER == 0 || {
            let arrived_ns = |slot| self.ring.header(slot).arrived_ns();
            arrived_ns(before) < arrived_ns(self.next)
        };
        if is_consumed {
            self.ring.release(before);
        }
    }

    #[inline]
    pub(crate) fn has_frames(&self) -> bool {
        self.ring.status(self.next) & raw::STATUS_USER != 0
    }

    /// Arrival time of the frame at the position, by the wall clock.
    pub(crate) fn next_arrival_ns(&self) -> Option<u64> {
        let has_come = self.has_frames();
        has_come.then(|| self.ring.header(self.next).arrived_ns())
    }

    pub(crate) fn run(
        &mut self,
        fd: BorrowedFd<'_>,
        budget: usize,
        sink: &mut dyn Sink,
        counters: &mut DeviceCounters,
    ) -> usize {
        let mut handed = 0;
        let mut arrivals = Arrivals::default();
        self.large_bytes = 0;
        // Slots, not frames, are counted: a slot may hold several datagrams or nothing for us.
        for _ in 0..budget {
            let status = self.ring.status(self.next);
            if status & raw::STATUS_USER == 0 || self.large_bytes >= LARGE_BYTES_MAX {
                break;
            }
            let header = self.ring.header(self.next);
            if !arrivals.admits(header.arrived_ns(), || sink.clock_ns().map(wall_ns_at)) {
                break;
            }
            handed += self.take(fd, status, header, sink, counters);
            let done = self.next;
            self.next = if done + 1 == self.ring.count() {
                0
            } else {
                done + 1
            };
            self.position.store(self.next);
            self.ring.release(done);
        }
        if handed == 0 {
            self.look_for_error(fd, counters);
        } else {
            self.empty_turns = 0;
        }
        handed
    }

    /// Delivers the frame in the slot at the position; returns how many frames that was.
    #[inline]
    fn take(
        &mut self,
        fd: BorrowedFd<'_>,
        status: u32,
        header: SlotHeader,
        sink: &mut dyn Sink,
        counters: &mut DeviceCounters,
    ) -> usize {
        let Some(slot) = self.slot_of(status, header) else {
            counters.rx_vlan += 1;
            return 0;
        };
        if header.captured < header.len {
            return self.take_large(fd, slot, header, sink, counters);
        }
        let Some((virtio, frame)) = split_slot(self.ring.bytes(self.next), header) else {
            counters.rx_malformed += 1;
            return 0;
        };
        match vnet::parse(virtio) {
            Some(Received::Frame(meta)) => {
                counters.rx_frames += 1;
                counters.rx_bytes += frame.len() as u64;
                let meta = refine(meta, slot);
                match slot.has_inner {
                    false => sink.frame(frame, meta),
                    true => Untagging {
                        sink,
                        buffer: &mut self.untagged,
                    }
                    .frame(frame, meta),
                }
                1
            }
            _ => {
                counters.rx_malformed += 1;
                0
            }
        }
    }

    /// Returns the link of a frame, of which the kernel has taken the outer tag out; `None` if it
    /// is of a VLAN that is not wanted.
    #[inline]
    fn slot_of(&self, status: u32, header: SlotHeader) -> Option<Slot> {
        let outer = header.vlan(status);
        let plain = |link| Slot {
            status,
            link,
            has_inner: false,
        };
        if outer == (self.vlan, false) {
            return Some(plain(0));
        }
        let inner = || tags::parse(split_slot(self.ring.bytes(self.next), header)?.1);
        let within = self.vlans.link_within(outer, inner).map(|link| Slot {
            has_inner: true,
            ..plain(link)
        });
        within.or_else(|| self.vlans.link_of(outer).map(plain))
    }

    /// The slot holds the beginning of a frame; the whole waits in the socket's queue, unless the
    /// kernel had no memory for it.
    fn take_large(
        &mut self,
        fd: BorrowedFd<'_>,
        slot: Slot,
        header: SlotHeader,
        sink: &mut dyn Sink,
        counters: &mut DeviceCounters,
    ) -> usize {
        if slot.status & raw::STATUS_COPY == 0 {
            counters.rx_truncated += 1;
            return 0;
        }
        let (virtio, beginning) =
            split_slot(self.ring.bytes(self.next), header).unwrap_or_default();
        let Some(Received::Frame(meta)) = vnet::parse(virtio) else {
            counters.rx_malformed += 1;
            return 0;
        };
        let announced = Announced {
            beginning,
            len: header.len as usize,
            meta: refine(meta, slot),
        };
        let mut untagging = Untagging {
            sink,
            buffer: &mut self.untagged,
        };
        let taken = match slot.has_inner {
            false => self.large.take(fd, &announced, untagging.sink),
            true => self.large.take(fd, &announced, &mut untagging),
        };
        match taken {
            Taken::Lost => {
                counters.rx_orphaned += 1;
                return 0;
            }
            Taken::Direct => counters.rx_direct += 1,
            Taken::Whole => {}
        }
        counters.rx_large += 1;
        counters.rx_frames += 1;
        counters.rx_bytes += announced.len as u64;
        self.large_bytes += announced.len;
        1
    }

    /// An interface that went down leaves an error on the socket, and poll reports it until it is
    /// fetched. The socket itself works again when the interface is up.
    fn look_for_error(&mut self, fd: BorrowedFd<'_>, counters: &mut DeviceCounters) {
        self.empty_turns += 1;
        if self.empty_turns < EMPTY_TURNS_MAX {
            return;
        }
        self.empty_turns = 0;
        if let Ok(Err(_)) = rustix::net::sockopt::socket_error(fd) {
            counters.link_errors += 1;
        }
    }
}

/// Shows the frames of a ring whose consumer does not run, and leaves them there; those that are
/// taken become frames of no protocol. Large ones and those of other VLANs are skipped.
pub(crate) fn peek(
    fd: BorrowedFd<'_>,
    params: RingParams,
    vlan: u16,
    position: RingPosition,
    takes: &mut Takes<'_>,
) -> io::Result<()> {
    let ring = RxRing::map(fd, params)?;
    let first = position.load();
    for index in (0..ring.count()).map(|ahead| first.wrapping_add(ahead) % ring.count()) {
        let status = ring.status(index);
        if status & raw::STATUS_USER == 0 {
            break;
        }
        let header = ring.header(index);
        if header.captured < header.len || header.vlan(status) != (vlan, false) {
            continue;
        }
        if let Some((virtio, frame)) = split_slot(ring.bytes(index), header)
            && let Some(Received::Frame(meta)) = vnet::parse(virtio)
        {
            let slot = Slot {
                status,
                link: 0,
                has_inner: false,
            };
            if takes(frame, refine(meta, slot)) && ring.status(index) == status {
                ring.blank(index, header);
            }
        }
    }
    Ok(())
}

/// The virtio header and the frame of a slot, as far as its own numbers make sense.
#[inline]
fn split_slot(slot: &[u8], header: SlotHeader) -> Option<(&[u8], &[u8])> {
    let mac = usize::from(header.mac);
    let end = mac.checked_add(header.captured as usize)?;
    let virtio = slot.get(mac.checked_sub(vnet::PACKET_LEN)?..mac)?;
    Some((virtio, slot.get(mac..end)?))
}

/// The ring's own status has more than the virtio header: a verified checksum is marked only there.
#[inline]
fn refine(mut meta: RxMeta, slot: Slot) -> RxMeta {
    meta.link = slot.link;
    if meta.checksum == RxChecksum::Unknown {
        if slot.status & raw::STATUS_CSUM_NOT_READY != 0 {
            meta.checksum = RxChecksum::Partial;
        } else if slot.status & raw::STATUS_CSUM_VALID != 0 {
            meta.checksum = RxChecksum::Verified;
        }
    }
    meta
}
