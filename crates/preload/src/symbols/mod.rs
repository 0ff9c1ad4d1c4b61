//! The interposed symbols: one table, `table.rs`, from which the exported functions and
//! the links to libc behind them are made.

mod abi;

pub use abi::{exported, next, resolve_all};
