//! Errors that the stack returns to its callers. They are not errno, which belongs to the POSIX
//! layer.

pub use slipstack_terms::{Reason, SocketError};
