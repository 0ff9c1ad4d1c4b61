//! The device and the clock, as packetdrill uses them.

mod abi;

pub use abi::{gettimeofday, netdev_receive, netdev_send, usleep};
