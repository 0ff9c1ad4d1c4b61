//! kqueue and kevent: `change.rs` is kqueue_register(), `wait.rs` kqueue_scan().

mod change;
mod members;
mod others;
mod timers;
mod vnode;
mod wait;
