//! Position of the peer's urgent byte (RFC 6093): one word of the cell, written by the engine. The
//! program keeps its own record of which marks it has read past.

use crate::cell::Cell;

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

/// Farthest that an urgent mark is ahead: more than all windows.
const MARK_MAX: u64 = 1 << 40;
const MARK_HAS_BYTE: u8 = 1;
const SKIPS_FIRST: u8 = 2;

impl UrgentAhead {
    /// Length of the encoded form.
    pub const LEN: usize = 10;

    /// Takes in a mark of a connection from which nothing is read, of which `received` bytes have
    /// come in order. A reader at the former mark does not read that byte any more.
    pub fn note(&mut self, at: u64, byte: Option<u8>, received: u64) {
        let former = self.mark.map(|(at, _)| at);
        self.skips_first |= former == Some(0) && at != 0 && received > 0;
        self.mark = Some((at, byte));
    }

    /// Looks at a cell of which the bytes before `read` have been read.
    pub(crate) fn of(cell: &Cell<'_>, read: u64) -> UrgentAhead {
        let word = cell.urgent();
        let mark = word.mark().and_then(|mark| mark.checked_sub(read));
        let mark = mark.filter(|at| *at < MARK_MAX);
        UrgentAhead {
            mark: mark.map(|at| (at, word.byte())),
            skips_first: cell.urgent_skipped() == read.wrapping_add(1),
        }
    }

    /// Encodes the position of the mark plus one, or 0, then flags and the byte.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let (at, byte) = match self.mark {
            Some((at, byte)) => (at + 1, byte),
            None => (0, None),
        };
        let flags = [
            (byte.is_some(), MARK_HAS_BYTE),
            (self.skips_first, SKIPS_FIRST),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set);
        let mut all = [0; Self::LEN];
        all[..8].copy_from_slice(&at.to_le_bytes());
        all[8] = flags.map(|(_, bit)| bit).sum();
        all[9] = byte.unwrap_or(0);
        all
    }

    /// Decodes the beginning of `bytes`; returns it with the rest, or `None` if it is invalid.
    pub fn split(bytes: &[u8]) -> Option<(UrgentAhead, &[u8])> {
        let (at, rest) = bytes.split_first_chunk()?;
        let ([flags, byte], rest) = rest.split_first_chunk()?;
        let at = u64::from_le_bytes(*at);
        let byte = (flags & MARK_HAS_BYTE != 0).then_some(*byte);
        let urgent = UrgentAhead {
            mark: at.checked_sub(1).map(|at| (at, byte)),
            skips_first: flags & SKIPS_FIRST != 0,
        };
        (at <= MARK_MAX).then_some((urgent, rest))
    }
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
    fn a_later_mark_skips_the_byte_at_an_earlier_one_that_is_next() {
        let mut urgent = UrgentAhead::default();
        urgent.note(0, None, 0);
        urgent.note(0, Some(b'!'), 0);
        assert_eq!(
            (urgent.mark, urgent.skips_first),
            (Some((0, Some(b'!'))), false)
        );
        urgent.note(5, None, 1);
        urgent.note(9, None, 7);
        assert_eq!((urgent.mark, urgent.skips_first), (Some((9, None)), true));
        let bytes = urgent.to_bytes();
        assert_eq!(UrgentAhead::split(&bytes), Some((urgent, &[][..])));
    }

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
