//! The receive ring of an AF_PACKET socket, mapped (TPACKET_V2).
//!
//! A slot belongs to the kernel until it sets `TP_STATUS_USER`, and is ours until we store
//! `TP_STATUS_KERNEL`; only the owner touches it.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::io;
use std::os::fd::BorrowedFd;

use super::RingParams;
use super::sys::{STATUS_VLAN_TPID_VALID, STATUS_VLAN_VALID};

pub(crate) const STATUS_KERNEL: u32 = 0;
pub(crate) const STATUS_USER: u32 = 1;
/// The frame is longer than the slot and waits whole in the socket's queue.
pub(crate) const STATUS_COPY: u32 = 1 << 1;
pub(crate) const STATUS_CSUM_NOT_READY: u32 = 1 << 3;
pub(crate) const STATUS_CSUM_VALID: u32 = 1 << 7;

/// Offset of the EtherType in a frame, and the one that is no protocol's (IANA: reserved).
const ETHER_TYPE_AT: usize = 12;
const NO_PROTOCOL: [u8; 2] = [0xff, 0xff];

/// Bytes of `struct tpacket2_hdr`.
const HEADER_LEN: usize = 32;

/// The header that the kernel wrote before a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotHeader {
    /// Length of the frame on the wire.
    pub len: u32,
    /// Length of the slot's frame.
    pub captured: u32,
    /// Offset of the frame in the slot; the virtio header ends there.
    pub mac: u16,
    sec: u32,
    nsec: u32,
    tag: u16,
    tag_kind: u16,
}

/// IEEE 802.1Q 9.4: the EtherType of providers' tags.
const PROVIDER_TAG: u16 = 0x88a8;
/// The VLAN's number in a tag; the rest is priority.
const TAG_VLAN: u16 = 0x0fff;

impl SlotHeader {
    /// Arrival time of the frame, by the wall clock.
    #[inline]
    pub fn arrived_ns(&self) -> u64 {
        u64::from(self.sec) * 1_000_000_000 + u64::from(self.nsec)
    }

    /// Returns the VLAN of a frame, and whether its tag was a provider's; 0 = none, or a tag with
    /// only a priority.
    #[inline]
    pub fn vlan(&self, status: u32) -> (u16, bool) {
        if status & STATUS_VLAN_VALID == 0 {
            return (0, false);
        }
        let is_provider = status & STATUS_VLAN_TPID_VALID != 0 && self.tag_kind == PROVIDER_TAG;
        (self.tag & TAG_VLAN, is_provider)
    }
}

/// The mapping; unmapped when dropped, absent in forked children.
#[derive(Debug)]
pub(crate) struct RxRing {
    base: NonNull<u8>,
    len: usize,
    frame_size: usize,
    count: u32,
}

// SAFETY: the ring is plain memory with one owner of this value; slots change hands by atomics.
unsafe impl Send for RxRing {}

impl RxRing {
    pub(crate) fn map(fd: BorrowedFd<'_>, params: RingParams) -> io::Result<RxRing> {
        let frame_size = params.frame_size as usize;
        let per_block = (params.block_size as usize)
            .checked_div(frame_size)
            .unwrap_or(0);
        let is_sound = frame_size.is_multiple_of(16)
            && frame_size >= HEADER_LEN
            && per_block * frame_size == params.block_size as usize
            && params.frame_count != 0
            && (params.frame_count as usize).is_multiple_of(per_block.max(1));
        if !is_sound {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let len = frame_size * params.frame_count as usize;
        let prot = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        let flags = rustix::mm::MapFlags::SHARED;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe { rustix::mm::mmap(core::ptr::null_mut(), len, prot, flags, fd, 0) }?;
        let ring = RxRing {
            base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            len,
            frame_size,
            count: params.frame_count,
        };
        // A child that inherited the mapping would keep the socket alive after our death.
        // SAFETY: the range is exactly the mapping just made.
        unsafe { rustix::mm::madvise(base, len, rustix::mm::Advice::LinuxDontFork) }?;
        Ok(ring)
    }

    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    #[inline]
    fn slot(&self, index: u32) -> *mut u8 {
        let offset = (index % self.count) as usize * self.frame_size;
        // SAFETY: the index is reduced to the count, and `count` slots were mapped.
        unsafe { self.base.as_ptr().add(offset) }
    }

    #[inline]
    fn status_word(&self, index: u32) -> &AtomicU32 {
        // SAFETY: the status is the first word of a slot, slots are 16-aligned, and kernel and
        // user access it atomically.
        unsafe { AtomicU32::from_ptr(self.slot(index).cast()) }
    }

    #[inline]
    pub(crate) fn status(&self, index: u32) -> u32 {
        self.status_word(index).load(Ordering::Acquire)
    }

    /// Makes a waiting frame one of no protocol: the other process that has the ring may be about
    /// to read it, so nothing but its EtherType changes.
    pub(crate) fn blank(&self, index: u32, header: SlotHeader) {
        let at = usize::from(header.mac) + ETHER_TYPE_AT;
        if at + NO_PROTOCOL.len() > self.frame_size {
            return;
        }
        for (byte, value) in (at..).zip(NO_PROTOCOL) {
            // SAFETY: the byte is in the slot.
            let byte = unsafe { self.slot(index).add(byte) };
            // SAFETY: the slot is mapped, and its bytes are shared with other processes alone.
            let byte = unsafe { AtomicU8::from_ptr(byte) };
            byte.store(value, Ordering::Relaxed);
        }
    }

    /// Gives a slot back to the kernel.
    #[inline]
    pub(crate) fn release(&self, index: u32) {
        self.status_word(index)
            .store(STATUS_KERNEL, Ordering::Release);
    }

    /// The bytes of a slot that is ours: header, then the frame at [`SlotHeader::mac`].
    #[inline]
    pub(crate) fn bytes(&self, index: u32) -> &[u8] {
        let slot = self.slot(index);
        // SAFETY: the slot is in the mapping; callers read only slots whose status is USER, which
        // the kernel does not write until `release`, and release them after the borrow.
        unsafe { core::slice::from_raw_parts(slot, self.frame_size) }
    }

    /// The header of a slot that is ours.
    #[inline]
    pub(crate) fn header(&self, index: u32) -> SlotHeader {
        let bytes: &[u8; HEADER_LEN] = self.bytes(index).first_chunk().unwrap_or(&[0; HEADER_LEN]);
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        SlotHeader {
            len: word(4),
            captured: word(8),
            mac: u16::from_ne_bytes([bytes[12], bytes[13]]),
            sec: word(16),
            nsec: word(20),
            tag: u16::from_ne_bytes([bytes[24], bytes[25]]),
            tag_kind: u16::from_ne_bytes([bytes[26], bytes[27]]),
        }
    }
}

impl Drop for RxRing {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`, and no slice of it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
