//! Making and naming sockets, and setting their options.

pub mod abi;
