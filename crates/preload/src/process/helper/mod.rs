//! Helpers: children that go on with what a process has left to them.

mod raw;

pub use raw::{become_helper, fork_away};
