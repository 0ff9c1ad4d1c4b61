//! kqueue: FreeBSD's way of waiting, for descriptors of the stack and of the kernel in one queue.
//!
//! A kqueue is an epoll set whose items are edge-triggered, with notes on top (`queue.rs`): the set
//! says which descriptor to look at, the notes which events the program gets (`calls/kqueue`).
//! Timers, user events, signals and processes, which have no descriptor, are kept beside them.

mod errno;
mod event;
pub(crate) mod files;
pub(crate) mod note;
pub(crate) mod queue;

pub use event::*;
pub(crate) use queue::Queue;
