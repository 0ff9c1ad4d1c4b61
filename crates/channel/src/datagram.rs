//! Layout of datagrams in byte rings: a header of fixed length, the payload, padding to 8 bytes.
//!
//! ```text
//! 0 payload length  4 peer's port  6 own port  8 peer's address  24 own address
//! 40 what is there  41 tos  42 ttl  43 class  44 segment  48 time  56 lost, or mark  60 link
//! 62 zero
//! ```

use std::net::SocketAddr;
use std::num::NonZeroU16;

use crate::addr::AddrWords;

/// Length of a header in either direction.
pub(crate) const HEADER: usize = 64;
/// Longest payload of a datagram (over IPv6).
pub(crate) const PAYLOAD_MAX: usize = 65_527;

/// Control data of a datagram. When sending, the engine chooses absent values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Received: the sender. To send: the destination, if not the connected one.
    pub peer: Option<SocketAddr>,
    /// Received: where it was sent to. To send: the address that it comes from; the port means
    /// nothing.
    pub local: Option<SocketAddr>,
    /// Type of service, or traffic class.
    pub tos: Option<u8>,
    /// Time to live, or hop limit.
    pub ttl: Option<u8>,
    /// Several datagrams of this size, the last of which may be shorter, as one.
    pub segment: Option<NonZeroU16>,
    /// Time at which it was received, CLOCK_MONOTONIC nanoseconds.
    pub time_ns: u64,
    /// Datagrams that the socket has lost so far for want of room.
    pub lost: u32,
    /// The number of the link by which it arrived, or is to leave.
    pub link: Option<u16>,
    /// To send: the mark by which rules choose its table (SO_MARK), if not the socket's.
    pub mark: Option<u32>,
    /// To send: its class (SO_PRIORITY) plus one, or 0 for that of its type of service; if not the
    /// socket's.
    pub class: Option<u8>,
}

/// Bytes of an envelope outside of a ring.
pub const ENVELOPE_LEN: usize = HEADER;

impl Envelope {
    /// For another process of the program, with the payload's length.
    #[must_use]
    pub fn to_bytes(&self, len: usize) -> [u8; ENVELOPE_LEN] {
        let envelope = *self;
        Header { len, envelope }.encode()
    }

    /// Decodes the output of [`Envelope::to_bytes`]; `None` if the length is impossible.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; ENVELOPE_LEN]) -> Option<(Envelope, usize)> {
        Header::decode(bytes).map(|header| (header.envelope, header.len))
    }
}

/// One datagram's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) len: usize,
    pub(crate) envelope: Envelope,
}

const HAS_PEER: u8 = 1;
const HAS_LOCAL: u8 = 2;
const HAS_TOS: u8 = 4;
const HAS_TTL: u8 = 8;
/// A datagram to be sent has a mark (SO_MARK). A received one has the count of lost ones there.
const HAS_MARK: u8 = 16;

impl Header {
    /// Bytes of the whole record.
    pub(crate) fn record_len(&self) -> usize {
        HEADER + self.len.next_multiple_of(8)
    }

    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let Envelope {
            peer,
            local,
            tos,
            ttl,
            segment,
            time_ns,
            lost,
            link,
            mark,
            class,
        } = self.envelope;
        let flag = |is_there: bool, bit: u8| if is_there { bit } else { 0 };
        let mut out = [0; HEADER];
        let [near, far] =
            [local, peer].map(|addr| addr.map_or(AddrWords::ABSENT, AddrWords::encode));
        out[..4].copy_from_slice(&(self.len as u32).to_le_bytes());
        out[4..6].copy_from_slice(&far.port.to_le_bytes());
        out[6..8].copy_from_slice(&near.port.to_le_bytes());
        let words = [far.ip[0], far.ip[1], near.ip[0], near.ip[1]];
        for (at, word) in out[8..40].chunks_exact_mut(8).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        out[40] = flag(peer.is_some(), HAS_PEER)
            | flag(local.is_some(), HAS_LOCAL)
            | flag(tos.is_some(), HAS_TOS)
            | flag(ttl.is_some(), HAS_TTL)
            | flag(mark.is_some(), HAS_MARK);
        out[41] = tos.unwrap_or(0);
        out[42] = ttl.unwrap_or(0);
        out[43] = class.map_or(0, |class| class.saturating_add(1));
        out[44..46].copy_from_slice(&segment.map_or(0, NonZeroU16::get).to_le_bytes());
        out[48..56].copy_from_slice(&time_ns.to_le_bytes());
        out[56..60].copy_from_slice(&mark.unwrap_or(lost).to_le_bytes());
        // No VLAN has the number that would make this overflow.
        let link = link.map_or(0, |link| link.wrapping_add(1));
        out[60..62].copy_from_slice(&link.to_le_bytes());
        out
    }

    /// `None` for a length that no datagram has.
    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Option<Header> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let first = word(0);
        let len = first as u32 as usize;
        if len > PAYLOAD_MAX {
            return None;
        }
        let addr = |at: usize, shift: u32| {
            AddrWords {
                ip: [word(at), word(at + 8)],
                port: (first >> shift) as u16,
            }
            .decode()
        };
        let has = |flag: u8| bytes[40] & flag != 0;
        let envelope = Envelope {
            peer: has(HAS_PEER).then(|| addr(8, 32)),
            local: has(HAS_LOCAL).then(|| addr(24, 48)),
            tos: has(HAS_TOS).then_some(bytes[41]),
            ttl: has(HAS_TTL).then_some(bytes[42]),
            segment: NonZeroU16::new(u16::from_le_bytes([bytes[44], bytes[45]])),
            time_ns: word(48),
            lost: if has(HAS_MARK) { 0 } else { word(56) as u32 },
            mark: has(HAS_MARK).then_some(word(56) as u32),
            link: u16::from_le_bytes([bytes[60], bytes[61]]).checked_sub(1),
            class: bytes[43].checked_sub(1),
        };
        Some(Header { len, envelope })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_and_invalid_ones_are_refused() {
        let header = Header {
            len: 1473,
            envelope: Envelope {
                peer: Some("10.0.0.9:53".parse().unwrap()),
                local: Some("10.0.0.5:4000".parse().unwrap()),
                tos: Some(0),
                ttl: Some(255),
                segment: NonZeroU16::new(1200),
                time_ns: u64::MAX - 1,
                lost: 7,
                link: Some(4096),
                mark: None,
                class: Some(7),
            },
        };
        assert_eq!(Header::decode(&header.encode()), Some(header));
        let marked = Header {
            len: 1,
            envelope: Envelope {
                mark: Some(0),
                class: Some(0),
                ..Envelope::default()
            },
        };
        assert_eq!(Header::decode(&marked.encode()), Some(marked));
        let bare = Header {
            len: 0,
            envelope: Envelope::default(),
        };
        assert_eq!(Header::decode(&bare.encode()), Some(bare));
        assert_eq!(bare.record_len(), HEADER);
        assert_eq!(Header::decode(&[0xff; HEADER]), None);
    }
}
