//! Addresses at which nothing is.

use core::ops::Range;
use core::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::chain::{ADDRESS_STEP, CHAINS_MAX};

static BASE: AtomicUsize = AtomicUsize::new(0);
const LEN: usize = ADDRESS_STEP * CHAINS_MAX;

/// The range, once it has been made.
pub fn known_range() -> Option<Range<usize>> {
    match BASE.load(Ordering::Acquire) {
        0 => None,
        base => Some(base..base + LEN),
    }
}

/// The range; made now if need be. One thread at a time.
pub fn range() -> Option<Range<usize>> {
    if let Some(range) = known_range() {
        return Some(range);
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice, which nobody can touch.
    let base = unsafe { libc::mmap(null_mut(), LEN, libc::PROT_NONE, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return None;
    }
    BASE.store(base.addr(), Ordering::Release);
    known_range()
}
