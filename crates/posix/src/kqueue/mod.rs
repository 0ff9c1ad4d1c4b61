//! kqueue: FreeBSD's way of waiting, for descriptors of the stack and of the kernel in one queue.
//!
//! A kqueue is an epoll set whose items are edge-triggered, with notes on top (`queue.rs`): the set
//! says which descriptor to look at, the notes which events the program gets. Timers, user events,
//! signals and processes, which have no descriptor, are kept beside them. `change.rs` is
//! kqueue_register(), `scan.rs` kqueue_scan(); the process around a kqueue is its [`Host`].

mod at;
mod change;
mod errno;
mod event;
mod files;
mod kqueues;
mod members;
mod note;
mod others;
mod processes;
mod queue;
mod regular;
mod scan;
mod timers;
mod vnode;
mod watched;

pub(crate) use at::{Host, KqueueRef};
pub use event::*;
pub(crate) use kqueues::Kqueues;
pub(crate) use queue::Queue;
