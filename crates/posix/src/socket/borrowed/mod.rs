//! A connection that lives in another process, and the messages about it.

pub(crate) mod child_message;
mod connection;
pub(crate) mod control;
mod lent;
mod names;
pub(crate) mod outbox;
mod over_exec;
mod reads;
pub(crate) mod requests;
mod sent;
mod turns;

pub(crate) use child_message::ReadRequest;
pub(crate) use connection::Borrowed;
pub(crate) use lent::Lent;
pub(crate) use names::Names;
pub(crate) use over_exec::LeftState;
pub(crate) use reads::Reads;
pub(crate) use sent::Sent;

/// The name of a pair's end: process id, time and count, so that no two are the same.
pub(crate) type PairName = [u8; 4 + 8 + 8];
