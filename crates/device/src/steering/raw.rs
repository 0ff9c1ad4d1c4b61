//! One copy of the steering table mapped into memory: the value of an eBPF array that the programs
//! read, or the memory file that engines read. Changes are stores of single words.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::BorrowedFd;

use super::layout;

/// Bytes of the mapping: the kernel maps whole pages.
pub(crate) const MAPPED: usize = layout::LEN.next_multiple_of(4096);

/// A mapping of the table. Words outside it read as zero and take no store.
#[derive(Debug)]
pub(crate) struct Table {
    base: NonNull<u8>,
    is_writable: bool,
}

// SAFETY: the mapping is plain memory; every access is atomic.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    /// Maps the table behind a descriptor, for storing too if it allows that.
    pub(crate) fn map(fd: BorrowedFd<'_>, is_writable: bool) -> io::Result<Table> {
        let mut prot = rustix::mm::ProtFlags::READ;
        if is_writable {
            prot |= rustix::mm::ProtFlags::WRITE;
        }
        let flags = rustix::mm::MapFlags::SHARED;
        let null = core::ptr::null_mut();
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe { rustix::mm::mmap(null, MAPPED, prot, flags, fd, 0) }?;
        Ok(Table {
            base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            is_writable,
        })
    }

    #[inline]
    fn at(&self, offset: usize, width: usize) -> *mut u8 {
        // Offsets are made of constants and of reduced indices: this cannot fail, and if it did,
        // the first word would be a harmless one to hit.
        let is_inside = offset.is_multiple_of(width) && offset + width <= layout::LEN;
        debug_assert!(is_inside, "offset {offset}");
        let offset = if is_inside { offset } else { 0 };
        // SAFETY: the offset is inside the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    #[inline]
    pub(crate) fn load_u8(&self, offset: usize) -> u8 {
        let at = self.at(offset, 1);
        // SAFETY: inside the mapping, initialised, and accessed atomically only.
        let word = unsafe { AtomicU8::from_ptr(at) };
        word.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn load_u16(&self, offset: usize) -> u16 {
        let at = self.at(offset, 2).cast();
        // SAFETY: inside the mapping, aligned, initialised, and accessed atomically only.
        let word = unsafe { AtomicU16::from_ptr(at) };
        word.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn load_u32(&self, offset: usize) -> u32 {
        let at = self.at(offset, 4).cast();
        // SAFETY: as in `load_u16`.
        let word = unsafe { AtomicU32::from_ptr(at) };
        word.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn load_u64(&self, offset: usize) -> u64 {
        let at = self.at(offset, 8).cast();
        // SAFETY: as in `load_u16`.
        let word = unsafe { AtomicU64::from_ptr(at) };
        word.load(Ordering::Relaxed)
    }

    pub(crate) fn store_u8(&self, offset: usize, value: u8) {
        if self.is_writable {
            let at = self.at(offset, 1);
            // SAFETY: as in `load_u8`, and the mapping is writable.
            let word = unsafe { AtomicU8::from_ptr(at) };
            word.store(value, Ordering::Release);
        }
    }

    pub(crate) fn store_u16(&self, offset: usize, value: u16) {
        if self.is_writable {
            let at = self.at(offset, 2).cast();
            // SAFETY: as in `load_u16`, and the mapping is writable.
            let word = unsafe { AtomicU16::from_ptr(at) };
            word.store(value, Ordering::Release);
        }
    }

    pub(crate) fn store_u32(&self, offset: usize, value: u32) {
        if self.is_writable {
            let at = self.at(offset, 4).cast();
            // SAFETY: as in `load_u16`, and the mapping is writable.
            let word = unsafe { AtomicU32::from_ptr(at) };
            word.store(value, Ordering::Release);
        }
    }

    pub(crate) fn store_u64(&self, offset: usize, value: u64) {
        if self.is_writable {
            let at = self.at(offset, 8).cast();
            // SAFETY: as in `load_u16`, and the mapping is writable.
            let word = unsafe { AtomicU64::from_ptr(at) };
            word.store(value, Ordering::Release);
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), MAPPED) };
    }
}
