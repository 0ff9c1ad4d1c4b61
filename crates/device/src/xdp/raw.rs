//! The rings and the frame memory (UMEM) of an AF_XDP socket, mapped.
//!
//! A ring has two counters: only the producer stores the one, only the consumer the other. We are
//! the producer of the fill and transmit rings and the consumer of the other two.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::mm::{Advice, MapFlags, ProtFlags};
use slipstack_mem::RawSlice;

use super::sys::{self, MmapOffsets, RingOffset};

const RX_AT: u64 = 0;
const TX_AT: u64 = 0x8000_0000;
const FILL_AT: u64 = 0x1_0000_0000;
const COMPLETION_AT: u64 = 0x1_8000_0000;

/// The kernel wants to be called when the ring has news.
const FLAG_NEED_WAKEUP: u32 = 1;

/// An entry of the receive and the transmit ring: `struct xdp_desc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Desc {
    pub addr: u64,
    pub len: u32,
    pub options: u32,
}

/// Memory that is unmapped with this value and absent in forked children.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory with one owner; shared parts are accessed by atomics or belong to one side
// at a time.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, at: u64, len: usize) -> io::Result<Mapping> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED;
        let null = core::ptr::null_mut();
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe { rustix::mm::mmap(null, len, prot, flags, fd, at) }?;
        let mapping = Mapping {
            base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            len,
        };
        // A child that inherited the mapping would keep the socket alive after our death.
        // SAFETY: the range is exactly the mapping just made.
        unsafe { rustix::mm::madvise(base, len, Advice::LinuxDontFork) }?;
        Ok(mapping)
    }

    /// Returns the place of a value of type `T`, which must be inside.
    fn at<T>(&self, offset: usize) -> io::Result<NonNull<T>> {
        let is_sound = offset.is_multiple_of(align_of::<T>())
            && offset
                .checked_add(size_of::<T>())
                .is_some_and(|end| end <= self.len);
        if !is_sound {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: the offset is inside the mapping.
        Ok(unsafe { self.base.add(offset) }.cast())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`, and nothing borrowed from it outlives it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// One ring with entries of type `T`.
#[derive(Debug)]
pub(super) struct Ring<T> {
    _mapping: Mapping,
    producer: NonNull<u32>,
    consumer: NonNull<u32>,
    flags: NonNull<u32>,
    entries: NonNull<T>,
    mask: u32,
}

// SAFETY: as `Mapping`, into which the pointers point.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn map(fd: BorrowedFd<'_>, at: u64, offset: &RingOffset, count: u32) -> io::Result<Ring<T>> {
        if !count.is_power_of_two() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let place = |offset: u64| usize::try_from(offset).map_err(io::Error::other);
        let desc = place(offset.desc)?;
        let len = desc + count as usize * size_of::<T>();
        let mapping = Mapping::new(fd, at, len)?;
        mapping.at::<T>(desc + (count as usize - 1) * size_of::<T>())?;
        Ok(Ring {
            producer: mapping.at(place(offset.producer)?)?,
            consumer: mapping.at(place(offset.consumer)?)?,
            flags: mapping.at(place(offset.flags)?)?,
            entries: mapping.at(desc)?,
            mask: count - 1,
            _mapping: mapping,
        })
    }

    #[inline]
    fn word(&self, at: NonNull<u32>) -> &AtomicU32 {
        // SAFETY: inside the mapping, aligned, and accessed atomically by both sides.
        unsafe { AtomicU32::from_ptr(at.as_ptr()) }
    }

    #[inline]
    pub(super) fn producer(&self) -> u32 {
        self.word(self.producer).load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn consumer(&self) -> u32 {
        self.word(self.consumer).load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn set_producer(&self, value: u32) {
        self.word(self.producer).store(value, Ordering::Release);
    }

    #[inline]
    pub(super) fn set_consumer(&self, value: u32) {
        self.word(self.consumer).store(value, Ordering::Release);
    }

    /// Entries that were produced and not consumed yet.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        self.producer()
            .wrapping_sub(self.consumer())
            .min(self.mask + 1)
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.waiting() > self.mask
    }

    #[inline]
    pub(super) fn wants_call(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & FLAG_NEED_WAKEUP != 0
    }

    #[inline]
    fn entry(&self, index: u32) -> *mut T {
        // SAFETY: the index is reduced to the count of entries, which were mapped.
        unsafe { self.entries.as_ptr().add((index & self.mask) as usize) }
    }

    #[inline]
    pub(super) fn read(&self, index: u32) -> T {
        // SAFETY: an aligned entry of plain integers inside the mapping; one that the other side
        // writes at the same time would be checked as any other number.
        unsafe { self.entry(index).read_volatile() }
    }

    #[inline]
    pub(super) fn write(&self, index: u32, value: T) {
        // SAFETY: as in `read`; entries beyond the producer's counter are its own.
        unsafe { self.entry(index).write_volatile(value) }
    }
}

/// The four rings of a socket.
#[derive(Debug)]
pub(super) struct Rings {
    pub rx: Ring<Desc>,
    pub tx: Ring<Desc>,
    pub fill: Ring<u64>,
    pub completion: Ring<u64>,
}

impl Rings {
    pub(super) fn map(fd: BorrowedFd<'_>, rx: u32, tx: u32) -> io::Result<Rings> {
        Rings::at(fd, &sys::offsets(fd)?, rx, tx)
    }

    /// Maps rings whose words and entries are at these places.
    pub(super) fn at(
        fd: BorrowedFd<'_>,
        offsets: &MmapOffsets,
        rx: u32,
        tx: u32,
    ) -> io::Result<Rings> {
        Ok(Rings {
            rx: Ring::map(fd, RX_AT, &offsets.rx, rx)?,
            tx: Ring::map(fd, TX_AT, &offsets.tx, tx)?,
            fill: Ring::map(fd, FILL_AT, &offsets.fill, rx)?,
            completion: Ring::map(fd, COMPLETION_AT, &offsets.completion, tx)?,
        })
    }
}

/// The frames of a socket, and behind them a byte for each frame to send: 1 = it is the kernel's.
#[derive(Debug)]
pub(super) struct Memory {
    mapping: Mapping,
    frames_len: usize,
}

impl Memory {
    pub(super) fn map(fd: impl AsFd, frames_len: usize, marks: usize) -> io::Result<Memory> {
        Ok(Memory {
            mapping: Mapping::new(fd.as_fd(), 0, frames_len + marks)?,
            frames_len,
        })
    }

    /// Address and length of the frames, to register.
    pub(super) fn range(&self) -> (u64, u64) {
        (self.mapping.base.as_ptr() as u64, self.frames_len as u64)
    }

    /// Returns the place of `len` bytes from `addr` on; `None` if they are outside.
    #[inline]
    fn place(&self, addr: usize, len: usize) -> Option<NonNull<u8>> {
        if addr.checked_add(len)? > self.frames_len {
            return None;
        }
        // SAFETY: the offset is inside the mapping.
        Some(unsafe { self.mapping.base.add(addr) })
    }

    /// Returns received bytes; `None` if the numbers are outside.
    #[inline]
    pub(super) fn bytes(&self, addr: u64, len: u32) -> Option<&[u8]> {
        let len = len as usize;
        let place = self.place(usize::try_from(addr).ok()?, len)?;
        // SAFETY: inside the mapping; the frame is ours until it is put into the fill ring, which
        // its reader does after the borrow.
        Some(unsafe { core::slice::from_raw_parts(place.as_ptr(), len) })
    }

    /// Writes a frame to send, which is ours, from `addr` on; returns it. `None` if it is outside.
    #[inline]
    pub(super) fn fill(
        &mut self,
        addr: usize,
        head: &[&[u8]],
        payload: [RawSlice<'_>; 2],
    ) -> Option<&mut [u8]> {
        let head_len: usize = head.iter().map(|part| part.len()).sum();
        let len = head_len + payload[0].len() + payload[1].len();
        let place = self.place(addr, len)?;
        // SAFETY: inside the mapping; a frame that the kernel does not have is ours alone.
        let frame = unsafe { core::slice::from_raw_parts_mut(place.as_ptr(), len) };
        let mut rest = &mut frame[..];
        for part in head {
            let (to, after) = rest.split_at_mut(part.len());
            to.copy_from_slice(part);
            rest = after;
        }
        let (first, second) = rest.split_at_mut(payload[0].len());
        payload[0].copy_to(first);
        payload[1].copy_to(second);
        Some(frame)
    }

    /// The mark of a frame to send.
    #[inline]
    pub(super) fn mark(&self, index: usize) -> Option<&AtomicU8> {
        let at = self.mapping.at::<u8>(self.frames_len + index).ok()?;
        // SAFETY: inside the mapping, and accessed atomically only.
        Some(unsafe { AtomicU8::from_ptr(at.as_ptr()) })
    }
}
