//! SO_REUSEPORT groups whose sockets a BPF program chooses from.

use alloc::boxed::Box;
use alloc::vec::Vec;

use slipstack_terms::Extended;

/// One socket of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// [`slipstack_terms::SocketOptions::rank`], which identifies a socket in its group.
    pub rank: u64,
    /// [`slipstack_terms::SocketOptions::cookie`], by which maps name the socket.
    pub cookie: u64,
    /// A place outside of the stack that has the socket; of no meaning if this one has it.
    pub slot: u16,
}

/// A program of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChooserCode {
    /// Returns the number of a member.
    Classic(Box<[u8]>),
    /// Selects a socket by a map.
    Extended(Extended),
}

impl ChooserCode {
    /// Reads a program as it comes from a socket; `None` if it is not supported.
    pub fn of(bytes: &[u8]) -> Option<ChooserCode> {
        match Extended::is_marked(bytes) {
            true => Extended::parse(bytes).map(ChooserCode::Extended),
            false => Some(ChooserCode::Classic(bytes.into())),
        }
    }
}

/// The program of one group, and the group's sockets in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chooser {
    pub code: ChooserCode,
    pub members: Vec<Member>,
}
