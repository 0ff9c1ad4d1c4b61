//! Reading and writing bytes.

pub mod abi;
