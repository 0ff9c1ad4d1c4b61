//! Closing descriptors, but those that we need ourselves.

pub mod abi;
