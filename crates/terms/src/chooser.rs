//! BPF programs that choose a socket of a group (SO_ATTACH_REUSEPORT_CBPF and
//! SO_ATTACH_REUSEPORT_EBPF), on their way to an engine.

use crate::words::{WORDS, Words};

/// Instructions of the longest program that chooses a socket.
pub const CHOOSER_MAX: usize = 512;

/// Bytes of an instruction.
const INSTRUCTION: usize = 8;
/// Instructions in one part.
const PER_PART: usize = WORDS - 1;
const LEN_SHIFT: u32 = 16;
const SET_SHIFT: u32 = 32;

/// Some instructions of a program: they go to the engine one part after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChooserPart {
    /// Number of the first instruction in it.
    pub at: u16,
    /// Instructions of the whole program; 0: there is none any more.
    pub len: u16,
    /// Time at which the program was set, in milliseconds of the monotonic clock. The later of two
    /// programs of one group is used.
    pub set_ms: u32,
    code: [u64; PER_PART],
}

impl ChooserPart {
    /// Returns the parts of a program in order, at least one.
    pub fn all(code: &[u8], set_ms: u32) -> impl Iterator<Item = ChooserPart> + '_ {
        let len = (code.len() / INSTRUCTION).min(CHOOSER_MAX);
        (0..len.max(1)).step_by(PER_PART).map(move |at| {
            let mut part = ChooserPart {
                at: at as u16,
                len: len as u16,
                set_ms,
                code: [0; PER_PART],
            };
            let (instructions, _) = code.as_chunks::<INSTRUCTION>();
            let ours = instructions.iter().take(len).skip(at);
            for (into, one) in part.code.iter_mut().zip(ours) {
                *into = u64::from_ne_bytes(*one);
            }
            part
        })
    }

    /// Returns the bytes of this part's instructions.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        let count = usize::from(self.len - self.at).min(PER_PART);
        self.code[..count].iter().flat_map(|one| one.to_ne_bytes())
    }

    /// Whether no other part follows.
    pub fn is_last(&self) -> bool {
        usize::from(self.at) + PER_PART >= usize::from(self.len)
    }
}

impl Words for ChooserPart {
    fn to_words(self) -> [u64; WORDS] {
        let head = u64::from(self.at)
            | u64::from(self.len) << LEN_SHIFT
            | u64::from(self.set_ms) << SET_SHIFT;
        let [a, b, c, d] = self.code;
        [head, a, b, c, d]
    }

    fn from_words([head, code @ ..]: [u64; WORDS]) -> Option<Self> {
        let part = ChooserPart {
            at: head as u16,
            len: (head >> LEN_SHIFT) as u16,
            set_ms: (head >> SET_SHIFT) as u32,
            code,
        };
        let is_within = part.at < part.len || (part.at, part.len) == (0, 0);
        (is_within && usize::from(part.len) <= CHOOSER_MAX).then_some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_program_is_assembled_from_its_parts() {
        for count in [0, 1, 4, 5, CHOOSER_MAX] {
            let code: Vec<u8> = (0..count * INSTRUCTION).map(|n| n as u8).collect();
            let parts: Vec<_> = ChooserPart::all(&code, 7).collect();
            assert_eq!(parts.len(), count.max(1).div_ceil(PER_PART));
            let read = parts
                .iter()
                .map(|part| ChooserPart::from_words(part.to_words()).unwrap());
            let whole: Vec<u8> = read
                .flat_map(|part| part.bytes().collect::<Vec<_>>())
                .collect();
            assert_eq!(whole, code);
            let last: Vec<bool> = parts.iter().map(ChooserPart::is_last).collect();
            assert_eq!(
                last.iter().position(|is_last| *is_last),
                Some(parts.len() - 1)
            );
        }
    }

    #[test]
    fn parts_of_invalid_programs_are_refused() {
        for head in [4, 4 | 4 << LEN_SHIFT, (CHOOSER_MAX as u64 + 1) << LEN_SHIFT] {
            assert_eq!(ChooserPart::from_words([head, 0, 0, 0, 0]), None);
        }
    }
}
