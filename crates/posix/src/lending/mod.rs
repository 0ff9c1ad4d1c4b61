//! Connections that another process uses while they live in the one that made them.
//!
//! A connection belongs to the engine of the process that made it, its *owner*. A child that is
//! forked or spawned gets a control socket to a thread of the owner, the [`steward`], and keeps it
//! over `exec`; its own children get one each. A connection that it never uses costs one counter,
//! which is given back when it closes the connection or ends. When it uses the connection for the
//! first time it makes a pair of AF_UNIX sockets, puts one end under the connection's numbers and
//! sends the other to the steward, which moves bytes between it and the connection from then on.
//!
//! The steward reads from the connection what the borrower asks for and no more: the rest is for
//! whoever asks next, the owner among them. A program without our library cannot ask. It gets the
//! end of a pair when it starts, and what comes is its own if it is its standard input, or as soon
//! as the owner has closed its own numbers.

mod borrow;
mod borrowed;
mod datagrams;
mod ended;
mod fork;
mod forking;
mod helper;
mod lender;
mod lent;
mod lingering;
mod nameplate;
mod names;
mod owner;
mod passing;
mod post;
mod pump;
mod rest;
mod starting;
mod state;
mod steward;
mod taking;
mod turns;
mod words;

pub(crate) use borrowed::Borrowed;
pub(crate) use fork::Inheritance;
pub use helper::Leaving;
pub(crate) use lent::Lent;
pub use passing::{Passing, is_passed};
pub use starting::Gift;
pub(crate) use starting::Ways;
pub(crate) use state::Lending;
pub(crate) use words::Wish;
