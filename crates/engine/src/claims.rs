//! Claims of ports whose sockets are closed: one whose connection is in TIME-WAIT stays, because
//! the peer may send its FIN again.

use std::collections::VecDeque;

use slipstack_channel::Transport;
use slipstack_stack::Instant;

use crate::client::Bound;

/// Most claims that stay: the keeper has room for some thousands of all engines.
pub(crate) const HELD_MAX: usize = 512;

/// Claims in the order of their ends.
#[derive(Debug, Default)]
pub(crate) struct HeldClaims(pub(crate) VecDeque<(Instant, Bound, Transport)>);

impl HeldClaims {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.0.front().is_some_and(|(until, ..)| *until <= now)
    }
}
