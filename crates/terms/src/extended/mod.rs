//! Extended BPF (linux/bpf.h): programs of the kind SK_REUSEPORT, which choose the socket of a
//! SO_REUSEPORT group. The kernel's verifier has accepted a program before it comes here; nothing
//! relies on that.
//!
//! An engine runs them because the kernel runs none on request (BPF_PROG_TEST_RUN of the kind
//! returns ENOTSUPP), and because the kernel's copy of the instructions has offsets of its own
//! structures in place of those of `struct sk_reuseport_md`. Maps stay the kernel's.

mod instruction;
mod machine;
mod memory;

use alloc::boxed::Box;
use alloc::vec::Vec;

use instruction::Instruction;
pub use instruction::MapReference;
pub use memory::Seen;

/// Stands before the instructions of an extended program where one of classic BPF may stand as
/// well: no instruction of either kind.
const MARK: [u8; instruction::LEN] = [0xff; instruction::LEN];

/// Kinds of maps (`enum bpf_map_type`): hashes and arrays of numbers, and those of sockets.
const MAPS_OF_NUMBERS: [u32; 3] = [1, 2, 9];
const MAPS_OF_SOCKETS: [u32; 3] = [15, 18, 20];
/// Maps of one program, each of which the keeper looks for among a client's descriptors.
const MAPS_MAX: usize = 16;
/// Longest value of a map of numbers.
const VALUE_MAX: u32 = 4096;

/// Returns whether a program may refer to a map of this kind. The kernel tells which socket a map
/// has only where values have 8 bytes.
pub fn is_supported_map(kind: u32, value_len: u32) -> bool {
    match MAPS_OF_SOCKETS.contains(&kind) {
        true => value_len == 8,
        false => MAPS_OF_NUMBERS.contains(&kind) && value_len <= VALUE_MAX,
    }
}

/// A program whose references to maps are their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extended {
    code: Box<[Instruction]>,
}

/// Decision of a program about a datagram; the socket is in [`Surroundings::select`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Delivery to the selected socket, or to any if none is.
    Pass,
    Drop,
}

/// Maps and other things that a program asks for.
pub trait Surroundings {
    /// Bytes of a key of a map; `None`: there is no such map.
    fn key_len(&self, map: u32) -> Option<usize>;

    /// The value of an element of a map that is not of sockets.
    fn look_up(&mut self, map: u32, key: &[u8]) -> Option<Vec<u8>>;

    /// Selects the socket that a map has under a key. Returns 0, or the kernel's negative error.
    fn select(&mut self, map: u32, key: &[u8]) -> i64;

    fn random(&mut self) -> u32;

    fn now_ns(&self) -> u64;

    fn processor(&self) -> u32;
}

impl Extended {
    /// Reads a program of [`Extended::bytes`]. `None`: it is none, or uses something that is not
    /// supported.
    pub fn parse(bytes: &[u8]) -> Option<Extended> {
        let (words, []) = bytes.strip_prefix(&MARK)?.as_chunks() else {
            return None;
        };
        let code: Box<[Instruction]> = words.iter().map(|it| Instruction::of(*it)).collect();
        let program = Extended { code };
        let is_supported = instruction::are_supported(&program.code);
        (is_supported && program.maps().len() <= MAPS_MAX).then_some(program)
    }

    /// Returns whether the bytes of a program are those of an extended one.
    pub fn is_marked(bytes: &[u8]) -> bool {
        bytes.starts_with(&MARK)
    }

    /// Returns the bytes of a program with these instructions of `struct bpf_insn`; `id_of` returns
    /// the id of a map.
    pub fn bytes(
        instructions: &[u8],
        mut id_of: impl FnMut(MapReference) -> Option<u32>,
    ) -> Vec<u8> {
        let (words, _) = instructions.as_chunks();
        let mut bytes = MARK.to_vec();
        let mut is_second = false;
        for word in words {
            let mut one = Instruction::of(*word);
            is_second = one.is_wide() && !is_second;
            if is_second {
                one.resolve(&mut id_of);
            }
            bytes.extend(one.bytes());
        }
        bytes
    }

    /// The ids of the maps that the program refers to, each once.
    pub fn maps(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.code.iter().filter_map(Instruction::map).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Runs the program. `None`: it has done something that the verifier would not have accepted,
    /// or has run for too long.
    pub fn run(&self, seen: &Seen<'_>, around: &mut dyn Surroundings) -> Option<Verdict> {
        machine::run(&self.code, seen, around).map(|result| match result as u32 {
            1 => Verdict::Pass,
            _ => Verdict::Drop,
        })
    }
}

#[cfg(test)]
mod tests;
