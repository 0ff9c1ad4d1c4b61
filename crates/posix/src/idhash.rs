//! A hash for identifiers of our own, which no outsider can choose.

use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type BuildIdHasher = BuildHasherDefault<IdHasher>;

#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_i32(&mut self, id: i32) {
        self.write_u64(u64::from(id.cast_unsigned()));
    }

    fn write_u64(&mut self, id: u64) {
        // Multiplication by the golden ratio: spreads into the high bits that the map uses.
        self.0 = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
