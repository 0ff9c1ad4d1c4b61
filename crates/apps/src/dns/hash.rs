//! A seeded hash of short keys that folds in eight bytes with each multiplication.

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A keyed hash of bytes; without the seed colliding keys cannot be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Hasher {
    seed: u64,
}

impl Hasher {
    pub fn new(seed: u64) -> Hasher {
        Hasher { seed }
    }

    #[inline]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        let mut hash = self.seed ^ bytes.len() as u64;
        let mut words = bytes.chunks_exact(8);
        for word in words.by_ref() {
            let word = word
                .first_chunk::<8>()
                .map_or(0, |word| u64::from_le_bytes(*word));
            hash = fold(hash ^ word);
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            hash = fold(hash ^ u64::from_le_bytes(word));
        }
        fold(hash ^ self.seed.rotate_left(32))
    }
}

#[inline]
fn fold(word: u64) -> u64 {
    let product = u128::from(word) * u128::from(MULTIPLIER);
    product as u64 ^ (product >> 64) as u64
}
