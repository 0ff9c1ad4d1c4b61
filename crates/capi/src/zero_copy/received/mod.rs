//! Received bytes that a program keeps in place: known by a reserved address, like buffers to be
//! sent, and given back in any order.

pub mod abi;
