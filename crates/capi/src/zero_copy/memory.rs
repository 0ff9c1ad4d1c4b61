//! Memory for buffers.

use slipstack_posix::CARVED_MAX;

use super::chain::Memory;
use super::with_chains;
use crate::life;

/// Shorter buffers are the library's own: the bytes of a frame as short are copied anyway.
const CARVED_MIN: usize = 4096;

/// A buffer for `len` bytes: its address.
pub fn make(len: usize) -> Option<usize> {
    let memory = (len >= CARVED_MIN).then(|| carve(len)).flatten();
    with_chains(|chains| chains.make(len, memory)).flatten()
}

/// Memory of the stack's; `None` if there is not as much.
fn carve(len: usize) -> Option<Memory> {
    let process = life::process()?;
    let mut pieces = Vec::new();
    let mut left = len;
    while left > 0 {
        let part = left.min(CARVED_MAX);
        pieces.push((process.carve(part).ok()?, part));
        left -= part;
    }
    Some(Memory::Carved(pieces))
}
