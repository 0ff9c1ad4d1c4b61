//! Outcomes of connections, and refusals of the engine.

use slipstack_channel::{Reason, SocketError};

use crate::connections::{DatagramSocketId, ListenerId};

/// Origin of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    Listener(ListenerId),
    /// [`crate::Context::connect`] with this tag.
    Connect(u64),
}

/// End of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The service closed or reset it.
    ByService,
    /// A handler of the service panicked, or a job of its did.
    Panicked,
    /// The peer reset it, or it failed on the way.
    Failed(Reason),
    /// The streams of both sides had ended.
    Done,
}

/// A request to the engine that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// [`crate::Context::listen`].
    Listen(ListenerId, SocketError),
    /// [`crate::Context::bind`].
    Bind(DatagramSocketId, SocketError),
    /// [`crate::Context::connect`] with this tag.
    Connect(u64, SocketError),
}
