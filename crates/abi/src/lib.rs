//! The common base of libraries with a C interface: C's arguments as Rust's ([`abi`]), raw system
//! calls and `errno` ([`raw`]), the kernel's part of a wait ([`kernel`]), and kevent's arrays
//! ([`kqueue`]).

pub mod abi;
pub mod kernel;
pub mod kqueue;
pub mod raw;
