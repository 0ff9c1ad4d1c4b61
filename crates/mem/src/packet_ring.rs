//! Rings of packets from one thread of this process to another.
//!
//! A packet is a head of some type and bytes, which lie in a ring of their own: no allocation and
//! no lock is needed for it.

use core::fmt;

use rtrb::{Consumer, Producer, RingBuffer};

/// Most bytes of a packet.
pub const PACKET_MAX: usize = 65_535;

/// The end of a ring that puts in.
pub struct PacketSender<H> {
    heads: Producer<(H, usize)>,
    bytes: Producer<u8>,
}

/// The end of a ring that takes out.
pub struct PacketReceiver<H> {
    heads: Consumer<(H, usize)>,
    bytes: Consumer<u8>,
    /// Bytes that wrap around the end of the ring, in one piece.
    joined: Vec<u8>,
}

impl<H> fmt::Debug for PacketSender<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketSender").finish_non_exhaustive()
    }
}

impl<H> fmt::Debug for PacketReceiver<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketReceiver").finish_non_exhaustive()
    }
}

/// Makes a ring for so many packets of `bytes_each`; for fewer if they are longer, but for one of
/// any length.
pub fn packet_ring<H: Copy>(
    packets: usize,
    bytes_each: usize,
) -> (PacketSender<H>, PacketReceiver<H>) {
    let (heads_in, heads_out) = RingBuffer::new(packets);
    let (bytes_in, bytes_out) = RingBuffer::new(packets * bytes_each + PACKET_MAX);
    let sender = PacketSender {
        heads: heads_in,
        bytes: bytes_in,
    };
    let receiver = PacketReceiver {
        heads: heads_out,
        bytes: bytes_out,
        joined: Vec::new(),
    };
    (sender, receiver)
}

impl<H: Copy> PacketSender<H> {
    /// Puts a packet in, its bytes in any number of pieces; `false`: there is no room for it.
    pub fn push(&mut self, head: H, pieces: &[&[u8]]) -> bool {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        if len > PACKET_MAX || self.heads.is_full() || self.bytes.slots() < len {
            return false;
        }
        for piece in pieces {
            let pushed = self.bytes.push_entire_slice(piece);
            debug_assert!(pushed.is_ok(), "there was room");
        }
        // The head makes the bytes visible: it comes last.
        self.heads.push((head, len)).is_ok()
    }

    /// Returns whether a packet of any length has room.
    pub fn has_room(&self) -> bool {
        !self.heads.is_full() && self.bytes.slots() >= PACKET_MAX
    }
}

impl<H: Copy> PacketReceiver<H> {
    /// Passes the next packet to `handle`, which returns whether it has taken it. Returns whether
    /// one was taken.
    pub fn take(&mut self, handle: impl FnOnce(H, &[u8]) -> bool) -> bool {
        let Ok(&(head, len)) = self.heads.peek() else {
            return false;
        };
        let Ok(payload) = self.bytes.read_chunk(len) else {
            debug_assert!(false, "a head comes after its bytes");
            return false;
        };
        let is_taken = match payload.as_slices() {
            (all, []) => handle(head, all),
            (first, second) => {
                self.joined.clear();
                self.joined.extend_from_slice(first);
                self.joined.extend_from_slice(second);
                handle(head, &self.joined)
            }
        };
        if is_taken {
            payload.commit_all();
            let _ = self.heads.pop();
        }
        is_taken
    }

    /// Packets that wait.
    pub fn waiting(&self) -> usize {
        self.heads.slots()
    }

    /// The other end is no more.
    pub fn is_abandoned(&self) -> bool {
        self.heads.is_abandoned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_whole_at_any_position_of_the_ring() {
        let (mut sender, mut receiver) = packet_ring(4, 256);
        let text: Vec<u8> = (0..=255).cycle().take(30_000).collect();
        for round in 0..50 {
            for at in 0..2 {
                let (one, other) = text[..20_000 + round + at].split_at(7_000);
                assert!(sender.push(at, &[one, other]));
            }
            for at in 0..2 {
                let wanted = &text[..20_000 + round + at];
                let is_taken = receiver.take(|head, bytes| head == at && bytes == wanted);
                assert!(is_taken, "round {round}, packet {at}");
            }
        }
        assert_eq!(receiver.waiting(), 0);
    }

    #[test]
    fn a_full_ring_takes_no_more_until_one_is_taken() {
        let (mut sender, mut receiver) = packet_ring(3, 256);
        assert!((0..3).all(|number| sender.push(number, &[b"x"])));
        assert!(!sender.push(3, &[b"x"]));
        assert!(!receiver.take(|_, _| false), "it stays");
        assert_eq!(receiver.waiting(), 3);
        assert!(receiver.take(|head, _| head == 0));
        assert!(sender.push(3, &[b"x"]));
        let (mut sender, _receiver) = packet_ring(3, 256);
        let long = vec![0; PACKET_MAX];
        assert!(sender.push((), &[&long]), "the longest");
        assert!(!sender.push((), &[&long]), "no bytes are left");
        assert!(!sender.has_room());
    }
}
