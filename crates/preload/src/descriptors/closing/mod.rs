//! Closing ranges of descriptors, except those that the library itself needs.

pub mod abi;
