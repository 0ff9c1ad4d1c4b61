//! Headers of a SYN that are kept for the program (TCP_SAVE_SYN).

/// Longest headers that are kept: both with all of their options, over IPv6 with some extensions.
const LEN_MAX: usize = 160;
const WORD: usize = size_of::<u64>();

/// The network and the transport header of the SYN that opened a connection, as they arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedSyn {
    len: u8,
    bytes: [u8; LEN_MAX],
}

impl SavedSyn {
    /// Number of words of the plain form.
    pub const WORDS: usize = 1 + LEN_MAX / WORD;

    /// Returns `None` if the headers are too long.
    #[must_use]
    pub fn of(network: &[u8], transport: &[u8]) -> Option<SavedSyn> {
        let mut bytes = [0; LEN_MAX];
        let (first, rest) = bytes.split_at_mut_checked(network.len())?;
        first.copy_from_slice(network);
        rest.get_mut(..transport.len())?.copy_from_slice(transport);
        let len = u8::try_from(network.len() + transport.len()).ok()?;
        Some(SavedSyn { len, bytes })
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    #[must_use]
    pub fn to_words(self) -> [u64; Self::WORDS] {
        let mut words = [0; Self::WORDS];
        words[0] = self.len.into();
        for (word, bytes) in words[1..].iter_mut().zip(self.bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        words
    }

    /// Returns `None` for words that no engine writes; missing ones are zero.
    #[must_use]
    pub fn from_words(words: impl IntoIterator<Item = u64>) -> Option<SavedSyn> {
        let mut words = words.into_iter();
        let len = words.next().and_then(|len| u8::try_from(len).ok())?;
        let mut bytes = [0; LEN_MAX];
        for (place, word) in bytes.chunks_exact_mut(WORD).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        (usize::from(len) <= LEN_MAX).then_some(SavedSyn { len, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_from_their_words_unless_they_are_too_long() {
        let all: [u8; 200] = core::array::from_fn(|at| at as u8);
        let saved = SavedSyn::of(&all[..60], &all[60..121]).unwrap();
        assert_eq!(saved.bytes(), &all[..121]);
        assert_eq!(SavedSyn::from_words(saved.to_words()), Some(saved));
        assert_eq!(SavedSyn::of(&all[..100], &all[..61]), None);
        assert_eq!(SavedSyn::of(&all[..161], &[]), None);
        assert_eq!(SavedSyn::from_words([161]), None);
        assert_eq!(SavedSyn::from_words([]), None);
    }
}
