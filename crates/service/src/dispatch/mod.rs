//! The packet dispatcher: distributes datagrams between the engine that received them and workers.
//!
//! A dispatcher belongs to one engine and shares the workers with the other engines' dispatchers.
//! Between each engine and each worker are two rings, one for datagrams and one for answers, each
//! with one producer and one consumer: no lock and no allocation per datagram. The engine wakes a
//! worker once for all datagrams of a turn; a worker wakes the engine once for a burst of answers.

mod dispatcher;
mod worker;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

pub(crate) use dispatcher::Dispatcher;
pub use worker::{Answerer, LARGE_BURST, WorkerCounts, Workers};

use crate::connections::DatagramSocketId;

/// Default for the number of datagrams that wait in each ring.
pub const RING_DATAGRAMS: usize = 2048;

/// The threads that answer datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// The engine: [`crate::Service::on_datagram`] is called straight from receive.
    #[default]
    Run,
    /// Workers: the engine receives and sends.
    Pipeline,
    /// The engine a part, workers the rest.
    Mixed(Kept),
}

/// The part that the engine answers itself under [`Shape::Mixed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The engine answers datagrams that [`crate::Service::on_datagram`] does not [pass
    /// on](crate::Context::pass).
    Quick,
    /// The engine answers this share of datagrams, in percent.
    Percent(u8),
}

/// A datagram without its payload.
#[derive(Clone, Copy, Debug)]
struct Head {
    socket: DatagramSocketId,
    /// The other end: source of a question and destination of its answer.
    peer: SocketAddr,
    /// The stack's end.
    local: SocketAddr,
}

/// Workers, and the datagrams they get.
#[derive(Clone)]
pub struct Dispatch {
    pub workers: Arc<Workers>,
    pub shape: Shape,
}

impl fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatch")
            .field("workers", &self.workers.len())
            .field("shape", &self.shape)
            .finish()
    }
}
