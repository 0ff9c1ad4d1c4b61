//! The interposed symbols, made from the table in `table.rs`; `next` has the links to libc behind
//! them.

mod abi;

#[cfg(test)]
pub use abi::exported;
