//! System calls that implement [`slipstack_posix::Kernel`], made without libc.

mod abi;
mod timeouts;

pub use abi::{close_range, getsockopt, ppoll, ppoll_until_stopped, setsockopt};
