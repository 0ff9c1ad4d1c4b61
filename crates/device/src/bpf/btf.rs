//! The type information (BTF) of a program with a function of its own that calls another program:
//! the kernel wants to know that both return a number.
//!
//! Format: Documentation/bpf/btf.rst.

use std::io;
use std::os::fd::OwnedFd;

use super::sys;

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
const HEADER_LEN: u32 = 24;

const KIND_INT: u32 = 1;
const KIND_POINTER: u32 = 2;
const KIND_FUNCTION: u32 = 12;
const KIND_PROTOTYPE: u32 = 13;
const SIGNED: u32 = 1;

/// Offsets of the names behind one another; the first is empty.
const STRINGS: &[u8] = b"\0int\0context\0steer\0ask\0";
const INT_NAME: u32 = 1;
const CONTEXT_NAME: u32 = 5;
const STEER_NAME: u32 = 13;
const ASK_NAME: u32 = 19;

const INT: u32 = 1;
const POINTER: u32 = 2;
const PROTOTYPE: u32 = 3;
/// The numbers of the types of both functions.
const STEER: u32 = 4;
const ASK: u32 = 5;

/// Type information, and which function begins where.
#[derive(Debug)]
pub(crate) struct Functions {
    pub(crate) types: OwnedFd,
    /// `struct bpf_func_info` each: the first instruction and the type.
    pub(crate) places: [[u32; 2]; 2],
}

impl Functions {
    /// Loads the types of a program whose second function begins at this instruction.
    pub(crate) fn load(second_at: usize) -> io::Result<Functions> {
        Ok(Functions {
            types: sys::load_types(&types())?,
            places: [[0, STEER], [second_at as u32, ASK]],
        })
    }
}

/// `int steer(void *context)` and `int ask(void *context)`.
fn types() -> Vec<u8> {
    let kind = |kind: u32, count: u32| kind << 24 | count;
    let words = [
        [INT_NAME, kind(KIND_INT, 0), 4, SIGNED << 24 | 32].as_slice(),
        &[0, kind(KIND_POINTER, 0), 0],
        &[0, kind(KIND_PROTOTYPE, 1), INT, CONTEXT_NAME, POINTER],
        &[STEER_NAME, kind(KIND_FUNCTION, 0), PROTOTYPE],
        &[ASK_NAME, kind(KIND_FUNCTION, 0), PROTOTYPE],
    ]
    .concat();
    let len = 4 * words.len() as u32;
    let mut bytes = MAGIC.to_ne_bytes().to_vec();
    bytes.extend([VERSION, 0]);
    for word in [HEADER_LEN, 0, len, len, STRINGS.len() as u32] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    bytes.extend(STRINGS);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn btf_types_refer_to_the_offsets_of_their_names() {
        for (at, name) in [
            (INT_NAME, "int"),
            (CONTEXT_NAME, "context"),
            (STEER_NAME, "steer"),
            (ASK_NAME, "ask"),
        ] {
            let rest = &STRINGS[at as usize..];
            let end = rest.iter().position(|&byte| byte == 0).unwrap();
            assert_eq!(&rest[..end], name.as_bytes());
        }
    }
}
