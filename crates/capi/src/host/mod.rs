//! F-Stack's host interface beside sockets: clocks, memory, threads, the environment.

pub mod abi;
