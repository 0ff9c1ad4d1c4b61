//! Helpers: child processes that serve the connections a process has left to them.

mod raw;

pub use raw::{become_helper, fork_away};
