//! Datagrams that came back with an error: a ring beside the receive ring, made for the first one.
//!
//! ```text
//! 0 payload length  4 reason  5 kind  6 code  8 info  12 port  16 destination  32 offender
//! 48 own address  64 time  72 tos  73 ttl
//! ```

use std::net::{IpAddr, SocketAddr};

use slipstack_mem::ByteRing;

use crate::addr::AddrWords;
use crate::engine_end::{Contradiction, EngineEnd};
use crate::ids::SockId;
use slipstack_terms::Reason;

/// Length of a record before its payload.
pub(crate) const HEADER: usize = 80;
/// Bytes that may wait; datagrams beyond them are lost.
const RING_BYTES: usize = 32 << 10;
/// Bytes of a datagram that an error quotes at most.
const PAYLOAD_MAX: usize = 2048;

/// An ICMP error about a sent datagram, or our own about one that its path does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    pub reason: Reason,
    /// Destination of the datagram.
    pub to: SocketAddr,
    /// Address of the host that sent the error; unspecified for our own.
    pub offender: IpAddr,
    /// Type and code of the ICMP message, of the version that the addresses have.
    pub kind: u8,
    pub code: u8,
    /// The reported MTU, or the position of the error.
    pub info: u32,
    /// Our address to which the error came, its time (CLOCK_MONOTONIC nanoseconds), and the fields
    /// of its header.
    pub local: IpAddr,
    pub time_ns: u64,
    pub tos: u8,
    pub ttl: u8,
    /// Bytes of the payload that were quoted.
    pub len: usize,
}

impl Returned {
    /// Returns whether the error is our own (SO_EE_ORIGIN_LOCAL).
    pub fn is_local(&self) -> bool {
        self.offender.is_unspecified()
    }

    pub(crate) fn record_len(&self) -> usize {
        HEADER + self.len.next_multiple_of(8)
    }

    fn encode(&self) -> [u8; HEADER] {
        let to = AddrWords::encode(self.to);
        let word = |ip| AddrWords::encode(SocketAddr::new(ip, 0)).ip;
        let ([a, b], [c, d]) = (word(self.offender), word(self.local));
        let mut out = [0; HEADER];
        out[..4].copy_from_slice(&(self.len as u32).to_le_bytes());
        out[4..7].copy_from_slice(&[self.reason.code(), self.kind, self.code]);
        out[8..12].copy_from_slice(&self.info.to_le_bytes());
        out[12..14].copy_from_slice(&to.port.to_le_bytes());
        let words = [to.ip[0], to.ip[1], a, b, c, d, self.time_ns];
        for (at, word) in out[16..72].chunks_exact_mut(8).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        out[72..74].copy_from_slice(&[self.tos, self.ttl]);
        out
    }

    /// Returns `None` for bytes that no engine writes.
    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Option<Returned> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let addr = |at: usize, port: u16| {
            let ip = [word(at), word(at + 8)];
            AddrWords { ip, port }.decode()
        };
        let len = word(0) as u32 as usize;
        if len > PAYLOAD_MAX {
            return None;
        }
        Some(Returned {
            reason: Reason::from_code(bytes[4])?,
            to: addr(16, u16::from_le_bytes([bytes[12], bytes[13]])),
            offender: addr(32, 0).ip(),
            kind: bytes[5],
            code: bytes[6],
            info: word(8) as u32,
            local: addr(48, 0).ip(),
            time_ns: word(64),
            tos: bytes[72],
            ttl: bytes[73],
            len,
        })
    }
}

/// The engine's side of one socket's ring.
#[derive(Debug)]
pub struct ReturnedRing {
    ring: ByteRing,
    head: u64,
}

impl ReturnedRing {
    /// `None`: there is no memory.
    pub fn new(end: &mut EngineEnd, sock: SockId) -> Option<ReturnedRing> {
        let ring = end.arena.allocate(RING_BYTES)?;
        end.cell(sock.index)?.set_returned_ring(ring.word(1));
        Some(ReturnedRing { ring, head: 0 })
    }

    /// Appends a returned datagram with the quoted part of its payload, and notifies the program.
    /// Returns `false` if there is no room.
    pub fn push(
        &mut self,
        end: &mut EngineEnd,
        sock: SockId,
        it: &Returned,
        payload: &[u8],
    ) -> bool {
        let payload = &payload[..payload.len().min(PAYLOAD_MAX)];
        let it = Returned {
            len: payload.len(),
            ..*it
        };
        let Some(tail) = end.cell(sock.index).map(|cell| cell.returned_tail()) else {
            return false;
        };
        if tail > self.head || self.head - tail > self.ring.size() as u64 {
            end.note_contradiction(Contradiction::Position);
            return false;
        }
        let upto = self.head + it.record_len() as u64;
        if upto - tail > self.ring.size() as u64 {
            return false;
        }
        self.ring.write(end.region(), self.head, &it.encode());
        self.ring
            .write(end.region(), self.head + HEADER as u64, payload);
        self.head = upto;
        if let Some(cell) = end.cell(sock.index) {
            cell.set_returned_head(upto);
        }
        end.changed(sock);
        true
    }

    /// The socket is closed.
    pub fn release(self, end: &mut EngineEnd) {
        end.arena.free(self.ring);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_invalid_bytes_are_refused() {
        let it = Returned {
            reason: Reason::Refused,
            to: "10.0.0.9:53".parse().unwrap(),
            offender: "fd00::1".parse().unwrap(),
            kind: 3,
            code: 4,
            info: 1400,
            local: "fd00::5".parse().unwrap(),
            time_ns: 7,
            tos: 0xc0,
            ttl: 63,
            len: 99,
        };
        assert_eq!(Returned::decode(&it.encode()), Some(it));
        assert_eq!(Returned::decode(&[0xff; HEADER]), None);
        assert_eq!(Returned::decode(&[0; HEADER]), None);
    }
}
