//! The state in which a killed program leaves a connection: the positions of its rings, and where
//! its bytes are.
//!
//! The keeper reads it out of the region's cell. The program and its engine may have been killed at
//! any instant and may have written nonsense: each word is read once, and connections with
//! impossible values are left out.

use slipstack_mem::{ByteRing, Lines, Region};

use crate::cell::Cell;
use crate::control::{LeftFile, PassedOn};
use crate::flows::Opened;
use crate::handover::HandoverImage;
use crate::ids::SockId;
use crate::layout::{CELL_LINES, CELLS_AT, PROGRAM_SOCKETS, SOCKETS, receive_arena};
use crate::loan::Loan;
use crate::state::State;
use crate::urgent::UrgentAhead;

/// With any of these there is no connection any more.
const ENDED: [State; 2] = [State::CLOSED, State::ERR];

/// See the [module documentation](self). Offsets are those of the connection's streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftConnection {
    /// Position of the bytes to send; the stack's part is empty.
    pub unsent: HandoverImage,
    /// Received up to, and read up to.
    pub received: u64,
    pub read: u64,
    /// The peer has ended its stream.
    pub has_fin: bool,
    /// From the first unread byte on.
    pub urgent: UrgentAhead,
    /// The program has not accepted the connection: it waits in its listener's queue, or was about
    /// to go to another listener.
    pub is_unaccepted: bool,
    pub loan: Loan,
    ring: Option<ByteRing>,
}

impl Loan {
    /// Looks at the loan of a socket, also of one whose connection nobody could go on with.
    pub fn of(region: &Region, sock: SockId) -> Loan {
        let lines = Lines::new(region, CELLS_AT, SOCKETS * CELL_LINES);
        let line = lines
            .as_ref()
            .and_then(|lines| lines.find(sock.index as usize * CELL_LINES));
        let cell = line.map(Cell::new);
        let cell = cell.filter(|cell| cell.state().generation == sock.generation);
        cell.map_or(Loan::NONE, |cell| cell.loan())
    }
}

impl LeftConnection {
    /// Looks at the connection of a socket.
    pub fn of(region: &Region, sock: SockId) -> Option<LeftConnection> {
        LeftConnection::look(region, &Opened::naming(sock))
    }

    /// Looks at the connection that a directory's entry describes.
    pub fn look(region: &Region, opened: &Opened) -> Option<LeftConnection> {
        let lines = Lines::new(region, CELLS_AT, SOCKETS * CELL_LINES)?;
        let cell = Cell::new(lines.find(opened.index as usize * CELL_LINES)?);
        let state = cell.state();
        let bits = state.state;
        let is_over = ENDED.iter().any(|bit| bits.contains(*bit));
        if !opened.is_of(state.generation) || is_over || !bits.contains(State::CONNECTED) {
            return None;
        }
        let words = [cell.tx_ring().0, cell.tx_tail(), cell.tx_head()];
        let (received, read) = (cell.rx_head(), cell.rx_tail());
        // Only the engine knew the places of extents.
        if read > received || cell.tx_mark().extents_end() > words[1] {
            return None;
        }
        Some(LeftConnection {
            unsent: HandoverImage::from_words(Vec::new(), words, region)?,
            received,
            read,
            has_fin: bits.contains(State::FIN),
            urgent: UrgentAhead::of(&cell, read),
            is_unaccepted: opened.index as usize >= PROGRAM_SOCKETS
                && cell.is_unaccepted(state.generation),
            loan: cell.loan(),
            ring: ByteRing::validate(cell.rx_ring(), &receive_arena(region.len())),
        })
    }

    /// Tells how far the owner had moved the bytes of the process that may go on with the
    /// connection.
    pub fn told(&self) -> LeftFile {
        LeftFile {
            taken: self.loan.taken(self.unsent.head),
            is_taking: self.loan.is_taking(),
            is_giving: self.loan.is_giving(),
            ..LeftFile::default()
        }
    }

    /// Returns the connection as one whose bytes have been read as far as the process has them that
    /// may go on with it. `None`: these are no possible values, or it does not know.
    pub fn read_by(&self, has: PassedOn) -> Option<LeftConnection> {
        let mut left = self.clone();
        if self.loan.is_giving() {
            left.read = self.loan.given_upto(has.given?, self.read);
        }
        (left.read <= left.received).then_some(left)
    }

    /// Returns the received bytes that were not read, or `None` if the region does not hold them.
    pub fn unread(&self, region: &Region) -> Option<Vec<u8>> {
        let len = usize::try_from(self.received - self.read).ok()?;
        if len == 0 {
            return Some(Vec::new());
        }
        let ring = self.ring.filter(|ring| len <= ring.size())?;
        let mut bytes = vec![0; len];
        ring.read(region, self.read, &mut bytes);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Ends;
    use crate::{EngineEnd, FlowDirectory, Limits, ProgramEnd, SockId, flows};
    use slipstack_terms::Transport;
    use std::net::SocketAddr;

    #[test]
    fn a_connection_that_the_engine_took_back_is_unaccepted_and_one_that_the_program_took_is_not() {
        let mut end = EngineEnd::create().unwrap();
        let region = end.region().clone();
        let program = ProgramEnd::open(region.clone()).unwrap();
        let listener = program.open_socket(Transport::Tcp).unwrap();
        let mut directory = FlowDirectory::new(&region).unwrap();
        let mut offer = |port| -> SockId {
            let addr = |port| SocketAddr::from(([10, 0, 0, 5], port));
            let ends = Ends::of(addr(80), addr(port));
            let limits = Limits {
                send: 4096,
                receive: 4096,
            };
            let sock = end.accepted(listener, &ends, limits).unwrap();
            let place = directory.open(&ends).unwrap();
            directory.describe(place, sock, [0; 3], [0; 2]);
            sock
        };
        let [_, withdrawn, taken] = [1, 2, 3].map(&mut offer);
        assert!(end.withdraw(withdrawn));
        assert!(end.cell(taken.index).unwrap().take(taken.generation));
        let left = |entry: &crate::FlowEntry| LeftConnection::look(&region, &entry.opened.unwrap());
        let found = flows(&region);
        let unaccepted = found.iter().map(|it| left(it).unwrap().is_unaccepted);
        assert_eq!(unaccepted.collect::<Vec<_>>(), [true, true, false]);
    }
}
