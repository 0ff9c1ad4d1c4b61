//! System calls that a [`slipstack_posix::Kernel`] is made of, past libc.

mod abi;

pub use abi::{close_range, getsockopt, ppoll, setsockopt};
