//! Position of the peer's urgent byte (RFC 6093): one word of the cell, written by the engine. The
//! program keeps its own record of which marks it has read past.

/// The mark's stream offset, and the byte once it has come. Zero: there has been no mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UrgentWord(pub(crate) u64);

const HERE: u64 = 1 << 8;
const MARK_SHIFT: u32 = 9;

impl UrgentWord {
    pub(crate) fn new(mark: u64, byte: Option<u8>) -> UrgentWord {
        let byte = byte.map_or(0, |byte| HERE | u64::from(byte));
        UrgentWord((mark + 1) << MARK_SHIFT | byte)
    }

    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Identifies the word, for comparisons.
    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The stream offset of the urgent byte.
    pub fn mark(self) -> Option<u64> {
        (self.0 >> MARK_SHIFT).checked_sub(1)
    }

    pub(crate) fn byte(self) -> Option<u8> {
        (self.0 & HERE != 0).then_some(self.0 as u8)
    }
}

/// The urgent data of a connection that goes to another ring: offsets from its first unread byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UrgentAhead {
    /// The mark, and the byte there once it has arrived.
    pub mark: Option<(u64, Option<u8>)>,
    /// The first unread byte is a former urgent one that is not read any more.
    pub skips_first: bool,
}

/// The result that MSG_OOB would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgent {
    /// No mark exists, it has been read past, or the byte has been taken.
    Nothing,
    /// The mark is known, the byte is on its way.
    Awaited,
    Here(u8),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_mark_and_byte_round_trip_through_one_word() {
        assert!(UrgentWord::default().is_none());
        for mark in [0, 1, 1 << 40] {
            let awaited = UrgentWord::new(mark, None);
            assert_eq!((awaited.mark(), awaited.byte()), (Some(mark), None));
            let here = UrgentWord::new(mark, Some(0xff));
            assert_eq!((here.mark(), here.byte()), (Some(mark), Some(0xff)));
            assert_ne!(awaited, here);
        }
    }
}
