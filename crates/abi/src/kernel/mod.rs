//! System calls that implement [`slipstack_posix::Kernel`], made without libc.

mod abi;

pub use abi::{close_range, getsockopt, ppoll, setsockopt};
