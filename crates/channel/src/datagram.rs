//! How datagrams lie in byte rings: a header of fixed length, the payload, padding to 8 bytes.

use std::net::SocketAddr;

use crate::addr::AddrWords;

/// Length of a header in either direction.
pub(crate) const HEADER: usize = 48;
/// Longest payload of a datagram, which IPv6 carries.
pub(crate) const PAYLOAD_MAX: usize = 65_527;

/// One datagram's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) len: usize,
    /// Received: the sender. To send: the destination, if not the connected one.
    pub(crate) peer: Option<SocketAddr>,
    /// Received: where it was sent to.
    pub(crate) local: Option<SocketAddr>,
}

impl Header {
    /// Bytes of the whole record.
    pub(crate) fn record_len(&self) -> usize {
        HEADER + self.len.next_multiple_of(8)
    }

    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        let absent = AddrWords {
            ip: [0, 0],
            port: 0,
        };
        let peer = self.peer.map_or(absent, AddrWords::encode);
        let local = self.local.map_or(absent, AddrWords::encode);
        out[..4].copy_from_slice(&(self.len as u32).to_le_bytes());
        out[4..6].copy_from_slice(&peer.port.to_le_bytes());
        out[6..8].copy_from_slice(&local.port.to_le_bytes());
        let words = [peer.ip[0], peer.ip[1], local.ip[0], local.ip[1]];
        for (at, word) in out[8..40].chunks_exact_mut(8).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        out[40] = u8::from(self.peer.is_some()) | u8::from(self.local.is_some()) << 1;
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
        Some(Header {
            len,
            peer: (bytes[40] & 1 == 1).then(|| addr(8, 32)),
            local: (bytes[40] & 2 == 2).then(|| addr(24, 48)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_their_encoding_and_lies_are_refused() {
        let header = Header {
            len: 1473,
            peer: Some("10.0.0.9:53".parse().unwrap()),
            local: Some("10.0.0.5:4000".parse().unwrap()),
        };
        assert_eq!(Header::decode(&header.encode()), Some(header));
        let bare = Header {
            len: 0,
            peer: None,
            local: None,
        };
        assert_eq!(Header::decode(&bare.encode()), Some(bare));
        assert_eq!(bare.record_len(), HEADER);
        assert_eq!(Header::decode(&[0xff; HEADER]), None);
    }
}
