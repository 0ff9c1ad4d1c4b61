//! SO_RCVTIMEO and SO_SNDTIMEO.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::errno::Errno;

const NS_PER_S: u64 = 1_000_000_000;
/// SO_RCVTIMEO_NEW and SO_SNDTIMEO_NEW (asm-generic/socket.h).
pub(crate) const RCVTIMEO_NEW: i32 = 66;
pub(crate) const SNDTIMEO_NEW: i32 = 67;

/// Over before anything has been waited for.
const TIMEOUT_LEAST_NS: u64 = 1;

/// `struct timeval`; the kernel has checked it.
pub(crate) fn set_timeout(place: &AtomicU64, value: &[u8]) -> Result<(), Errno> {
    let word = |at: usize| {
        let bytes: [u8; 8] = value.get(at..at + 8)?.try_into().ok()?;
        Some(i64::from_ne_bytes(bytes))
    };
    let (Some(seconds), Some(micros)) = (word(0), word(8)) else {
        return Err(Errno::EINVAL);
    };
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno::EDOM);
    }
    // sock_set_timeout(): a negative one means no wait, where 0 is for ever.
    let ns = match u64::try_from(seconds) {
        Ok(seconds) => seconds
            .saturating_mul(NS_PER_S)
            .saturating_add(micros.cast_unsigned() * 1_000),
        Err(_) => TIMEOUT_LEAST_NS,
    };
    place.store(ns, Ordering::Relaxed);
    Ok(())
}
