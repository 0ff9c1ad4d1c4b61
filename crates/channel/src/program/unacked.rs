//! Sent bytes that the peer has not acknowledged, of a connection that goes to another channel.

use super::ProgramEnd;
use crate::ids::SockId;

impl ProgramEnd {
    /// Returns a copy of the sent bytes that the peer has not acknowledged, and where the program
    /// writes on. `None`: the id is old, or the connection has left.
    pub fn copy_unacked(&self, sock: SockId) -> Option<(Vec<u8>, u64)> {
        let (local, cell) = (self.inner.sockets.find(sock)?, self.cell(sock.index)?);
        let tx = local.tx.lock();
        let acked = self.acked(sock, &cell);
        let len = usize::try_from(tx.head.checked_sub(acked)?).ok()?;
        if len == 0 {
            return Some((Vec::new(), tx.head));
        }
        let ring = tx.ring.filter(|ring| len <= ring.size())?;
        let mut bytes = vec![0; len];
        let region = &self.inner.region;
        ring.read(region, acked, &mut bytes);
        let lent = tx.lent.iter().flat_map(|lent| &lent.extents);
        for part in lent.filter_map(|extent| extent.part(acked, tx.head)) {
            let from = (part.start - acked) as usize;
            region.read_into(part.place, &mut bytes[from..from + part.len()]);
        }
        Some((bytes, tx.head))
    }

    /// Has the ring take nothing more: the program ends, and its threads are to write nothing
    /// behind a copy of the bytes.
    pub fn seal(&self, sock: SockId) {
        if let Some(local) = self.inner.sockets.find(sock) {
            local.tx.lock().is_sealed = true;
        }
    }

    /// Puts the bytes of [`ProgramEnd::copy_unacked`] into the ring of a new socket that is to have
    /// the connection, whatever the limit of its buffer is. Returns `false` if there is no room for
    /// them, and for `more` bytes that are to follow in the same way.
    pub fn refill(&self, sock: SockId, bytes: &[u8], more: usize) -> bool {
        let needed = bytes.len() + more;
        if needed == 0 {
            return true;
        }
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return false;
        };
        let mut tx = local.tx.lock();
        let room = self.make_room(sock, &cell, &mut tx, needed);
        let Some(ring) = tx.ring.filter(|_| room >= needed) else {
            return false;
        };
        if bytes.is_empty() {
            return true;
        }
        ring.write(&self.inner.region, tx.head, bytes);
        tx.head += bytes.len() as u64;
        self.publish(sock, &cell, &tx, false);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::{EngineEnd, Limits, SendSide, State, Transport};

    fn opened(end: &mut EngineEnd, program: &ProgramEnd) -> SockId {
        let sock = program.open_socket(Transport::Tcp).unwrap();
        while end.next_command().is_some() {}
        let limits = Limits {
            send: 1000,
            receive: 1000,
        };
        assert!(end.begin(sock, limits));
        end.set_state(sock, State::CONNECTED, None, 0);
        sock
    }

    #[test]
    fn a_sealed_ring_takes_nothing_more() {
        let mut end = EngineEnd::create().unwrap();
        let program = ProgramEnd::open(end.region().clone()).unwrap();
        let (old, other) = (opened(&mut end, &program), opened(&mut end, &program));
        let send = |sock| program.send(sock, &[IoSlice::new(b"abc")], false);
        assert_eq!(send(old), 3);
        program.seal(old);
        assert_eq!((send(old), program.tx_space(old)), (0, 0));
        assert!(!program.is_writable(old) && program.is_writable(other));
        assert_eq!(program.copy_unacked(old).unwrap(), (b"abc".to_vec(), 3));
        assert_eq!(send(other), 3);
        assert!(!program.is_starving());
    }

    #[test]
    fn unacknowledged_bytes_are_read_and_put_into_another_ring() {
        let mut end = EngineEnd::create().unwrap();
        let program = ProgramEnd::open(end.region().clone()).unwrap();
        let (old, new) = (opened(&mut end, &program), opened(&mut end, &program));
        let bytes: Vec<u8> = (0..1000).map(|at| at as u8).collect();
        assert_eq!(program.send(old, &[IoSlice::new(&bytes)], false), 1000);
        let mut side = SendSide::NEW;
        side.look(&mut end, old);
        side.on_acked(&mut end, old, 300);
        assert_eq!(
            program.copy_unacked(old).unwrap(),
            (bytes[300..].to_vec(), 1000)
        );
        let large: Vec<u8> = (0..100_000).map(|at| (at / 7) as u8).collect();
        assert!(program.refill(new, &large, 10), "beyond the limit");
        assert_eq!(program.copy_unacked(new).unwrap(), (large, 100_000));
        assert!(program.refill(new, b"more bytes", 0));
        let mut side = SendSide::NEW;
        assert_eq!(side.look(&mut end, new).upto, 100_010);
        let stale = SockId {
            generation: new.generation + 1,
            ..new
        };
        assert!(program.copy_unacked(stale).is_none() && !program.refill(stale, b"x", 0));
    }
}
