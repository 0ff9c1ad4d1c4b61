//! Claims of ports whose sockets are closed: one whose connection is in TIME-WAIT stays, because
//! the peer may send its FIN again.

use std::collections::VecDeque;

use slipstack_stack::Instant;

use crate::client::Bound;

/// Most claims that stay: the keeper has room for some thousands of all engines.
const HELD_MAX: usize = 512;

/// Claims of TCP ports in the order of their ends.
#[derive(Debug, Default)]
pub(crate) struct HeldClaims(VecDeque<(Instant, Bound)>);

impl HeldClaims {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.0.front().is_some_and(|(until, _)| *until <= now)
    }

    /// Keeps a claim. Returns another one to give up if there are too many.
    pub(crate) fn push(&mut self, until: Instant, bound: Bound) -> Option<Bound> {
        self.0.push_back((until, bound));
        (self.0.len() > HELD_MAX).then(|| self.pop()).flatten()
    }

    pub(crate) fn pop(&mut self) -> Option<Bound> {
        self.0.pop_front().map(|(_, bound)| bound)
    }
}
