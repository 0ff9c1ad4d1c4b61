//! A connection that lives in another process, and the messages about it.

mod connection;
pub(crate) mod control;
mod lent;
mod names;
pub(crate) mod requests;
mod turns;
pub(crate) mod words;

pub(crate) use connection::Borrowed;
pub(crate) use lent::Lent;
pub(crate) use names::Names;
pub(crate) use words::Wish;

/// The name of a pair's end: process id, time and count, so that no two are the same.
pub(crate) type PairName = [u8; 4 + 8 + 8];
