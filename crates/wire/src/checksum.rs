//! The Internet checksum (RFC 1071), eight bytes at a time.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::zone;

/// A ones' complement sum being built. Pieces may have any length and alignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Sum of 16-bit words in native order.
    words: u64,
    /// Whether an odd number of bytes was added.
    odd: bool,
}

impl Sum {
    pub const ZERO: Self = Self {
        words: 0,
        odd: false,
    };

    /// Appends bytes.
    #[inline]
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        let mut sum = u64::from(sum_words(bytes));
        if self.odd {
            // RFC 1071 2 (B): a piece at an odd place counts with its bytes swapped.
            sum = u64::from((sum as u16).swap_bytes());
        }
        self.words += sum;
        self.odd ^= bytes.len() & 1 == 1;
    }

    /// Appends bytes of which only the sum is known, and whose number is no longer asked for.
    #[inline]
    pub fn add_sum(&mut self, of: Sum) {
        let mut sum = fold(of.words);
        if self.odd {
            sum = sum.swap_bytes();
        }
        self.words += u64::from(sum);
        self.odd ^= of.odd;
    }

    /// Adds a 16-bit field given in host order. Only at an even place.
    #[inline]
    pub fn add_u16(&mut self, value: u16) {
        self.words += u64::from(value.to_be());
    }

    /// Adds a 32-bit field given in host order. Only at an even place.
    #[inline]
    pub fn add_u32(&mut self, value: u32) {
        self.words += u64::from(value.to_be());
    }

    /// Returns the sum in 16 bits, in host order, not complemented: the value of a partial
    /// checksum.
    #[inline]
    pub fn fold(self) -> u16 {
        u16::from_be(fold(self.words))
    }

    /// The checksum in host order.
    #[inline]
    pub fn finish(self) -> u16 {
        !self.fold()
    }
}

/// Folds a sum of native words to 16 bits. Adding the halves of a word to each other crosswise
/// leaves their sum with its carry in the upper half.
#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum.wrapping_add(sum.rotate_right(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_right(16)) >> 16) as u16
}

/// Ones' complement addition of eight bytes at once.
#[inline]
fn add(sum: u64, word: u64) -> u64 {
    let (sum, carry) = sum.overflowing_add(word);
    sum + u64::from(carry)
}

/// Sum of native 16-bit words, folded; an odd last byte is padded with zero.
#[inline]
fn sum_words(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    let mut rest = bytes;
    // Long pieces in lanes that the compiler turns into vector additions.
    if rest.len() >= 128 {
        let mut lanes = [0u64; 8];
        let mut chunks = rest.chunks_exact(32);
        for chunk in &mut chunks {
            for (lane, word) in lanes.iter_mut().zip(chunk.chunks_exact(4)) {
                *lane += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
            }
        }
        // 2³² additions of 32 bits fit; a frame has 2¹¹.
        sum = lanes.iter().sum();
        rest = chunks.remainder();
    }
    while let Some((word, tail)) = rest.split_first_chunk::<8>() {
        sum = add(sum, u64::from_ne_bytes(*word));
        rest = tail;
    }
    if let Some((word, tail)) = rest.split_first_chunk::<4>() {
        sum = add(sum, u64::from(u32::from_ne_bytes(*word)));
        rest = tail;
    }
    if let Some((word, tail)) = rest.split_first_chunk::<2>() {
        sum = add(sum, u64::from(u16::from_ne_bytes(*word)));
        rest = tail;
    }
    if let [last] = rest {
        sum = add(sum, u64::from(u16::from_ne_bytes([*last, 0])));
    }
    fold(sum)
}

/// Checksum of one piece, in host order.
#[inline]
pub fn of(bytes: &[u8]) -> u16 {
    !u16::from_be(sum_words(bytes))
}

/// Returns whether bytes that contain their own checksum add up.
#[inline]
pub fn is_valid(bytes: &[u8]) -> bool {
    sum_words(bytes) == 0xffff
}

/// Sum of the pseudo header of TCP and UDP over IPv4 (RFC 9293 3.1).
#[inline]
pub fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, l4_len: u32) -> Sum {
    let mut sum = Sum::ZERO;
    sum.add_u32(src.to_bits());
    sum.add_u32(dst.to_bits());
    sum.add_u16(u16::from(protocol));
    sum.add_u32(l4_len);
    sum
}

/// Sum of the pseudo header of every transport over IPv6 (RFC 8200 8.1).
#[inline]
pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, l4_len: u32) -> Sum {
    let mut sum = Sum::ZERO;
    sum.add_bytes(&zone::plain(src).octets());
    sum.add_bytes(&zone::plain(dst).octets());
    sum.add_u32(l4_len);
    sum.add_u32(u32::from(protocol));
    sum
}

/// Returns whether a transport segment with its IPv6 pseudo header adds up.
#[inline]
pub fn is_valid_l4_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, segment: &[u8]) -> bool {
    let mut sum = pseudo_v6(src, dst, protocol, segment.len() as u32);
    sum.add_bytes(segment);
    sum.fold() == 0xffff
}

/// Returns whether a transport segment with its pseudo header adds up.
#[inline]
pub fn is_valid_l4_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, segment: &[u8]) -> bool {
    let mut sum = pseudo_v4(src, dst, protocol, segment.len() as u32);
    sum.add_bytes(segment);
    sum.fold() == 0xffff
}

/// RFC 1624: returns the checksum after one 16-bit field went from `old` to `new`.
#[inline]
pub fn updated(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 to the letter, two bytes at a time.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        }
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn the_rfc_1071_example_gives_its_sum() {
        // RFC 1071 2.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(of(&bytes), !0xddf2);
    }

    #[test]
    fn all_ones_of_a_full_frame_do_not_overflow() {
        let bytes = [0xff; 65536];
        assert_eq!(of(&bytes), naive(&bytes));
    }

    #[test]
    fn updating_a_field_equals_computing_again() {
        let mut bytes = [0x45, 0, 0, 40, 1, 2, 3, 4, 64, 6];
        let before = of(&bytes);
        bytes[2..4].copy_from_slice(&1500u16.to_be_bytes());
        assert_eq!(updated(before, 40, 1500), of(&bytes));
    }

    proptest! {
        #[test]
        fn the_fast_sum_is_the_naive_one(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(of(&bytes), naive(&bytes));
        }

        #[test]
        fn pieces_of_any_length_equal_the_whole(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            cuts in proptest::collection::vec(0usize..400, 0..6),
        ) {
            let mut cuts: std::vec::Vec<usize> =
                cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let mut sum = Sum::ZERO;
            let mut from = 0;
            for cut in cuts {
                sum.add_bytes(&bytes[from..cut]);
                from = cut;
            }
            prop_assert_eq!(sum.finish(), naive(&bytes));
        }
    }
}
