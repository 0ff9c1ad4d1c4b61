//! System calls that implement [`slipstack_posix::Kernel`], made without libc.

mod abi;
mod timeouts;

pub use abi::{bpf_info, close_range, getsockopt, ppoll, ppoll_until_stopped, setsockopt};
