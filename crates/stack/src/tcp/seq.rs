//! Sequence numbers, widened to 64 bits.
//!
//! The wire carries 32 bits that wrap (RFC 9293 3.4). Inside the stack every sequence number of one
//! direction is counted from a fixed origin in 64 bits and never wraps, so that comparison is plain
//! `<` and a stream offset is a subtraction. The SYN sits at [`SYN`], the first byte of the stream
//! at [`FIRST`]. The origin is far from zero so that numbers left of the window (old duplicates)
//! stay representable.

/// The sequence number of the SYN. Its low 32 bits are zero: the wire number is the initial one
/// plus the low half.
pub const SYN: u64 = 1 << 33;
/// The sequence number of the first byte of the stream.
pub const FIRST: u64 = SYN + 1;

/// The outstanding part of a send sequence space: SND.UNA up to SND.NXT.
#[derive(Clone, Copy, Debug)]
pub struct Outstanding {
    pub una: u64,
    pub nxt: u64,
}

/// The number that goes on the wire.
#[inline]
pub fn to_wire(initial: u32, seq: u64) -> u32 {
    initial.wrapping_add(seq as u32)
}

/// Returns the widened number nearest to `reference` whose wire form is `wire`.
#[inline]
pub fn widen(initial: u32, reference: u64, wire: u32) -> u64 {
    let distance = wire.wrapping_sub(to_wire(initial, reference)) as i32;
    reference.wrapping_add_signed(i64::from(distance))
}

/// Offset in the stream: the first byte after the SYN is 0.
#[inline]
pub fn offset(seq: u64) -> u64 {
    seq.wrapping_sub(FIRST)
}

/// The sequence number of a stream offset.
#[inline]
pub fn at(offset: u64) -> u64 {
    FIRST.wrapping_add(offset)
}

/// Is the 32-bit timestamp `a` older than `b`? RFC 7323 5.2: s is less than t if 0 < (t - s) <
/// 2^31.
#[inline]
pub fn is_older(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn widening_inverts_the_wire_form_within_two_gibibytes(
            initial: u32,
            position in 0u64..1 << 50, delta in -(1i64 << 31)..(1i64 << 31),
        ) {
            let reference = SYN + position;
            let seq = reference.wrapping_add_signed(delta);
            prop_assert_eq!(widen(initial, reference, to_wire(initial, seq)), seq);
        }
    }

    #[test]
    fn the_syn_has_the_initial_sequence_number() {
        // RFC 9293 3.4.
        assert_eq!(to_wire(0xdead_beef, SYN), 0xdead_beef);
        assert_eq!(to_wire(u32::MAX, FIRST), 0);
        assert_eq!(offset(at(17)), 17);
    }

    #[test]
    fn timestamps_compare_across_the_wrap() {
        // RFC 7323 5.2.
        assert!(is_older(u32::MAX, 0));
        assert!(!is_older(0, u32::MAX));
        assert!(!is_older(5, 5));
    }
}
