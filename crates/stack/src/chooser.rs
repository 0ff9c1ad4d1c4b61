//! SO_REUSEPORT groups whose sockets a BPF program chooses from.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// One socket of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// [`slipstack_terms::SocketOptions::rank`], which identifies a socket in its group.
    pub rank: u64,
    /// A place outside of the stack that has the socket; of no meaning if this one has it.
    pub slot: u16,
}

/// The program of one group, and the group's sockets in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chooser {
    pub code: Box<[u8]>,
    pub members: Vec<Member>,
}
