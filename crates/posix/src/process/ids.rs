//! Numbers that a process gives: those of its sockets and sets, and their inodes.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::process::table::Entry;
use crate::socket::description::Description;

#[derive(Debug)]
pub(crate) struct Ids {
    next: AtomicU64,
    pid: AtomicU32,
    /// Number before the first token: programs that have been this process before have given
    /// others.
    tokens_from: u64,
}

impl Ids {
    pub(crate) fn new() -> Ids {
        Ids {
            next: AtomicU64::new(1),
            pid: AtomicU32::new(std::process::id()),
            tokens_from: RandomState::new().build_hasher().finish(),
        }
    }

    pub(crate) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The inode of a socket of this process.
    pub(crate) fn inode_of(&self, socket: &Description) -> u64 {
        socket.inode(self.pid.load(Ordering::Relaxed))
    }

    /// Whether no other process shares this memory and makes the call.
    pub(crate) fn are_of_this_process(&self) -> bool {
        self.pid.load(Ordering::Relaxed) == std::process::id()
    }

    /// A place in the order of files; a file of the kernel's comes first.
    pub(crate) fn rank(&self, entry: Option<Entry>) -> Option<(u8, u64)> {
        match entry? {
            Entry::Socket(socket) => Some((0, self.inode_of(&socket))),
            entry => Some(entry.order()),
        }
    }

    /// Notes, in a forked child, that this is another process; returns the parent's number.
    pub(crate) fn on_fork(&self) -> u32 {
        self.pid.swap(std::process::id(), Ordering::Relaxed)
    }

    /// Returns a token that no other pair of this process has.
    pub(crate) fn next_token(&self) -> u64 {
        let number = self.tokens_from.wrapping_add(self.next());
        u64::from(std::process::id()) << 32 | (number & u64::from(u32::MAX))
    }
}
