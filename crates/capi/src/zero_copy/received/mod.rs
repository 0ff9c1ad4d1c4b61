//! Received bytes that a program keeps where they lie: known by an address as buffers to be sent
//! are, and given back in any order.

pub mod abi;
