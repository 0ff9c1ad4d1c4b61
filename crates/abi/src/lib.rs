//! What every library with a C interface needs: C's arguments as Rust's ([`abi`]), raw system
//! calls and `errno` ([`raw`]), and the kernel's part of a wait ([`kernel`]).

pub mod abi;
pub mod kernel;
pub mod raw;
