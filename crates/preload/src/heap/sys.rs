//! The allocator itself: dlmalloc over anonymous mappings, behind one lock.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr;

use dlmalloc::{Allocator, Dlmalloc};

use crate::lock::Lock;
use crate::thread::InCall;

/// The allocator of the whole library.
pub struct Heap {
    lock: Lock,
    inner: UnsafeCell<Dlmalloc<Pages>>,
}

// SAFETY: `inner` is only touched between `lock.take()` and `lock.release()`.
unsafe impl Sync for Heap {}

impl Heap {
    pub const fn new() -> Heap {
        Heap {
            lock: Lock::new(),
            inner: UnsafeCell::new(Dlmalloc::new_with_allocator(Pages)),
        }
    }

    pub fn lock(&self) -> &Lock {
        &self.lock
    }

    fn with<T>(&self, work: impl FnOnce(&mut Dlmalloc<Pages>) -> T) -> T {
        let _in_call = InCall::enter();
        self.lock.take();
        // SAFETY: the lock is held, so this is the only reference.
        let result = work(unsafe { &mut *self.inner.get() });
        self.lock.release();
        result
    }
}

// SAFETY: dlmalloc returns memory of the asked size and alignment that nobody else has.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout has a valid alignment.
        self.with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller gives back what `alloc` gave for this layout.
        self.with(|heap| unsafe { heap.free(at, layout.size(), layout.align()) });
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout has a valid alignment.
        self.with(|heap| unsafe { heap.calloc(layout.size(), layout.align()) })
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller gives what `alloc` gave for this layout.
        self.with(|heap| unsafe { heap.realloc(at, layout.size(), layout.align(), size) })
    }
}

/// Where the heap gets its memory.
struct Pages;

const PAGE_LEN: usize = 4096;

// SAFETY: gives out fresh zeroed mappings and takes back exactly those.
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
