//! The common base of libraries with a C interface: C's arguments as Rust's ([`abi`]), raw system
//! calls and `errno` ([`raw`]), and the kernel's part of a wait ([`kernel`]).

pub mod abi;
pub mod kernel;
pub mod raw;
