//! Lending: connections that another process uses while they stay in the process that made them.
//!
//! A connection belongs to the engine of the process that made it, its *owner*. A child that is
//! forked or spawned gets a control socket to a thread of the owner, the [`steward`], and keeps it
//! over `exec`; its own children get one each. A connection that it never uses costs one counter,
//! which is released when it closes the connection or ends. When it uses the connection for the
//! first time it makes a pair of AF_UNIX sockets, puts one end under the connection's numbers and
//! sends the other to the steward, which moves bytes between the pair and the connection from then
//! on.
//!
//! The steward reads from the connection what the borrower asks for and no more: the rest is for
//! the next reader, which may be the owner. A program without our library cannot ask. It gets the
//! end of a pair when it starts, and all received data goes to it if the connection is its standard
//! input, or as soon as the owner has closed its own numbers.

pub(crate) mod abstract_name;
pub(crate) mod callers;
pub(crate) mod child;
pub(crate) mod fork;
pub(crate) mod giving;
mod in_use;
pub(crate) mod lender;
pub(crate) mod post;
pub(crate) mod pump;
mod sources;
mod state;
pub(crate) mod steward;
mod steward_wait;
pub(crate) mod users_end;

pub(crate) use fork::Inheritance;
pub(crate) use state::{Lending, StewardSockets, control_name};
