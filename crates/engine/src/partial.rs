//! Connections that are arriving in several messages, of which some are still missing.

use std::collections::HashMap;

use slipstack_channel::{State, UrgentAhead};
use slipstack_stack::ConnectionImage;

/// Received bytes that travel with a connection at most.
pub(crate) const BYTES_MAX: usize = 1024 * 1024;

/// A connection of which messages are still to come.
#[derive(Debug)]
pub(crate) struct Partial {
    /// Engines that had no listener for it.
    pub(crate) hops: u8,
    /// The keeper has made or rebuilt it, and knows nothing of its listener's options.
    pub(crate) is_bare: bool,
    pub(crate) image: ConnectionImage,
    pub(crate) state: State,
    pub(crate) urgent: UrgentAhead,
    pub(crate) bytes: Vec<u8>,
    pub(crate) len: usize,
}

/// Connections on their way in.
#[derive(Debug, Default)]
pub(crate) struct Arriving {
    pub(crate) partial: HashMap<u64, Partial>,
    /// Number of the next message about a connection that is sent away.
    pub(crate) next_tag: u64,
}
