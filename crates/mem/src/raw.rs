//! Mapped memory and the raw views of it.

use core::ffi::c_void;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};
use std::io;
use std::os::fd::BorrowedFd;

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

/// One cache line of shared words.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Line {
    pub words: [AtomicU64; 8],
}

/// A mapping that is unmapped with its last owner.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory; access goes through atomics and raw copies only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// A program that locks its mappings (mlockall) would have every page of hardly used gigabytes
    /// at once, and so would its core file.
    pub(crate) fn shared(
        fd: BorrowedFd<'_>,
        len: usize,
        access: MprotectFlags,
    ) -> io::Result<Mapping> {
        let (null, none, shared) = (core::ptr::null_mut(), ProtFlags::empty(), MapFlags::SHARED);
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe { rustix::mm::mmap(null, len, none, shared, fd, 0) }?;
        let mapping = Mapping::of(base, len)?;
        // SAFETY: the whole mapping; its contents stay as they are.
        let _ = unsafe { rustix::mm::munlock(base, len) };
        let _ = mapping.advise(0, len, Advice::LinuxDontDump);
        // SAFETY: the whole mapping, to which there is no reference yet.
        unsafe { rustix::mm::mprotect(base, len, access) }?;
        Ok(mapping)
    }

    pub(crate) fn anonymous(len: usize) -> io::Result<Mapping> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(core::ptr::null_mut(), len, prot, MapFlags::PRIVATE)
        }?;
        Mapping::of(base, len)
    }

    /// Addresses without memory.
    pub(crate) fn reserved(len: usize) -> io::Result<Mapping> {
        let (null, none) = (core::ptr::null_mut(), ProtFlags::empty());
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe { rustix::mm::mmap_anonymous(null, len, none, flags) }?;
        Mapping::of(base, len)
    }

    fn of(base: *mut c_void, len: usize) -> io::Result<Mapping> {
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, len })
    }

    pub(crate) fn view(&self) -> View {
        View {
            base: self.base,
            len: self.len,
        }
    }

    /// Advice for pages `[offset, offset + len)`, both multiples of the page size.
    pub(crate) fn advise(&self, offset: usize, len: usize, advice: Advice) -> io::Result<()> {
        if offset > self.len || len > self.len - offset {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the offset is inside the mapping.
        let at = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: the range is inside this mapping, whose contents no Rust reference covers
        // except atomics; the advices used keep the mapping valid in this process.
        unsafe { rustix::mm::madvise(at.cast(), len, advice) }?;
        Ok(())
    }

    /// Changes this process's access to the pages `[offset, offset + len)`.
    pub(crate) fn protect(&self, offset: usize, len: usize, to: MprotectFlags) -> io::Result<()> {
        if offset > self.len || len > self.len - offset {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the offset is inside the mapping.
        let at = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: the range is inside this mapping and stays readable; a store to a page that
        // allows none ends the process, as it is to.
        unsafe { rustix::mm::mprotect(at.cast(), len, to) }?;
        Ok(())
    }

    /// Gives the pages of the range back to the system; they read as zero afterwards.
    pub(crate) fn punch(&self, offset: usize, len: usize) -> io::Result<()> {
        if offset > self.len || len > self.len - offset {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the offset is inside the mapping.
        let at = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: as in `advise`; MADV_REMOVE leaves zero pages behind.
        let rc = unsafe { libc::madvise(at.cast(), len, libc::MADV_REMOVE) };
        if rc == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `shared`/`anonymous`, and no view outlives its owner.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Base and length, kept beside the owner so that an access does not chase the owner's pointer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a view is an address; every access is atomic or a raw copy.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn at(&self, offset: usize, len: usize, align: usize) -> Option<*mut u8> {
        if offset > self.len || len > self.len - offset || !offset.is_multiple_of(align) {
            return None;
        }
        // SAFETY: the offset was just checked against the length of the mapping.
        Some(unsafe { self.base.as_ptr().add(offset) })
    }

    /// Returns the offset of `len` bytes in the mapping.
    pub(crate) fn offset_of(&self, ptr: *const u8, len: usize) -> Option<usize> {
        let offset = ptr.addr().checked_sub(self.base.addr().get())?;
        (offset <= self.len && len <= self.len - offset).then_some(offset)
    }

    #[inline]
    pub(crate) fn u16(&self, offset: usize) -> Option<&AtomicU16> {
        let at = self.at(offset, 2, 2)?;
        // SAFETY: as in `u32`.
        Some(unsafe { AtomicU16::from_ptr(at.cast()) })
    }

    #[inline]
    pub(crate) fn u32(&self, offset: usize) -> Option<&AtomicU32> {
        let at = self.at(offset, 4, 4)?;
        // SAFETY: in bounds, aligned (the base is page aligned), initialised (zero pages), and
        // all access to shared words is atomic.
        Some(unsafe { AtomicU32::from_ptr(at.cast()) })
    }

    #[inline]
    pub(crate) fn u64(&self, offset: usize) -> Option<&AtomicU64> {
        let at = self.at(offset, 8, 8)?;
        // SAFETY: as in `u32`.
        Some(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    /// A run of lines, checked here once.
    pub(crate) fn lines(&self, offset: usize, count: usize) -> Option<RawLines> {
        let len = count.checked_mul(size_of::<Line>())?;
        let at = self.at(offset, len, align_of::<Line>())?;
        let base = NonNull::new(at.cast::<Line>())?;
        Some(RawLines { base, count })
    }

    #[inline]
    pub(crate) fn slice(&self, offset: usize, len: usize) -> Option<RawSlice<'_>> {
        let at = self.at(offset, len, 1)?;
        Some(RawSlice {
            ptr: at,
            len,
            owner: PhantomData,
        })
    }

    #[inline]
    pub(crate) fn space(&self, offset: usize, len: usize) -> Option<RawSpace<'_>> {
        let at = self.at(offset, len, 1)?;
        Some(RawSpace {
            ptr: at,
            len,
            owner: PhantomData,
        })
    }

    /// Copies private bytes into shared memory.
    #[inline]
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        let Some(at) = self.at(offset, bytes.len(), 1) else {
            return false;
        };
        // SAFETY: in bounds of writable pages that no reference to plain bytes covers; `bytes`
        // is private memory.
        unsafe { copy(bytes.as_ptr(), at, bytes.len()) };
        true
    }

    /// Copies shared bytes to shared bytes of the same mapping.
    #[inline]
    pub(crate) fn copy_within(&self, from: usize, to: usize, len: usize) -> bool {
        let (Some(source), Some(target)) = (self.at(from, len, 1), self.at(to, len, 1)) else {
            return false;
        };
        // SAFETY: both ranges are in bounds; `copy` allows overlap.
        unsafe { core::ptr::copy(source, target, len) };
        true
    }
}

/// The most bytes copied at once. From 2112 bytes on AMD and 4096 on Intel glibc's `memcpy` is one
/// `rep movsb`, which on Zen 3 and 4 is thirteen times slower (2.9 instead of 39 GB/s) if the
/// target is a few bytes further into its page than the source: a ring, which begins with a page,
/// and a buffer that `malloc` has mapped.
const COPY_MAX: usize = 2048;

/// Copies `len` bytes.
///
/// # Safety
/// As of [`core::ptr::copy_nonoverlapping`].
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len > COPY_MAX {
        // SAFETY: the caller's.
        return unsafe { copy_in_pieces(from, to, len) };
    }
    // SAFETY: the caller's.
    unsafe { core::ptr::copy_nonoverlapping(from, to, len) };
}

