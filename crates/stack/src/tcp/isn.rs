//! Initial sequence numbers and timestamp offsets that cannot be guessed.
//!
//! RFC 9293 3.4.1, RFC 6528 3: ISN = M + F(localip, localport, remoteip, remoteport, secretkey), M
//! counts 4 µs. RFC 7323 7.1 / 5.4: timestamps start at a per-flow random offset, the same for
//! successive connections of one flow, so that TIME-WAIT and PAWS of the peer keep working.

use crate::time::Instant;

/// Length of one tick of RFC 6528's clock M.
const TICK_NS: u64 = 4_000;

/// The initial sequence number of a flow at this moment; `secret` is the keyed hash of the flow.
pub fn initial_sequence(secret: u64, now: Instant) -> u32 {
    ((now.0 / TICK_NS) as u32).wrapping_add(secret as u32)
}

/// Offset of the flow's timestamp clock.
pub fn timestamp_offset(secret: u64) -> u32 {
    (secret >> 32) as u32
}

/// The timestamp clock: milliseconds (RFC 7323 5.4 wants 1 ms to 1 s per tick).
#[inline]
pub fn timestamp(now: Instant, offset: u32) -> u32 {
    ((now.0 / 1_000_000) as u32).wrapping_add(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_count_milliseconds_from_where_the_flow_begins() {
        // RFC 7323 5.4 and 7.1.
        let offset = timestamp_offset(0xffff_fff0_1234_5678);
        let at = |ms: u64| timestamp(Instant(ms * 1_000_000), offset);
        assert_eq!(at(7).wrapping_sub(at(0)), 7);
        assert_eq!(at(20), 4, "it wraps");
        assert_ne!(timestamp_offset(1 << 32), timestamp_offset(2 << 32));
    }

    #[test]
    fn sequence_numbers_grow_by_one_in_four_microseconds() {
        let at = |ns: u64| initial_sequence(1_000, Instant(ns));
        assert_eq!(at(8_000).wrapping_sub(at(0)), 2);
        assert_ne!(
            initial_sequence(1, Instant(0)),
            initial_sequence(2, Instant(0))
        );
    }
}
