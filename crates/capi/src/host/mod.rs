//! What F-Stack's host interface offers beside sockets: clocks, memory, threads, the environment.

pub mod abi;
