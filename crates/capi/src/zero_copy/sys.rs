//! The reserved address range, and access to the stack's memory.

use core::ops::Range;
use core::ptr::null_mut;
use std::io::IoSlice;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::chain::{ADDRESS_STEP, CHAINS_MAX, Memory, Sending};

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

/// Returns the bytes that are to be sent.
pub fn slices(sending: &Sending) -> Vec<IoSlice<'_>> {
    let Range { mut start, end } = sending.rest.clone();
    let pieces = match &sending.memory {
        Memory::Own(own) => return vec![IoSlice::new(&own[start..end])],
        Memory::Carved(pieces) => pieces,
    };
    let mut found = Vec::with_capacity(pieces.len());
    let mut before = 0;
    for (piece, len) in pieces {
        let skip = start - before;
        let part = end.min(before + len).saturating_sub(start);
        if part > 0 {
            let space = piece.space();
            debug_assert!(skip + part <= space.iov_len);
            let at = space.iov_base.cast::<u8>().wrapping_add(skip);
            // SAFETY: filled by this process, and its alone until `sending` is gone; the program
            // has handed them over.
            let bytes = unsafe { core::slice::from_raw_parts(at, part) };
            found.push(IoSlice::new(bytes));
        }
        start += part;
        before += len;
    }
    found
}
