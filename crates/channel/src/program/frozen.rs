//! A connection that is about to leave the channel.

use slipstack_mem::Guard;

use super::ProgramEnd;
use super::sockets::{RxSide, TxSide};
use crate::ids::SockId;

/// The program's side of a connection that no thread reads or writes as long as this lives.
#[derive(Debug)]
pub struct Frozen<'a> {
    rx: Guard<'a, RxSide>,
    tx: Guard<'a, TxSide>,
}

impl ProgramEnd {
    /// Locks a connection's bytes against all threads. Returns `None` if the id is old, or if there
    /// is urgent data, whose state does not move with a connection.
    pub fn freeze(&self, sock: SockId) -> Option<Frozen<'_>> {
        let (local, cell) = (self.inner.sockets.find(sock)?, self.cell(sock.index)?);
        let (rx, tx) = (local.rx.lock(), local.tx.lock());
        let is_plain = cell.urgent().is_none() && !self.is_urgent_inline(sock);
        is_plain.then_some(Frozen { rx, tx })
    }
}

impl Frozen<'_> {
    /// Marks the connection as gone: threads that come later find nothing to read and no room to
    /// write.
    pub fn leave(mut self) {
        // Positions beyond every head, and beyond any acknowledgment.
        self.rx.tail = u64::MAX;
        self.tx.head = u64::MAX;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, IoSliceMut};

    use super::*;
    use crate::{EngineEnd, Limits, State, Transport};

    #[test]
    fn a_connection_that_has_moved_is_not_used_in_its_old_place() {
        let mut end = EngineEnd::create().unwrap();
        let program = ProgramEnd::open(end.region().clone()).unwrap();
        let sock = program.open_socket(Transport::Tcp).unwrap();
        while end.next_command().is_some() {}
        let limits = Limits {
            send: 65_536,
            receive: 65_536,
        };
        assert!(end.begin(sock, limits));
        end.set_state(sock, State::CONNECTED, None, 0);
        let send = || program.send(sock, &[IoSlice::new(b"x")], false);
        drop(program.freeze(sock).unwrap());
        assert_eq!(send(), 1, "it has not left");
        program.freeze(sock).unwrap().leave();
        assert_eq!(send(), 0);
        let mut byte = [0];
        assert_eq!(program.recv(sock, &mut [IoSliceMut::new(&mut byte)]), 0);
        let old = SockId {
            generation: sock.generation + 1,
            ..sock
        };
        assert!(program.freeze(old).is_none());
    }
}
