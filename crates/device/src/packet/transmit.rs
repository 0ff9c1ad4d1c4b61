//! The sending half of a packet socket: small frames are packed into an arena and leave together
//! in one sendmmsg, large ones are gathered from where they lie.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use slipstack_mem::RawSlice;
use slipstack_terms::LinkTags;
use slipstack_wire::TxOffload;

use super::room::{DatagramRoom, Look};
use super::sys;
use crate::device::{DeviceCounters, TxFull, frame_cost};
use crate::tags::{HEADER_MAX, Tags};
use crate::vnet;

/// Frames up to this length, virtio header included, are copied into the arena.
const SMALL_MAX: usize = 2048;
/// Bytes of the arena: [`sys::BATCH`] small frames at the longest.
const ARENA_LEN: usize = sys::BATCH * SMALL_MAX;
/// Offset of the checksum in a TCP header.
const TCP_CHECKSUM_AT: u16 = 16;
/// Number of attempts at a TCP segment that the device's queue refuses.
const NOBUFS_RETRIES: u32 = 3;

#[derive(Debug)]
pub(crate) struct Transmit {
    arena: Vec<u8>,
    /// Place of each waiting frame, `(offset, len)`.
    frames: VecDeque<(u32, u32)>,
    /// End of the used part of the arena.
    used: usize,
    nobufs_in_row: u32,
    is_stalled: bool,
    room: DatagramRoom,
    /// The VLAN of the device's own link, 0 = its frames have no tag.
    vlan: u16,
    /// Tags of others.
    tags: Tags,
}

/// The result of a send.
enum Sent {
    All,
    /// The kernel has no room now.
    Stalled,
}

impl Transmit {
    pub(crate) fn new(vlan: u16) -> Transmit {
        Transmit {
            arena: vec![0; ARENA_LEN],
            frames: VecDeque::with_capacity(sys::BATCH),
            used: 0,
            nobufs_in_row: 0,
            is_stalled: false,
            room: DatagramRoom::NEW,
            vlan,
            tags: Tags::new(vlan),
        }
    }

    /// Frames of these VLANs have these tags.
    pub(crate) fn set_vlans(&mut self, vlans: &[LinkTags]) {
        self.tags.set(vlans);
    }

    /// Frames wait that the kernel did not take.
    pub(crate) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// As [`crate::Device::datagram_room`]. `sent` is the cost of all frames so far.
    pub(crate) fn datagram_room(
        &mut self,
        fd: BorrowedFd<'_>,
        now_ns: u64,
        taken: u64,
        sent: u64,
    ) -> u64 {
        let (filled, size) = sys::send_queue(fd).unwrap_or((0, u32::MAX));
        let waiting = frame_cost(self.frames.len() as u64, self.used as u64);
        let queued = u64::from(filled) + waiting;
        let room = self.room.look(Look {
            now_ns,
            taken,
            sent,
            queued,
        });
        match self.is_stalled {
            true => 0,
            false => room.min(u64::from(size).saturating_sub(queued)),
        }
    }

