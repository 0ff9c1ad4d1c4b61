//! kqueue and kevent.

pub mod abi;
