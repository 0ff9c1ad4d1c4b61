//! close, dup, fcntl, ioctl.

pub mod abi;
