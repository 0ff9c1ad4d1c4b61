//! Keys that a program sets for the Fast Open cookies of its listener (TCP_FASTOPEN_KEY).

use crate::words::{WORDS, Words};

/// A key of SipHash in two words.
pub type CookieKey = [u64; 2];

/// The key of new cookies, and one whose cookies are accepted too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FastOpenKeys {
    pub primary: CookieKey,
    pub backup: Option<CookieKey>,
}

impl FastOpenKeys {
    /// Reads one or two keys of 16 bytes (linux/tcp.h, TCP_FASTOPEN_KEY_LENGTH).
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<FastOpenKeys> {
        let key = |at: usize| -> Option<CookieKey> {
            let word = |at: usize| {
                let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
                Some(u64::from_le_bytes(bytes))
            };
            Some([word(at)?, word(at + 8)?])
        };
        matches!(bytes.len(), 16 | 32).then_some(())?;
        Some(FastOpenKeys {
            primary: key(0)?,
            backup: key(16),
        })
    }
}

impl core::fmt::Debug for FastOpenKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("FastOpenKeys(secret)")
    }
}

impl Words for FastOpenKeys {
    fn to_words(self) -> [u64; WORDS] {
        let [a, b] = self.primary;
        let [c, d] = self.backup.unwrap_or_default();
        [a, b, c, d, self.backup.is_some().into()]
    }

    fn from_words([a, b, c, d, has_backup]: [u64; WORDS]) -> Option<Self> {
        Some(FastOpenKeys {
            primary: [a, b],
            backup: bool::from_words([has_backup, 0, 0, 0, 0])?.then_some([c, d]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_or_two_keys_round_trip() {
        let bytes: [u8; 32] = core::array::from_fn(|at| at as u8);
        let one = FastOpenKeys::from_bytes(&bytes[..16]).unwrap();
        let primary = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!((one.primary, one.backup), (primary, None));
        let two = FastOpenKeys::from_bytes(&bytes).unwrap();
        assert_eq!(two.backup.unwrap()[0], 0x1716_1514_1312_1110);
        for keys in [one, two] {
            assert_eq!(FastOpenKeys::from_words(keys.to_words()), Some(keys));
        }
        assert_eq!(FastOpenKeys::from_bytes(&bytes[..17]), None);
        assert_eq!(FastOpenKeys::from_words([0, 0, 0, 0, 2]), None);
    }
}
