//! The subject of a wait: a socket, an epoll set or a list of descriptors.

use std::sync::Arc;

use crate::epoll::{Set, Target};
use crate::ready::{Awaited, Kept};
use crate::socket::description::Description;

/// The subject of a wait.
#[derive(Clone, Copy)]
pub(crate) enum Subject<'a> {
    Socket(&'a Arc<Description>),
    Set(&'a Arc<Set>),
    Many(&'a [Target]),
    /// Whatever comes by the wire.
    Wire,
}

impl Subject<'_> {
    /// Returns false if the stack has nothing for a thread that waits for this: all descriptors are
    /// the kernel's.
    pub(super) fn is_of_stack(self) -> bool {
        match self {
            Subject::Set(set) => set.is_of_stack(),
            Subject::Many(targets) => !targets.is_empty(),
            Subject::Socket(_) | Subject::Wire => true,
        }
    }

    pub(super) fn kept(self) -> Kept {
        match self {
            Subject::Socket(socket) => Kept::One(Arc::<Description>::clone(socket)),
            Subject::Set(set) => Kept::One(Arc::<Set>::clone(set)),
            Subject::Many(targets) => Kept::Many(targets.iter().map(Target::awaited).collect()),
            Subject::Wire => Kept::Wire,
        }
    }
}
