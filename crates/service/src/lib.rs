//! Servers inside the engine: an interface for programs that run to completion when a frame
//! arrives.
//!
//! A [`Service`] gets connections and datagrams as calls within the turn in which they arrive. It
//! reads received bytes in the receive ring and writes into the send ring, and those bytes leave in
//! the same turn. It makes no system call, needs no descriptor and no wake-up. A [`Host`] connects
//! a service with its engine: it is the channel's [`Owner`](slipstack_channel::Owner), and knows
//! neither POSIX nor the engine's inside, so that the same service runs on a network interface and
//! in a simulated world in virtual time.
//!
//! Work that blocks or computes for long belongs into a [`Pool`] of workers ([`Context::submit`]);
//! the result is delivered to [`Service::on_result`].
//!
//! Datagrams are answered by the engine in the turn in which they arrive, by workers in bursts, or
//! by both, depending on [`Shape`] ([`Hosting::dispatch`]).
//!
//! On several cores each engine has a value of the service of its own; the service decides what
//! these share (`Arc`).
//!
//! # Panics of handlers
//! A handler that panics loses its connection, which is reset; the panic is counted
//! ([`Counts::panics`]) and the engine goes on. A process that is to end on all other panics calls
//! [`is_in_handler`] in its panic hook.

mod connections;
mod context;
mod control;
mod counts;
mod datagrams;
mod dispatch;
mod host;
mod kernel;
mod limits;
mod outcome;
mod panics;
mod raw;
mod received;
mod requests;
mod service;
mod timers;
mod workers;

pub use connections::{ConnectionId, DatagramSocketId, ListenerId};
pub use context::{Context, Full};
pub use control::Control;
pub use counts::{Counts, Tally};
pub use dispatch::{
    Answerer, Dispatch, Kept, LARGE_BURST, RING_DATAGRAMS, Shape, WorkerCounts, Workers,
};
pub use host::{Host, Hosting};
pub use kernel::{doorbell, run_on_kernel};
pub use limits::Limits;
pub use outcome::{Closed, Refused, Via};
pub use panics::{guarded, is_in_handler};
pub use received::{Datagram, Received};
pub use service::Service;
pub use slipstack_channel::{Reason, SocketError};
pub use slipstack_mem::Doorbell;
pub use workers::{Busy, Pool};
