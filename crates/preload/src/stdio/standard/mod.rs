//! The standard streams of a program that has a connection under 0, 1 or 2.
//!
//! libc's own `stdin`, `stdout` and `stderr` read and write with internal calls that cannot be
//! interposed. But these names are variables, which `printf` and `puts` use too: they are pointed
//! at streams of our kind, which stay when the number becomes the kernel's again.

pub mod abi;
