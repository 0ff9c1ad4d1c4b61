//! Waiting: poll, select and epoll.

pub mod abi;
