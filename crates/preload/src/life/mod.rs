//! Forks that libc tells nobody of, and `_exit`.

pub mod abi;
