//! The standard streams of a program that puts a connection under 0, 1 or 2.
//!
//! libc's own `stdin`, `stdout` and `stderr` read and write with calls that nobody can stand in
//! for. But what programs call so, and what `printf` and `puts` use, are variables: they are
//! pointed at streams of our kind, which stay when the number becomes the kernel's again.

pub mod abi;
