//! A ring of datagrams from one thread to another.

use std::net::SocketAddr;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::connections::DatagramSocketId;
use crate::received::Received;

/// Longest payload of a datagram (IPv6's length field less the UDP header).
pub(super) const PAYLOAD_MAX: usize = 65_527;
/// Payload bytes for which there is room, for each datagram of a ring.
const BYTES_EACH: usize = 256;

/// A datagram without its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) socket: DatagramSocketId,
    /// The other end: where a question came from, and its answer goes.
    pub(super) peer: SocketAddr,
    /// The stack's end.
    pub(super) local: SocketAddr,
    len: usize,
}

impl Head {
    pub(super) fn new(socket: DatagramSocketId, peer: SocketAddr, local: SocketAddr) -> Head {
        Head {
            socket,
            peer,
            local,
            len: 0,
        }
    }
}

/// The end of a ring that puts in.
pub(super) struct Sender {
    heads: Producer<Head>,
    bytes: Producer<u8>,
}

/// The end of a ring that takes out.
pub(super) struct Receiver {
    heads: Consumer<Head>,
    bytes: Consumer<u8>,
    /// A payload that wraps around the end of the ring, in one piece.
    joined: Vec<u8>,
}

/// A ring for so many datagrams; for fewer if they are long, but for one of any length.
pub(super) fn ring(datagrams: usize) -> (Sender, Receiver) {
    let (heads_in, heads_out) = RingBuffer::new(datagrams);
    let (bytes_in, bytes_out) = RingBuffer::new(datagrams * BYTES_EACH + PAYLOAD_MAX);
    let sender = Sender {
        heads: heads_in,
        bytes: bytes_in,
    };
    let receiver = Receiver {
        heads: heads_out,
        bytes: bytes_out,
        joined: Vec::with_capacity(PAYLOAD_MAX),
    };
    (sender, receiver)
}

impl Sender {
    /// Puts a datagram in; `false`: there is no room for it.
    pub(super) fn push(&mut self, mut head: Head, payload: Received<'_>) -> bool {
        head.len = payload.len();
        if head.len > PAYLOAD_MAX || self.heads.is_full() || self.bytes.slots() < head.len {
            return false;
        }
        for piece in payload.pieces() {
            let pushed = self.bytes.push_entire_slice(piece);
            debug_assert!(pushed.is_ok(), "there was room");
        }
        // The head makes the payload visible: it comes last.
        self.heads.push(head).is_ok()
    }

    /// Whether a datagram of any length has room.
    pub(super) fn has_room(&self) -> bool {
        !self.heads.is_full() && self.bytes.slots() >= PAYLOAD_MAX
    }
}

impl Receiver {
    /// Shows the next datagram to `handle`, which says whether it has taken it. Returns whether
    /// one was taken.
    pub(super) fn take(&mut self, handle: impl FnOnce(&Head, &[u8]) -> bool) -> bool {
        let Ok(&head) = self.heads.peek() else {
            return false;
        };
        let Ok(payload) = self.bytes.read_chunk(head.len) else {
            debug_assert!(false, "a head comes after its payload");
            return false;
        };
        let is_taken = match payload.as_slices() {
            (all, []) => handle(&head, all),
            (first, second) => {
                self.joined.clear();
                self.joined.extend_from_slice(first);
                self.joined.extend_from_slice(second);
                handle(&head, &self.joined)
            }
        };
        if is_taken {
            payload.commit_all();
            let _ = self.heads.pop();
        }
        is_taken
    }

    /// Datagrams that wait.
    pub(super) fn waiting(&self) -> usize {
        self.heads.slots()
    }

    /// The other end is no more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.heads.is_abandoned()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use slipstack_channel::SockId;

    use super::*;

    fn head() -> Head {
        let addr = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 7);
        let sock = SockId {
            index: 1,
            generation: 1,
        };
        Head::new(DatagramSocketId(sock), addr, addr)
    }

    #[test]
    fn datagrams_come_out_whole_however_they_lie_in_the_ring() {
        let (mut sender, mut receiver) = ring(4);
        let text: Vec<u8> = (0..=255).cycle().take(30_000).collect();
        for round in 0..50 {
            for at in 0..2 {
                let (one, other) = text[..20_000 + round + at].split_at(7_000);
                assert!(sender.push(head(), Received::new(one, other)));
            }
            for at in 0..2 {
                let is_taken = receiver.take(|_, bytes| bytes == &text[..20_000 + round + at]);
                assert!(is_taken, "round {round}, datagram {at}");
            }
        }
        assert_eq!(receiver.waiting(), 0);
    }

    #[test]
    fn a_full_ring_takes_no_more_until_one_is_taken() {
        let (mut sender, mut receiver) = ring(3);
        let one = || Received::new(b"x", b"");
        assert!((0..3).all(|_| sender.push(head(), one())));
        assert!(!sender.push(head(), one()));
        assert!(!receiver.take(|_, _| false), "it stays");
        assert_eq!(receiver.waiting(), 3);
        assert!(receiver.take(|_, _| true));
        assert!(sender.push(head(), one()));
        let (mut sender, _receiver) = ring(3);
        let long = vec![0; PAYLOAD_MAX];
        assert!(
            sender.push(head(), Received::new(&long, b"")),
            "the longest"
        );
        assert!(!sender.push(head(), Received::new(&long, b"")), "no bytes");
        assert!(!sender.has_room());
    }
}
