//! A connection on its way from one engine to another: what each of the two processes has at every
//! step, and what the keeper finds if one of them is killed.

use slipstack_stack::{ConnId, ConnectionImage, ConnectionOrigin};

use super::flow::Flow;
use crate::moving_connection::MovingConnection;

/// Way in which a connection is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giving {
    /// No program has used it: it goes through the taker's inbox (`slipstack_engine`'s `passing`).
    Passed,
    /// Move of a connection in use: in a message to the process that uses it, which confirms it
    /// (`slipstack_engine`'s `carrying`).
    Carried,
}

/// The place of a connection.
#[derive(Debug)]
pub enum Whereabouts {
    Giver(ConnId),
    /// The memory of the giver.
    Hands(Box<MovingConnection>),
    /// A message to the taker, which outlives the giver.
    Posted(Box<MovingConnection>),
    Taker,
    /// An engine has it as any other, or it is lost.
    Over,
}

/// See the [module documentation](self).
#[derive(Debug)]
pub struct Journey {
    pub giving: Giving,
    pub flow: Flow,
    pub giver: usize,
    pub taker: usize,
    pub place: Whereabouts,
    /// The connection's entry in the giver's directory, which says that it is leaving.
    pub entry: Option<ConnectionOrigin>,
    /// The message, until the taker has released it or said that it has the connection.
    pub message: Option<ConnectionImage>,
}

impl Journey {
    /// Whether no stack has it.
    pub fn is_between(&self) -> bool {
        matches!(self.place, Whereabouts::Hands(_) | Whereabouts::Posted(_))
    }
}
