//! Length of this process's channel: RLIMIT_AS counts each address of it, used or not.

use slipstack_channel::{REGION_BYTES, REGION_BYTES_MIN, region_bytes_within};
use slipstack_mem::process::{address_limit, has_addresses};

use crate::error::Error;

/// Bytes that an engine maps beside its channel: inboxes, the device's ring, a thread's stack, its
/// own memory.
const BESIDE: usize = 32 << 20;
/// Bytes that malloc takes, where it can, for the first thread beside the program's own.
const HEAP_OF_THREAD: usize = 64 << 20;

/// Length of the region for a channel of this process: as much as its limit leaves, or the least
/// that will do.
///
/// # Errors
/// There are no addresses for a stack.
pub(crate) fn region_bytes() -> Result<usize, Error> {
    let Some(limit) = address_limit() else {
        return Ok(REGION_BYTES);
    };
    [region_bytes_within(limit), REGION_BYTES_MIN]
        .into_iter()
        .find(|len| has_addresses(len + BESIDE))
        .ok_or(Error::NoAddresses {
            limit,
            lacking: (REGION_BYTES_MIN + BESIDE + HEAP_OF_THREAD) as u64,
        })
}
