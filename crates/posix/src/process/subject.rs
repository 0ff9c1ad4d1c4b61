//! The subject of a wait: a socket, an epoll set or a list of descriptors.

use std::sync::Arc;

use crate::epoll::{Set, Target};
use crate::ready::Kept;
use crate::socket::description::Description;

/// The subject of a wait.
#[derive(Clone, Copy)]
pub(crate) enum Subject<'a> {
    Socket(&'a Arc<Description>),
    Set(&'a Arc<Set>),
    Many(&'a [Target]),
}

impl Subject<'_> {
    pub(super) fn kept(self) -> Kept {
        match self {
            Subject::Socket(socket) => Kept::One(Arc::<Description>::clone(socket)),
            Subject::Set(set) => Kept::One(Arc::<Set>::clone(set)),
            Subject::Many(targets) => Kept::Many(targets.iter().map(Target::awaited).collect()),
        }
    }
}
