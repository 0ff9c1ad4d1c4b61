//! Identifiers of sockets in a channel.

/// Number of generations that an index goes through before they repeat.
pub(crate) const GENERATION_MASK: u32 = (1 << 28) - 1;

/// A socket cell of one channel: an index and the generation of its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SockId {
    pub index: u32,
    pub generation: u32,
}

pub(crate) fn next_generation(generation: u32) -> u32 {
    match generation.wrapping_add(1) & GENERATION_MASK {
        0 => 1,
        next => next,
    }
}
