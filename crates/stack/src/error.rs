//! Errors that callers of the stack get. Not errno: that is the POSIX layer's.

pub use slipstack_terms::{Reason, SocketError};
