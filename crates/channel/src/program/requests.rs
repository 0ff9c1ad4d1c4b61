//! Requests and their replies.

use crate::command::{Command, Ticket};
use crate::layout::{REPLIES, REPLY_LINES};
use slipstack_terms::SocketError;

use crate::reply::{self, Reply};

use super::ProgramEnd;

/// Reply slots: which are free, and the sequence number of the last request.
#[derive(Debug)]
pub(super) struct Tickets {
    free: Vec<u16>,
    sequence: u32,
}

impl Tickets {
    pub(super) fn new() -> Tickets {
        Tickets {
            free: (0..REPLIES as u16).rev().collect(),
            sequence: 0,
        }
    }

    fn take(&mut self) -> Option<Ticket> {
        let slot = self.free.pop()?;
        self.sequence = self.sequence.wrapping_add(1).max(1);
        Some(Ticket {
            slot,
            sequence: self.sequence,
        })
    }
}

impl ProgramEnd {
    /// Sends a command with a reply; call [`ProgramEnd::reply`] until it is there.
    pub fn request(&self, command: Command) -> Ticket {
        let ticket = self.inner.tickets.lock().take();
        match ticket {
            Some(ticket) => {
                self.push_ticketed(command, ticket);
                ticket
            }
            None => Ticket::NONE,
        }
    }

    /// Returns the reply to a request, once; `None` if it is not there yet. If too many requests
    /// are outstanding the answer is [`SocketError::LimitReached`], if the engine is gone
    /// [`SocketError::NetDown`].
    pub fn reply(&self, ticket: Ticket) -> Option<Result<Reply, SocketError>> {
        if ticket == Ticket::NONE {
            return Some(Err(SocketError::LimitReached));
        }
        let place = usize::from(ticket.slot) * REPLY_LINES;
        let slot = self.inner.replies.find::<REPLY_LINES>(place)?;
        match reply::read(slot, ticket) {
            Some(result) => {
                self.inner.tickets.lock().free.push(ticket.slot);
                Some(result)
            }
            None if self.is_engine_gone() => {
                self.inner.tickets.lock().free.push(ticket.slot);
                Some(Err(SocketError::NetDown))
            }
            None => None,
        }
    }
}
