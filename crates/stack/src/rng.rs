//! Randomness from one seed: ChaCha12 as generator, SipHash as keyed hash. Both are unpredictable
//! to peers and reproducible in a simulation.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A cryptographic generator.
#[derive(Clone)]
pub struct Rng(ChaCha12Rng);

impl core::fmt::Debug for Rng {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Rng(secret)")
    }
}

impl Rng {
    pub fn new(seed: &[u8; 32]) -> Self {
        Self(ChaCha12Rng::from_seed(*seed))
    }

    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) << 32 | u64::from(self.next_u32())
    }

    /// Uniform below `bound` (Lemire's multiplication; the bias is below 2⁻³²). 0 for bound 0.
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.next_u32()) * u64::from(bound)) >> 32) as u32
    }

    pub fn sip_key(&mut self) -> SipKey {
        SipKey {
            k0: self.next_u64(),
            k1: self.next_u64(),
        }
    }
}

/// Key of SipHash. The number of rounds is chosen by the method.
#[derive(Clone, Copy)]
pub struct SipKey {
    pub k0: u64,
    pub k1: u64,
}

impl core::fmt::Debug for SipKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SipKey(secret)")
    }
}

impl SipKey {
    /// SipHash-1-3 of whole words, for hash tables.
    #[inline]
    pub fn hash_words<const N: usize>(&self, words: [u64; N]) -> u64 {
        self.sip::<1, 3, N>(words, None)
    }

    /// SipHash-2-4 of whole words, for secrets that leave the machine (sequence numbers, ports).
    #[inline]
    pub fn mac_words<const N: usize>(&self, words: [u64; N]) -> u64 {
        self.mac_message(words, 0, N * 8)
    }

    /// SipHash-2-4 of whole words and half a word more, which shares the last block with the
    /// length.
    #[inline]
    pub fn mac_words_and_half<const N: usize>(&self, words: [u64; N], half: u32) -> u64 {
        self.mac_message(words, half, N * 8 + 4)
    }

    #[inline]
    fn mac_message<const N: usize>(&self, words: [u64; N], rest: u32, len: usize) -> u64 {
        self.sip::<2, 4, N>(words, Some((len as u64) << 56 | u64::from(rest)))
    }

    #[inline]
    fn sip<const C: usize, const D: usize, const N: usize>(
        &self,
        words: [u64; N],
        last: Option<u64>,
    ) -> u64 {
        let mut v = [
            self.k0 ^ 0x736f_6d65_7073_6575,
            self.k1 ^ 0x646f_7261_6e64_6f6d,
            self.k0 ^ 0x6c79_6765_6e65_7261,
            self.k1 ^ 0x7465_6462_7974_6573,
        ];
        for word in words {
            absorb::<C>(&mut v, word);
        }
        if let Some(word) = last {
            absorb::<C>(&mut v, word);
        }
        v[2] ^= 0xff;
        for _ in 0..D {
            sip_round(&mut v);
        }
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

#[inline(always)]
fn absorb<const C: usize>(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    for _ in 0..C {
        sip_round(v);
    }
    v[0] ^= word;
}

#[inline(always)]
fn sip_round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siphash_2_4_matches_the_reference_vector() {
        // Aumasson & Bernstein's vectors: key 00..0f, message 00 01 02 … of 8 bytes.
        let key = SipKey {
            k0: 0x0706_0504_0302_0100,
            k1: 0x0f0e_0d0c_0b0a_0908,
        };
        assert_eq!(
            key.mac_words([0x0706_0504_0302_0100]),
            0x93f5_f579_9a93_2462
        );
        assert_eq!(key.mac_words([]), 0x726f_db47_dd0e_0e31);
        // The vectors for 4 and for 12 bytes.
        assert_eq!(
            key.mac_words_and_half([], 0x0302_0100),
            0xcf27_94e0_2771_87b7
        );
        assert_eq!(
            key.mac_words_and_half([0x0706_0504_0302_0100], 0x0b0a_0908),
            0x751e_8fbc_860e_e5fb
        );
    }

    #[test]
    fn chacha12_matches_the_test_vector_of_the_zero_key() {
        // draft-strombergson-chacha-test-vectors-01, TC1, 256-bit key, 12 rounds.
        let mut rng = Rng::new(&[0; 32]);
        let first = rng.next_u32().to_le_bytes();
        let second = rng.next_u32().to_le_bytes();
        assert_eq!(first, [0x9b, 0xf4, 0x9a, 0x6a]);
        assert_eq!(second, [0x07, 0x55, 0xf9, 0x53]);
    }

    #[test]
    fn random_numbers_stay_below_their_bound() {
        let mut rng = Rng::new(&[7; 32]);
        for bound in [1, 2, 3, 1000, u32::MAX] {
            for _ in 0..100 {
                assert!(rng.below(bound) < bound);
            }
        }
        assert_eq!(rng.below(0), 0);
    }
}
