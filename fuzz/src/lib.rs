//! Common parts of several targets: a stack with one neighbour, its environment, and frames from
//! that neighbour.

mod frames;
mod world;

pub use frames::{OWN, OWN_MAC, OWN6, PEER, PEER_MAC, framed, framed6};
pub use world::{Sent, World, stack};

/// Splits the first `len` bytes off, or all there are.
pub fn take<'a>(rest: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (head, tail) = rest.split_at(len.min(rest.len()));
    *rest = tail;
    head
}

/// The first bytes as a little-endian number; missing ones are zero.
pub fn number(rest: &mut &[u8], len: usize) -> u64 {
    let mut bytes = [0; 8];
    let head = take(rest, len);
    bytes[..head.len()].copy_from_slice(head);
    u64::from_le_bytes(bytes)
}
