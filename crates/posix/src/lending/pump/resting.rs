//! Whether a pump's connection may go to the child, and the bytes that go with it.

use super::{Pump, Way};
use crate::lending::lender::Lender;

/// Bytes of the child that go with the connection, at most.
const UNSENT_MAX: usize = 4 << 20;

impl Pump {
    /// Whether it moves bytes in both directions, for all that is known.
    pub(crate) fn is_whole(&self) -> bool {
        let is_over = self.is_shut || self.is_ending || self.is_unread || self.is_paused;
        !self.to_child.is_ended && !self.to_peer.is_ended && !is_over
    }

    /// Whether the connection may go to the child as far as this is concerned: nothing was lost.
    pub(crate) fn may_stop(&self) -> bool {
        !(self.is_abandoned || self.is_unread || self.is_reset || self.is_paused)
    }

    /// Whether it has no bytes for the child, and no end of a direction that it has not passed on
    /// and that cannot go along.
    pub(crate) fn is_at_rest(&self) -> bool {
        let awaits_end = (self.is_ending || self.to_peer.is_ended) && !self.is_shut;
        let is_settled =
            self.to_child.is_empty() && self.to_child.is_ended == self.to_child.is_done;
        is_settled && (self.to_peer.is_done || !awaits_end)
    }

    /// Takes the bytes of the child that the connection has not taken. `None`: they are not all
    /// here, or others have joined the child.
    pub(crate) fn take_unsent(&mut self, lender: &dyn Lender, room: &mut [u8]) -> Option<Vec<u8>> {
        if self.to_peer.is_done {
            return Some(Vec::new());
        }
        let rest = std::mem::take(&mut self.to_peer);
        self.to_peer.is_ended = rest.is_ended;
        let mut unsent = rest.rest[rest.passed..].to_vec();
        while unsent.len() < UNSENT_MAX && !self.to_peer.is_ended {
            match self.read_child(lender, room) {
                0 => break,
                count => unsent.extend_from_slice(&room[..count]),
            }
        }
        let is_all = self.to_peer.is_ended == self.is_shut && unsent.len() < UNSENT_MAX;
        if !is_all || !self.joining.is_empty() {
            self.put_back(unsent);
            return None;
        }
        Some(unsent)
    }

    /// Whether the child's direction ends after its bytes that the connection has not taken.
    pub(crate) fn ends_unsent(&self) -> bool {
        self.to_peer.is_ended && !self.to_peer.is_done
    }

    /// Passes on again what has been taken.
    pub(crate) fn put_back(&mut self, unsent: Vec<u8>) {
        if !unsent.is_empty() {
            self.to_peer = Way {
                rest: unsent,
                passed: 0,
                ..std::mem::take(&mut self.to_peer)
            };
        }
    }

    pub(crate) fn has_shut_reading(&self) -> bool {
        self.has_shut_reading
    }
}
