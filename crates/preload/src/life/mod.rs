//! Forks for which libc runs no handlers, and `_exit`.

pub mod abi;
