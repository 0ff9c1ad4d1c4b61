//! libc's `getsockopt` under its own name, for the `%{ }%` blocks of scripts.
//!
//! packetdrill asks for what they speak of (TCP_INFO, TCP_CC_INFO, SO_MEMINFO) not through the
//! interface, but by libc's function. It comes here if this library is also preloaded.

mod abi;

pub use abi::{begin, end};
