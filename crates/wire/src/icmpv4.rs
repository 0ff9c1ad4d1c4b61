//! ICMP messages (RFC 792, RFC 1191).

use crate::checksum;

pub const HEADER_LEN: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    Malformed,
    Checksum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpKind {
    /// Identifier and sequence number as they are.
    EchoRequest([u8; 4]),
    EchoReply([u8; 4]),
    DestinationUnreachable {
        code: u8,
        mtu: u16,
    },
    TimeExceeded {
        code: u8,
    },
    ParameterProblem {
        code: u8,
    },
    Other {
        kind: u8,
        code: u8,
    },
}

/// Codes of destination unreachable that we send or act on.
pub mod code {
    pub const NET_UNREACHABLE: u8 = 0;
    pub const HOST_UNREACHABLE: u8 = 1;
    pub const PROTOCOL_UNREACHABLE: u8 = 2;
    pub const PORT_UNREACHABLE: u8 = 3;
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    pub const ADMIN_PROHIBITED: u8 = 13;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpMessage<'a> {
    pub kind: IcmpKind,
    /// Echo data, or the quoted packet of an error.
    pub body: &'a [u8],
}

impl<'a> IcmpMessage<'a> {
    /// Parses and verifies the checksum.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, IcmpError> {
        let (header, body) = bytes
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(IcmpError::Malformed)?;
        if !checksum::is_valid(bytes) {
            return Err(IcmpError::Checksum);
        }
        let [kind, code, _, _, a, b, c, d] = *header;
        let kind = match (kind, code) {
            (0, 0) => IcmpKind::EchoReply([a, b, c, d]),
            (8, 0) => IcmpKind::EchoRequest([a, b, c, d]),
            (3, code) => IcmpKind::DestinationUnreachable {
                code,
                mtu: u16::from_be_bytes([c, d]),
            },
            (11, code) => IcmpKind::TimeExceeded { code },
            (12, code) => IcmpKind::ParameterProblem { code },
            (kind, code) => IcmpKind::Other { kind, code },
        };
        Ok(Self { kind, body })
    }

    /// The header of this message with its checksum, which covers the body.
    pub fn header(&self) -> [u8; HEADER_LEN] {
        let (kind, code, rest) = match self.kind {
            IcmpKind::EchoReply(rest) => (0, 0, rest),
            IcmpKind::EchoRequest(rest) => (8, 0, rest),
            IcmpKind::DestinationUnreachable { code, mtu } => {
                let [c, d] = mtu.to_be_bytes();
                (3, code, [0, 0, c, d])
            }
            IcmpKind::TimeExceeded { code } => (11, code, [0; 4]),
            IcmpKind::ParameterProblem { code } => (12, code, [0; 4]),
            IcmpKind::Other { kind, code } => (kind, code, [0; 4]),
        };
        let [a, b, c, d] = rest;
        let mut header = [kind, code, 0, 0, a, b, c, d];
        let mut sum = checksum::Sum::ZERO;
        sum.add_bytes(&header);
        sum.add_bytes(self.body);
        header[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn bytes_of(message: &IcmpMessage<'_>) -> Vec<u8> {
        [&message.header()[..], message.body].concat()
    }

    #[test]
    fn each_kind_round_trips() {
        let kinds = [
            IcmpKind::EchoRequest([1, 2, 3, 4]),
            IcmpKind::EchoReply([1, 2, 3, 4]),
            IcmpKind::DestinationUnreachable {
                code: code::FRAGMENTATION_NEEDED,
                mtu: 1400,
            },
            IcmpKind::TimeExceeded { code: 0 },
            IcmpKind::ParameterProblem { code: 0 },
            IcmpKind::Other { kind: 13, code: 0 },
        ];
        for kind in kinds {
            let message = IcmpMessage {
                kind,
                body: b"odd body",
            };
            assert_eq!(IcmpMessage::parse(&bytes_of(&message)), Ok(message));
        }
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_a_wrong_checksum(
            body in proptest::collection::vec(any::<u8>(), 0..70),
            at: usize,
        ) {
            let kind = IcmpKind::EchoRequest([0; 4]);
            let mut bytes = bytes_of(&IcmpMessage { kind, body: &body });
            let at = at % (bytes.len() * 8);
            bytes[at / 8] ^= 1 << (at % 8);
            prop_assert_eq!(IcmpMessage::parse(&bytes), Err(IcmpError::Checksum));
        }

        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = IcmpMessage::parse(&bytes);
        }
    }
}
