//! The system calls behind `poll`, `select` and `epoll_wait`, which differ from libc's functions:
//! signal sets have a length, and times are changed to what is left of them.

pub mod abi;