    pub(crate) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
        counters: &mut DeviceCounters,
    ) -> Result<(), TxFull> {
        if offload.link != 0 || self.vlan != 0 {
            return self.send_tagged(fd, header, payload, offload, counters);
        }
        self.send_frame(fd, header, payload, &offload, counters)
    }

    #[inline(never)]
    fn send_tagged(
        &mut self,
        fd: BorrowedFd<'_>,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
        counters: &mut DeviceCounters,
    ) -> Result<(), TxFull> {
        let Some((tagged, offload)) = self.tags.insert(header, &offload) else {
            counters.tx_dropped += 1;
            return Ok(());
        };
        self.send_frame(fd, tagged.bytes(), payload, &offload, counters)
    }

    #[inline]
    fn send_frame(
        &mut self,
        fd: BorrowedFd<'_>,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: &TxOffload,
        counters: &mut DeviceCounters,
    ) -> Result<(), TxFull> {
        let payload_len = payload[0].len() + payload[1].len();
        let len = vnet::PACKET_LEN + header.len() + payload_len;
        let taken = if len <= SMALL_MAX {
            self.enqueue(fd, header, payload, offload, len, counters)
        } else {
            self.send_large(fd, header, payload, offload, counters)
        };
        match taken {
            true => {
                counters.tx_frames += 1;
                counters.tx_bytes += (header.len() + payload_len) as u64;
                Ok(())
            }
            false => {
                counters.tx_full += 1;
                Err(TxFull)
            }
        }
    }

    fn enqueue(
        &mut self,
        fd: BorrowedFd<'_>,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: &TxOffload,
        len: usize,
        counters: &mut DeviceCounters,
    ) -> bool {
        if self.frames.len() == sys::BATCH || self.used + len > ARENA_LEN {
            self.flush(fd, counters);
            if self.frames.len() == sys::BATCH || self.used + len > ARENA_LEN {
                return false;
            }
        }
        let cell = &mut self.arena[self.used..self.used + len];
        let virtio = vnet::build(header, offload);
        let (before, rest) = cell.split_at_mut(vnet::PACKET_LEN);
        before.copy_from_slice(&virtio[..vnet::PACKET_LEN]);
        let (head, rest) = rest.split_at_mut(header.len());
        head.copy_from_slice(header);
        let (first, second) = rest.split_at_mut(payload[0].len());
        payload[0].copy_to(first);
        payload[1].copy_to(second);
        // Both numbers are at most ARENA_LEN.
        self.frames.push_back((self.used as u32, len as u32));
        self.used += len.next_multiple_of(16);
        true
    }

    fn send_large(
        &mut self,
        fd: BorrowedFd<'_>,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: &TxOffload,
        counters: &mut DeviceCounters,
    ) -> bool {
        self.flush(fd, counters);
        if !self.frames.is_empty() {
            return false;
        }
        let mut head = [0; vnet::PACKET_LEN + HEADER_MAX];
        let head_len = vnet::PACKET_LEN + header.len();
        if header.len() > HEADER_MAX {
            counters.tx_dropped += 1;
            return true;
        }
        let virtio = vnet::build(header, offload);
        head[..vnet::PACKET_LEN].copy_from_slice(&virtio[..vnet::PACKET_LEN]);
        head[vnet::PACKET_LEN..head_len].copy_from_slice(header);
        match sys::send_gathered(fd, &head[..head_len], payload) {
            Ok(()) => true,
            Err(error) if self.is_for_now(fd, &error, is_tcp(&head), counters) => {
                self.is_stalled = true;
                false
            }
            Err(_) => {
                counters.tx_dropped += 1;
                true
            }
        }
    }

    pub(crate) fn flush(&mut self, fd: BorrowedFd<'_>, counters: &mut DeviceCounters) {
        while !self.frames.is_empty() {
            match self.send_waiting(fd, counters) {
                Sent::All => {}
                Sent::Stalled => {
                    self.is_stalled = true;
                    return;
                }
            }
        }
        self.used = 0;
        self.is_stalled = false;
    }

    /// Sends waiting frames with one system call, and drops a frame that can never be sent.
    fn send_waiting(&mut self, fd: BorrowedFd<'_>, counters: &mut DeviceCounters) -> Sent {
        let frames = self.frames.make_contiguous();
        let sent = match *frames {
            [(offset, len)] => {
                let (offset, len) = (offset as usize, len as usize);
                sys::send(fd, &self.arena[offset..offset + len]).map(|()| 1)
            }
            ref many => sys::send_batch(fd, &self.arena, many),
        };
        match sent {
            Ok(count) => {
                self.frames.drain(..count.min(self.frames.len()));
                self.nobufs_in_row = 0;
                Sent::All
            }
            Err(error) => self.on_refused(fd, &error, counters),
        }
    }

    /// The kernel has not taken the first of the waiting frames.
    #[cold]
    fn on_refused(
        &mut self,
        fd: BorrowedFd<'_>,
        error: &io::Error,
        counters: &mut DeviceCounters,
    ) -> Sent {
        let first = self.frames.front();
        let is_tcp = first.is_some_and(|(offset, _)| is_tcp(&self.arena[*offset as usize..]));
        if self.is_for_now(fd, error, is_tcp, counters) {
            return Sent::Stalled;
        }
        self.frames.pop_front();
        counters.tx_dropped += 1;
        Sent::All
    }

    /// Returns whether a refused frame may go later. ENOBUFS is the device's queue, which is full,
    /// or a rule of the kernel's for packets that leave: the kernel loses a datagram then, and
    /// tries a TCP segment again. A segment behind frames of ours is tried a few times only,
    /// because a queue that never drains would hold up everything behind it; behind none it is a
    /// rule that refuses it, or others fill the queue.
    #[cold]
    fn is_for_now(
        &mut self,
        fd: BorrowedFd<'_>,
        error: &io::Error,
        is_tcp: bool,
        counters: &mut DeviceCounters,
    ) -> bool {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => {
                counters.tx_again += 1;
                true
            }
            Some(libc::ENOBUFS) => {
                counters.tx_nobufs += 1;
                self.nobufs_in_row += 1;
                let is_behind = || sys::send_queue(fd).is_ok_and(|(filled, _)| filled > 0);
                let is_for_now = is_tcp && self.nobufs_in_row <= NOBUFS_RETRIES && is_behind();
                if !is_for_now {
                    self.nobufs_in_row = 0;
                }
                is_for_now
            }
            Some(libc::ENETDOWN) => {
                counters.link_errors += 1;
                false
            }
            _ => false,
        }
    }
}

/// Returns whether a frame behind its virtio header is a TCP segment.
fn is_tcp(frame: &[u8]) -> bool {
    let checksum = frame.first_chunk().and_then(vnet::left_checksum);
    checksum.is_some_and(|partial| partial.offset == TCP_CHECKSUM_AT)
}
