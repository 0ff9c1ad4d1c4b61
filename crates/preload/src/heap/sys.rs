//! The allocator itself: dlmalloc over anonymous mappings, behind one lock.
//!
//! Freed small blocks are kept in bins by size and reused from there, because each connection
//! allocates and frees half a dozen of them.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};

use dlmalloc::{Allocator, Dlmalloc};

use crate::lock::Lock;
use crate::thread::InCall;

/// The allocator of the whole library.
pub struct Heap {
    lock: Lock,
    inner: UnsafeCell<Pieces>,
}

// SAFETY: `inner` is only touched between `lock.take()` and `lock.release()`.
unsafe impl Sync for Heap {}

impl Heap {
    pub const fn new() -> Heap {
        Heap {
            lock: Lock::new(),
            inner: UnsafeCell::new(Pieces {
                bins: [Bin::EMPTY; BINS],
                large: Dlmalloc::new_with_allocator(Pages),
            }),
        }
    }

    pub fn lock(&self) -> &Lock {
        &self.lock
    }

    fn with<T>(&self, work: impl FnOnce(&mut Pieces) -> T) -> T {
        let _in_call = InCall::enter();
        self.lock.take();
        // SAFETY: the lock is held, so this is the only reference.
        let result = work(unsafe { &mut *self.inner.get() });
        self.lock.release();
        result
    }
}

/// Sizes of the bins' pieces: multiples of this, and aligned to it.
const STEP: usize = 16;
const BINS: usize = 32;
/// Pieces that one bin keeps.
const KEPT_MAX: u16 = 64;

/// A free block.
struct Free {
    next: Option<NonNull<Free>>,
}

/// Pieces of one size.
struct Bin {
    first: Option<NonNull<Free>>,
    count: u16,
}

impl Bin {
    const EMPTY: Bin = Bin {
        first: None,
        count: 0,
    };
}

struct Pieces {
    bins: [Bin; BINS],
    large: Dlmalloc<Pages>,
}

impl Pieces {
    /// The bin that serves `layout`, and the size of its pieces.
    #[inline]
    fn bin_of(layout: Layout) -> Option<(usize, usize)> {
        let size = layout.size().div_ceil(STEP);
        let is_small = (1..=BINS).contains(&size) && layout.align() <= STEP;
        is_small.then_some((size - 1, size * STEP))
    }

    #[inline]
    fn take(&mut self, layout: Layout) -> *mut u8 {
        let Some((bin, size)) = Self::bin_of(layout) else {
            // SAFETY: the layout has a valid alignment.
            return unsafe { self.large.malloc(layout.size(), layout.align()) };
        };
        let bin = &mut self.bins[bin];
        let Some(piece) = bin.first else {
            // SAFETY: as above.
            return unsafe { self.large.malloc(size, STEP) };
        };
        // SAFETY: a block in a bin starts with a `Free` that `give` has written.
        bin.first = unsafe { piece.as_ref() }.next;
        bin.count -= 1;
        piece.as_ptr().cast()
    }

    /// # Safety
    /// `at` was returned by `take` for `layout`, and is not used any more.
    #[inline]
    unsafe fn give(&mut self, at: *mut u8, layout: Layout) {
        let Some((index, size)) = Self::bin_of(layout) else {
            // SAFETY: the caller's promise.
            return unsafe { self.large.free(at, layout.size(), layout.align()) };
        };
        let bin = &mut self.bins[index];
        let Some(piece) = NonNull::new(at.cast::<Free>()).filter(|_| bin.count < KEPT_MAX) else {
            // SAFETY: the caller's promise.
            return unsafe { self.large.free(at, size, STEP) };
        };
        // SAFETY: the piece is the caller's, at least a step long and aligned to one.
        unsafe { piece.write(Free { next: bin.first }) };
        bin.first = Some(piece);
        bin.count += 1;
    }
}

// SAFETY: a block is given out once until it comes back, with the requested size and alignment.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.with(|heap| heap.take(layout))
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller returns a block of `alloc` for this layout.
        self.with(|heap| unsafe { heap.give(at, layout) });
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if Pieces::bin_of(layout).is_none() {
            // SAFETY: the layout has a valid alignment.
            return self.with(|heap| unsafe { heap.large.calloc(layout.size(), layout.align()) });
        }
        let at = self.with(|heap| heap.take(layout));
        if !at.is_null() {
            // SAFETY: a fresh piece of at least this size.
            unsafe { at.write_bytes(0, layout.size()) };
        }
        at
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's size is valid for the layout's alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        self.with(
            |heap| match (Pieces::bin_of(layout), Pieces::bin_of(wanted)) {
                // SAFETY: the caller passes a block of `alloc` for this layout.
                (None, None) => unsafe {
                    heap.large.realloc(at, layout.size(), layout.align(), size)
                },
                (was, is) if was == is => at,
                _ => {
                    let new = heap.take(wanted);
                    if !new.is_null() {
                        let len = layout.size().min(size);
                        // SAFETY: both are at least that long, and one is not the other.
                        unsafe { ptr::copy_nonoverlapping(at, new, len) };
                        // SAFETY: the caller's piece, copied.
                        unsafe { heap.give(at, layout) };
                    }
                    new
                }
            },
        )
    }
}

/// Source of the heap's memory.
struct Pages;

const PAGE_LEN: usize = 4096;

// SAFETY: returns fresh zeroed mappings and takes back exactly those.
unsafe impl Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), size, access, MapFlags::PRIVATE) };
        match at {
            Ok(at) => (at.cast(), size, 0),
            Err(_) => (ptr::null_mut(), 0, 0),
        }
    }

    fn remap(&self, at: *mut u8, old: usize, new: usize, may_move: bool) -> *mut u8 {
        use rustix::mm::{MremapFlags, mremap};
        let flags = if may_move {
            MremapFlags::MAYMOVE
        } else {
            MremapFlags::empty()
        };
        // SAFETY: the heap hands back a mapping of its own.
        let at = unsafe { mremap(at.cast(), old, new, flags) };
        at.map_or(ptr::null_mut(), <*mut _>::cast)
    }

    fn free_part(&self, at: *mut u8, old: usize, new: usize) -> bool {
        let tail = at.wrapping_add(new);
        // SAFETY: the heap no longer uses the tail of its mapping.
        unsafe { rustix::mm::munmap(tail.cast(), old - new) }.is_ok()
    }

    fn free(&self, at: *mut u8, size: usize) -> bool {
        // SAFETY: the heap no longer uses this mapping.
        unsafe { rustix::mm::munmap(at.cast(), size) }.is_ok()
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE_LEN
    }
}
