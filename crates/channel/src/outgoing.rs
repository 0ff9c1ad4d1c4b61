//! Responses to datagrams that an [`Owner`](crate::Owner) has been handed on arrival. They go to
//! its engine beside the channel's rings.

use std::net::{IpAddr, SocketAddr};

use crate::ids::SockId;

/// Payload bytes that wait at most; further responses take the way through the rings.
const BYTES_MAX: usize = 256 * 1024;

/// One datagram's addresses, and where its payload ends.
#[derive(Clone, Copy, Debug)]
struct Entry {
    sock: SockId,
    peer: SocketAddr,
    local: Option<IpAddr>,
    end: usize,
}

/// A datagram to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingDatagram<'a> {
    pub sock: SockId,
    pub peer: SocketAddr,
    /// Address that it comes from; `None`: the route's.
    pub local: Option<IpAddr>,
    pub payload: &'a [u8],
}

/// Datagrams to be sent, in order.
#[derive(Debug, Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

impl Outgoing {
    /// Adds a datagram; `false` if too many bytes wait.
    #[inline]
    pub fn push(&mut self, datagram: &OutgoingDatagram<'_>) -> bool {
        let end = self.bytes.len() + datagram.payload.len();
        if end > BYTES_MAX {
            return false;
        }
        self.bytes.extend_from_slice(datagram.payload);
        self.entries.push(Entry {
            sock: datagram.sock,
            peer: datagram.peer,
            local: datagram.local,
            end,
        });
        true
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = OutgoingDatagram<'_>> {
        let mut begin = 0;
        self.entries.iter().map(move |entry| {
            let payload = &self.bytes[begin..entry.end];
            begin = entry.end;
            OutgoingDatagram {
                sock: entry.sock,
                peer: entry.peer,
                local: entry.local,
                payload,
            }
        })
    }

    /// Empties the list; its memory stays for the next turn.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_come_out_in_order_and_a_full_queue_refuses() {
        let mut outgoing = Outgoing::default();
        let payload = [7; 60_000];
        let sock = SockId {
            index: 1,
            generation: 2,
        };
        let datagram = |port, len| OutgoingDatagram {
            sock,
            peer: SocketAddr::from(([10, 0, 0, 1], port)),
            local: None,
            payload: &payload[..len],
        };
        let sent = [datagram(1, 0), datagram(2, 1), datagram(3, 60_000)];
        assert!(sent.iter().all(|it| outgoing.push(it)));
        assert!(outgoing.iter().eq(sent));
        while outgoing.push(&datagram(4, 60_000)) {}
        assert!(outgoing.bytes.len() <= BYTES_MAX);
        outgoing.clear();
        assert!(outgoing.is_empty() && outgoing.push(&datagram(4, 60_000)));
    }
}
