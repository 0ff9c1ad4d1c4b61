//! Connections that are arriving in several messages, of which some are still missing.

use std::collections::HashMap;
use std::net::SocketAddr;

use slipstack_channel::{Reason, State, UrgentAhead};
use slipstack_stack::ConnectionImage;

/// Received bytes that travel with a connection at most.
pub(crate) const BYTES_MAX: usize = 1024 * 1024;

/// The connection itself on its way.
#[derive(Clone, Debug)]
pub(crate) enum Conveyed {
    Open(Box<ConnectionImage>),
    /// In no stack any more, with the error that has ended it. `link` is that of its listener.
    Ended {
        ends: (SocketAddr, SocketAddr),
        link: u16,
        reason: Reason,
    },
}

impl Conveyed {
    /// Local, remote.
    pub(crate) fn endpoints(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Conveyed::Open(image) => image.endpoints(),
            Conveyed::Ended { ends, .. } => Some(*ends),
        }
    }

    /// The link that its listener is bound to.
    pub(crate) fn link(&self) -> u16 {
        match self {
            Conveyed::Open(image) => image.link(),
            Conveyed::Ended { link, .. } => *link,
        }
    }
}

/// A connection of which messages are still to come.
#[derive(Debug)]
pub(crate) struct Partial {
    /// Engines that had no listener for it.
    pub(crate) hops: u8,
    /// The keeper has made or rebuilt it, and knows little of its listener's options.
    pub(crate) is_bare: bool,
    pub(crate) conveyed: Conveyed,
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
