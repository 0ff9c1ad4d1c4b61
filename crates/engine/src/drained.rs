//! Connections that are completed while their listener is being closed. No program accepts them
//! from it: data of their peers is kept until they move to another listener.

use slipstack_channel::UrgentAhead;
use slipstack_stack::{ConnId, ListenerId};

use crate::partial::BYTES_MAX;

/// The connections of one listener.
#[derive(Debug)]
pub(crate) struct Drained {
    listener: ListenerId,
    conns: Vec<Completed>,
    /// Bytes that may be kept still, of all together.
    room: usize,
}

/// One connection, with its received bytes.
#[derive(Debug)]
pub(crate) struct Completed {
    pub(crate) conn: ConnId,
    pub(crate) bytes: Vec<u8>,
    pub(crate) has_fin: bool,
    pub(crate) urgent: UrgentAhead,
}

impl Drained {
    pub(crate) fn new(listener: ListenerId) -> Drained {
        Drained {
            listener,
            conns: Vec::new(),
            room: BYTES_MAX,
        }
    }

    /// Takes a connection. `false`: it is another listener's.
    pub(crate) fn take(&mut self, listener: ListenerId, conn: ConnId) -> bool {
        if listener != self.listener {
            return false;
        }
        self.conns.push(Completed {
            conn,
            bytes: Vec::new(),
            has_fin: false,
            urgent: UrgentAhead::default(),
        });
        true
    }

    /// Keeps bytes of a connection. `false`: there is no room, or a gap before them; the peer sends
    /// them again.
    pub(crate) fn store(&mut self, conn: ConnId, offset: u64, bytes: &[u8]) -> bool {
        let room = self.room;
        let Some(it) = self.find(conn) else {
            return false;
        };
        if offset != it.bytes.len() as u64 || bytes.len() > room {
            return false;
        }
        it.bytes.extend_from_slice(bytes);
        self.room -= bytes.len();
        true
    }

    pub(crate) fn on_fin(&mut self, conn: ConnId) {
        if let Some(it) = self.find(conn) {
            it.has_fin = true;
        }
    }

    pub(crate) fn on_urgent(&mut self, conn: ConnId, at: u64, byte: Option<u8>) {
        if let Some(it) = self.find(conn) {
            it.urgent.note(at, byte, it.bytes.len() as u64);
        }
    }

    fn find(&mut self, conn: ConnId) -> Option<&mut Completed> {
        self.conns.iter_mut().find(|it| it.conn == conn)
    }

    pub(crate) fn into_conns(self) -> Vec<Completed> {
        self.conns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conn(index: u32) -> ConnId {
        ConnId {
            index,
            generation: 0,
        }
    }

    fn listener(index: u32) -> ListenerId {
        ListenerId {
            index,
            generation: 0,
        }
    }

    #[test]
    fn data_in_order_is_kept_and_the_rest_is_retransmitted() {
        let mut drained = Drained::new(listener(1));
        assert!(drained.take(listener(1), conn(5)) && !drained.take(listener(2), conn(6)));
        assert!(drained.store(conn(5), 0, b"ab"));
        assert!(!drained.store(conn(5), 4, b"ef"), "a gap");
        assert!(drained.store(conn(5), 2, b"cd"));
        assert!(!drained.store(conn(6), 0, b"ab"), "not one of these");
        drained.on_fin(conn(5));
        drained.on_urgent(conn(5), 2, Some(b'c'));
        let kept = drained.into_conns().pop().unwrap();
        assert_eq!((&kept.bytes[..], kept.has_fin), (&b"abcd"[..], true));
        assert_eq!(kept.urgent.mark, Some((2, Some(b'c'))));
    }

    #[test]
    fn kept_connections_are_bounded() {
        let mut drained = Drained::new(listener(1));
        drained.take(listener(1), conn(5));
        drained.take(listener(1), conn(6));
        assert!(drained.store(conn(5), 0, &vec![0; BYTES_MAX - 1]));
        assert!(!drained.store(conn(6), 0, b"ab"));
        assert!(drained.store(conn(6), 0, b"a"));
    }
}