/// # Safety
/// As of [`copy`].
#[inline(never)]
unsafe fn copy_in_pieces(from: *const u8, to: *mut u8, len: usize) {
    let mut at = 0;
    while at < len {
        let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
        let piece = COPY_MAX.min(len - at);
        // SAFETY: a part of the caller's ranges.
        unsafe { core::ptr::copy_nonoverlapping(from, to, piece) };
        at += piece;
    }
}

/// A checked run of lines. Valid while the mapping is; `Lines` keeps both together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawLines {
    base: NonNull<Line>,
    count: usize,
}

// SAFETY: as for `View`: lines are made of atomics.
unsafe impl Send for RawLines {}
// SAFETY: as above.
unsafe impl Sync for RawLines {}

impl RawLines {
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&self, index: usize) -> Option<&[Line; N]> {
        if index > self.count || N > self.count - index {
            return None;
        }
        // SAFETY: `index` is inside the run.
        let at = unsafe { self.base.as_ptr().add(index) };
        // SAFETY: `N` lines from there are inside the run, which `View::lines` found to be in
        // bounds and aligned; lines are initialised memory made of atomics only.
        Some(unsafe { &*at.cast::<[Line; N]>() })
    }
}

/// Bytes to read that others may write at the same time: they can be copied, not borrowed.
#[derive(Clone, Copy, Debug)]
pub struct RawSlice<'a> {
    ptr: *const u8,
    len: usize,
    owner: PhantomData<&'a [u8]>,
}

