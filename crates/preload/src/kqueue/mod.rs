//! `kqueue` and `kevent` for programs that look for them: libc has neither.

pub mod abi;
mod adapter;
