//! kqueue: FreeBSD's way of waiting, for descriptors of the stack and of the kernel in one queue.
//!
//! A kqueue is an epoll set whose items are edge-triggered, with notes on top (`queue.rs`): the set
//! says which descriptor to look at, the notes say what the program is told (`members.rs`). What
//! has no descriptor (timers, user events, signals, processes) stands beside them. `change.rs` is
//! kqueue_register(), `wait.rs` kqueue_scan().

mod change;
mod errno;
mod event;
mod files;
mod members;
mod note;
mod others;
mod queue;
mod timers;
mod vnode;
mod wait;

pub use event::*;
pub(crate) use queue::Queue;
