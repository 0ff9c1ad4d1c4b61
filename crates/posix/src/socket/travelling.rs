//! A connection on its way to another process, with the bytes that its peer has not acknowledged:
//! they are in a ring of this program's, which the other one does not have.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use slipstack_channel::{SockId, State};

use crate::attachment::Attachment;
use crate::socket::Stream;
use crate::socket::stream::{AWAITS_OTHERS, CONNECTING, OPEN, SHUT_READ, SHUT_WRITE};

/// The bit of [`Travelling`]'s shut directions by which the program has taken its error.
const HAS_TAKEN_ERROR: u8 = 1 << 7;

/// The parts from which the other process makes the connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Travelling {
    /// Directions that the program has shut down, and whether it has taken the error.
    shut: u8,
    /// [`slipstack_channel::ProgramEnd::urgent_taken`].
    urgent_taken: u64,
    /// Sent bytes that were not acknowledged when the connection left.
    unacked: Vec<u8>,
    /// Bytes of a user of the connection that had not come to its send ring.
    unsent: Vec<u8>,
    /// The output of [`Attachment::carry_out`].
    connection: Vec<u8>,
}

impl Travelling {
    /// For a message, or a file if it is long.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let len = self.unacked.len() + self.unsent.len() + self.connection.len();
        let mut all = Vec::with_capacity(1 + 3 * 8 + len);
        all.push(self.shut);
        all.extend(self.urgent_taken.to_le_bytes());
        for part in [&self.unacked, &self.unsent] {
            all.extend((part.len() as u64).to_le_bytes());
            all.extend(part);
        }
        all.extend(&self.connection);
        all
    }

    /// Returns `None` if these are not the output of [`Travelling::to_bytes`].
    pub(crate) fn from_bytes(all: &[u8]) -> Option<Travelling> {
        let ([shut], rest) = all.split_first_chunk()?;
        let (urgent_taken, rest) = rest.split_first_chunk()?;
        let (unacked, rest) = split_part(rest)?;
        let (unsent, connection) = split_part(rest)?;
        Some(Travelling {
            shut: *shut,
            urgent_taken: u64::from_le_bytes(*urgent_taken),
            unacked: unacked.to_vec(),
            unsent: unsent.to_vec(),
            connection: connection.to_vec(),
        })
    }

    /// A connection whose owner was killed: nothing is shut down.
    pub(crate) fn of_killed(unacked: Vec<u8>, unsent: Vec<u8>, connection: Vec<u8>) -> Travelling {
        Travelling {
            shut: 0,
            urgent_taken: 0,
            unacked,
            unsent,
            connection,
        }
    }

    /// A user of the connection has shut its receiving direction down.
    pub(crate) fn shut_reading(&mut self) {
        self.shut |= SHUT_READ;
    }

    /// A user of the connection has shut its sending direction down: it ends after all bytes.
    pub(crate) fn shut_writing(&mut self) {
        self.shut = (self.shut | SHUT_WRITE) & !AWAITS_OTHERS;
    }

    /// Adds bytes that are to be sent after all others.
    pub(crate) fn add_unsent(&mut self, bytes: Vec<u8>) {
        self.unsent = bytes;
    }

    pub(crate) fn unsent(&self) -> &[u8] {
        &self.unsent
    }

    /// Takes the connection in, as a socket that was opened there and has not been used. `None`: it
    /// cannot be had, and the caller closes the socket with a reset.
    pub(crate) fn arrive(&self, attachment: &Arc<Attachment>, sock: SockId) -> Option<Stream> {
        let (program, more) = (&attachment.program, self.unsent.len());
        let has_room = program.refill(sock, &self.unacked, more);
        if !has_room || !attachment.carry_in(sock, &self.connection) {
            return None;
        }
        let stream = Stream::accepted(Arc::clone(attachment), sock);
        if more > 0 {
            if !program.refill(sock, &self.unsent, 0) {
                return None;
            }
            attachment.commands();
        }
        program.set_urgent_taken(sock, self.urgent_taken);
        if self.shut & HAS_TAKEN_ERROR != 0 {
            program.take_error(sock);
        }
        stream
            .shut
            .store(self.shut & !HAS_TAKEN_ERROR, Ordering::SeqCst);
        stream.repeat_end();
        Some(stream)
    }

    /// Records that the connection is on the engine of that slot now.
    pub(crate) fn has_arrived(&self, attachment: &Attachment, slot: u16) {
        attachment.carried(&self.connection, slot);
    }
}

impl Stream {
    /// Whether it is a connection, perhaps one that has ended, on an engine that is there.
    pub(crate) fn may_depart(&self) -> bool {
        let (here, seen) = (self.here(), self.seen());
        let is_settled = !seen.is_error() || seen.is_closed();
        let is_made = match self.phase.load(Ordering::Relaxed) {
            OPEN => true,
            // No `connect` has asked for the outcome.
            CONNECTING => seen.is_established(),
            _ => false,
        };
        is_made && is_settled && !here.attachment().is_dead()
    }

    /// Whether it is a connection, also one that cannot depart now.
    pub(crate) fn is_connection(&self) -> bool {
        self.may_depart() || self.remote().is_ok()
    }

    /// Has no thread of this process write any more.
    pub(crate) fn seal(&self) {
        let (attachment, sock) = self.attachment_and_sock();
        attachment.program.seal(sock);
    }

    /// Removes the connection. Returns `None` if it stays, as it does while threads write to it.
    pub(crate) fn depart(&self) -> Option<Travelling> {
        if !self.may_depart() {
            return None;
        }
        let (attachment, sock) = self.attachment_and_sock();
        let (unacked, upto) = attachment.program.copy_unacked(sock)?;
        let urgent_taken = attachment.program.urgent_taken(sock);
        let connection = attachment.carry_out(sock, upto)?;
        // Not what is seen, which is an end too if the engine has just been lost.
        let state = attachment.program.state(sock);
        let (unacked, has_taken) = match state.contains(State::CLOSED) {
            // A peer that has reset the connection takes nothing more.
            true => (Vec::new(), !state.contains(State::ERR)),
            false => (unacked, false),
        };
        Some(Travelling {
            shut: self.shut.load(Ordering::SeqCst) | if has_taken { HAS_TAKEN_ERROR } else { 0 },
            urgent_taken,
            unacked,
            unsent: Vec::new(),
            connection,
        })
    }

    /// Takes the connection back that has not been taken elsewhere.
    pub(crate) fn come_back(&self, travelling: &Travelling) {
        let (attachment, sock) = self.attachment_and_sock();
        attachment.carry_in(sock, &travelling.connection);
    }

    /// Whether the program has shut the sending direction down.
    pub(crate) fn has_shut_writing(&self) -> bool {
        self.has_shut(SHUT_WRITE)
    }
}

/// Splits bytes off that follow their number.
fn split_part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_travelling_connection_are_told_apart() {
        let travelling = Travelling {
            shut: SHUT_WRITE,
            urgent_taken: 5,
            unacked: b"sent".to_vec(),
            unsent: b"later".to_vec(),
            connection: b"image".to_vec(),
        };
        let bytes = travelling.to_bytes();
        assert_eq!(Travelling::from_bytes(&bytes), Some(travelling));
        for len in 0..1 + 3 * 8 + 4 + 5 {
            assert_eq!(Travelling::from_bytes(&bytes[..len]), None, "{len}");
        }
    }
}
