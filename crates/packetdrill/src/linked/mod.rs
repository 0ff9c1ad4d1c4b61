//! libc's `getsockopt` under its own name, for the `%{ }%` blocks of scripts.
//!
//! packetdrill reads the values in these blocks (TCP_INFO, TCP_CC_INFO, SO_MEMINFO) by libc's
//! function and not through the interface. The call arrives here if this library is also preloaded.

mod abi;

pub use abi::{begin, end};