impl<'a> RawSlice<'a> {
    pub const EMPTY: RawSlice<'static> = RawSlice {
        ptr: NonNull::<u8>::dangling().as_ptr(),
        len: 0,
        owner: PhantomData,
    };

    /// Private bytes in the clothes of shared ones, for callers that hand over either.
    #[inline]
    pub fn of(bytes: &'a [u8]) -> RawSlice<'a> {
        RawSlice {
            ptr: bytes.as_ptr(),
            len: bytes.len(),
            owner: PhantomData,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.ptr
    }

    /// Copies as many bytes as both sides have.
    #[inline]
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let len = self.len.min(out.len());
        // SAFETY: both ranges are valid for `len` bytes; `out` is exclusive and private, so they
        // do not overlap. Another process may write meanwhile: the bytes are then arbitrary,
        // which every caller must expect of shared memory.
        unsafe { copy(self.ptr, out.as_mut_ptr(), len) };
        len
    }

    /// Borrows the bytes in place.
    ///
    /// # Safety
    /// While the result lives nothing writes to these bytes: neither another process that maps them
    /// nor any code of this one.
    #[inline]
    pub unsafe fn bytes(&self) -> &'a [u8] {
        // SAFETY: the range is valid for `len` bytes while `'a` lasts, and the caller sees to it
        // that it does not change.
        unsafe { core::slice::from_raw_parts(self.ptr, self.len) }
    }

    /// The part `[start, start + len)`, clipped to this slice.
    #[inline]
    pub fn sub(&self, start: usize, len: usize) -> RawSlice<'a> {
        let start = start.min(self.len);
        // SAFETY: `start` is inside or one past the end.
        let ptr = unsafe { self.ptr.add(start) };
        RawSlice {
            ptr,
            len: len.min(self.len - start),
            owner: PhantomData,
        }
    }

    /// For gathering system calls that only read.
    #[inline]
    pub fn as_iovec(&self) -> libc::iovec {
        libc::iovec {
            iov_base: self.ptr.cast_mut().cast(),
            iov_len: self.len,
        }
    }
}

/// Shared memory to be written, which others may read or write at the same time.
#[derive(Debug)]
pub struct RawSpace<'a> {
    ptr: *mut u8,
    len: usize,
    owner: PhantomData<&'a [u8]>,
}

impl RawSpace<'_> {
    pub const EMPTY: RawSpace<'static> = RawSpace {
        ptr: NonNull::<u8>::dangling().as_ptr(),
        len: 0,
        owner: PhantomData,
    };

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies as many bytes as both sides have.
    pub fn copy_from(&self, bytes: &[u8]) {
        let len = self.len.min(bytes.len());
        // SAFETY: both ranges are valid for `len` bytes; `bytes` is private memory.
        unsafe { copy(bytes.as_ptr(), self.ptr, len) };
    }

    /// Copies all bytes of other shared memory; `false` and nothing done if it is longer.
    #[inline]
    pub fn copy_raw(&self, from: RawSlice<'_>) -> bool {
        let is_room = from.len <= self.len;
        if is_room {
            // SAFETY: both ranges are valid for `len` bytes of different mappings; bytes that
            // another process writes meanwhile are arbitrary, which every reader of shared memory
            // expects.
            unsafe { copy(from.ptr, self.ptr, from.len) };
        }
        is_room
    }

    /// For scattering system calls.
    #[inline]
    pub fn as_iovec(&self) -> libc::iovec {
        libc::iovec {
            iov_base: self.ptr.cast(),
            iov_len: self.len,
        }
    }
}
