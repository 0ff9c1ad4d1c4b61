//! Making, naming and setting sockets.

pub mod abi;
