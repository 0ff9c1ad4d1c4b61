//! FreeBSD's numbers of socket options and requests, and its sysctl names, for the functions that
//! take them.

pub mod abi;
pub mod options;
mod sysctl;
