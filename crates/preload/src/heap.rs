//! Our own heap, apart from the program's `malloc`.
//!
//! Our code runs where the program's allocator may not: in signal handlers that
//! interrupted `malloc`, in fork children of threaded programs, below an allocator that
//! reads a file. Allocations happen only inside an open guard (handlers are put off), so
//! no interrupted thread ever holds the lock of this heap.

mod sys;

#[global_allocator]
static HEAP: sys::Heap = sys::Heap::new();

/// Holds the heap over a fork, so that the child finds it whole.
pub fn hold() {
    HEAP.lock().take();
}

/// Ends [`hold`], in the parent and in the child.
pub fn release() {
    HEAP.lock().release();
}
