//! kevent's arguments.

mod abi;

pub use abi::{Places, with_changes};
