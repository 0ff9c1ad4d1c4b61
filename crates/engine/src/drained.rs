//! Connections that are completed while their listeners are being closed. No program accepts them
//! from these: data of their peers is kept until they move to another listener.

use slipstack_stack::{ConnId, ListenerId};

use crate::partial::BYTES_MAX;

/// The listeners and their connections.
#[derive(Debug)]
pub(crate) struct Drained {
    listeners: Vec<ListenerId>,
    conns: Vec<Completed>,
    /// Bytes that may be kept still, of all together.
    room: usize,
}

/// One connection, with its received bytes.
#[derive(Debug)]
pub(crate) struct Completed {
    listener: ListenerId,
    pub(crate) conn: ConnId,
    pub(crate) bytes: Vec<u8>,
    pub(crate) has_fin: bool,
}

impl Drained {
    /// Connections of a listener are kept from now on.
    pub(crate) fn begin(&mut self, listener: ListenerId) {
        if !self.listeners.contains(&listener) {
            self.listeners.push(listener);
        }
    }

    /// Takes a connection. `false`: it is another listener's.
    pub(crate) fn take(&mut self, listener: ListenerId, conn: ConnId) -> bool {
        if !self.listeners.contains(&listener) {
            return false;
        }
        self.conns.push(Completed {
            listener,
            conn,
            bytes: Vec::new(),
            has_fin: false,
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

    fn find(&mut self, conn: ConnId) -> Option<&mut Completed> {
        self.conns.iter_mut().find(|it| it.conn == conn)
    }

    /// Returns the connections of a listener, of which no more are kept.
    pub(crate) fn end(&mut self, listener: ListenerId) -> Vec<Completed> {
        self.listeners.retain(|it| *it != listener);
        let is_its = |it: &mut Completed| it.listener == listener;
        let ended: Vec<Completed> = self.conns.extract_if(.., is_its).collect();
        self.room += ended.iter().map(|it| it.bytes.len()).sum::<usize>();
        ended
    }
}

impl Default for Drained {
    fn default() -> Drained {
        Drained {
            listeners: Vec::new(),
            conns: Vec::new(),
            room: BYTES_MAX,
        }
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
        let mut drained = Drained::default();
        drained.begin(listener(1));
        assert!(drained.take(listener(1), conn(5)) && !drained.take(listener(2), conn(6)));
        assert!(drained.store(conn(5), 0, b"ab"));
        assert!(!drained.store(conn(5), 4, b"ef"), "a gap");
        assert!(drained.store(conn(5), 2, b"cd"));
        assert!(!drained.store(conn(6), 0, b"ab"), "not one of these");
        drained.on_fin(conn(5));
        let kept = drained.end(listener(1)).pop().unwrap();
        assert_eq!((&kept.bytes[..], kept.has_fin), (&b"abcd"[..], true));
    }

    #[test]
    fn kept_connections_are_bounded() {
        let mut drained = Drained::default();
        drained.begin(listener(1));
        drained.begin(listener(2));
        drained.take(listener(1), conn(5));
        drained.take(listener(2), conn(6));
        assert!(drained.store(conn(5), 0, &vec![0; BYTES_MAX - 1]));
        assert!(!drained.store(conn(6), 0, b"ab"));
        assert!(drained.store(conn(6), 0, b"a"));
        assert_eq!(drained.end(listener(1)).len(), 1);
        assert!(!drained.take(listener(1), conn(7)));
        assert!(drained.store(conn(6), 1, &vec![0; BYTES_MAX - 1]));
    }
}
