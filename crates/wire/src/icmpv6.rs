//! ICMPv6 messages (RFC 4443 2.1). Bodies of neighbour discovery and MLD are read in [`crate::ndp`]
//! and [`crate::mld`].

use core::net::Ipv6Addr;

use crate::checksum;
use crate::protocol;

/// Type, code, checksum and four bytes that depend on the type.
pub const HEADER_LEN: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmpv6Error {
    Malformed,
    Checksum,
}

/// The kind of a message; of neighbour discovery and MLD its type alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmpv6Kind {
    DestinationUnreachable {
        code: u8,
    },
    PacketTooBig {
        mtu: u32,
    },
    TimeExceeded {
        code: u8,
    },
    ParameterProblem {
        code: u8,
        pointer: u32,
    },
    /// Identifier and sequence number.
    EchoRequest([u8; 4]),
    EchoReply([u8; 4]),
    MldQuery([u8; 4]),
    MldReport([u8; 4]),
    RouterSolicitation,
    RouterAdvertisement([u8; 4]),
    NeighbourSolicitation,
    /// Flags.
    NeighbourAdvertisement([u8; 4]),
    Redirect,
    Other {
        kind: u8,
        code: u8,
    },
}

/// Returns whether a message belongs to neighbour discovery (RFC 4861 4).
pub fn is_discovery(message: &[u8]) -> bool {
    matches!(message.first(), Some(133..=137))
}

/// Codes of destination unreachable.
pub mod code {
    pub const NO_ROUTE: u8 = 0;
    pub const PROHIBITED: u8 = 1;
    pub const BEYOND_SCOPE: u8 = 2;
    pub const ADDRESS_UNREACHABLE: u8 = 3;
    pub const PORT_UNREACHABLE: u8 = 4;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmpv6Message<'a> {
    pub kind: Icmpv6Kind,
    /// The body after the header: echo data, the quoted packet, target and options.
    pub body: &'a [u8],
}

impl<'a> Icmpv6Message<'a> {
    /// Parses and verifies the checksum, which covers the addresses.
    pub fn parse(src: Ipv6Addr, dst: Ipv6Addr, bytes: &'a [u8]) -> Result<Self, Icmpv6Error> {
        let (header, body) = bytes
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(Icmpv6Error::Malformed)?;
        if !checksum::is_valid_l4_v6(src, dst, protocol::ICMPV6, bytes) {
            return Err(Icmpv6Error::Checksum);
        }
        let [kind, code, _, _, rest @ ..] = *header;
        let word = u32::from_be_bytes(rest);
        let kind = match (kind, code) {
            (1, code) => Icmpv6Kind::DestinationUnreachable { code },
            (2, _) => Icmpv6Kind::PacketTooBig { mtu: word },
            (3, code) => Icmpv6Kind::TimeExceeded { code },
            (4, code) => Icmpv6Kind::ParameterProblem {
                code,
                pointer: word,
            },
            (128, 0) => Icmpv6Kind::EchoRequest(rest),
            (129, 0) => Icmpv6Kind::EchoReply(rest),
            (130, 0) => Icmpv6Kind::MldQuery(rest),
            (133, 0) => Icmpv6Kind::RouterSolicitation,
            (134, 0) => Icmpv6Kind::RouterAdvertisement(rest),
            (135, 0) => Icmpv6Kind::NeighbourSolicitation,
            (136, 0) => Icmpv6Kind::NeighbourAdvertisement(rest),
            (137, 0) => Icmpv6Kind::Redirect,
            (143, 0) => Icmpv6Kind::MldReport(rest),
            (kind, code) => Icmpv6Kind::Other { kind, code },
        };
        Ok(Self { kind, body })
    }

    /// The header of this message with its checksum, which covers addresses and body.
    pub fn header(&self, src: Ipv6Addr, dst: Ipv6Addr) -> [u8; HEADER_LEN] {
        let (kind, code, rest) = match self.kind {
            Icmpv6Kind::DestinationUnreachable { code } => (1, code, [0; 4]),
            Icmpv6Kind::PacketTooBig { mtu } => (2, 0, mtu.to_be_bytes()),
            Icmpv6Kind::TimeExceeded { code } => (3, code, [0; 4]),
            Icmpv6Kind::ParameterProblem { code, pointer } => (4, code, pointer.to_be_bytes()),
            Icmpv6Kind::EchoRequest(rest) => (128, 0, rest),
            Icmpv6Kind::EchoReply(rest) => (129, 0, rest),
            Icmpv6Kind::MldQuery(rest) => (130, 0, rest),
            Icmpv6Kind::MldReport(rest) => (143, 0, rest),
            Icmpv6Kind::RouterSolicitation => (133, 0, [0; 4]),
            Icmpv6Kind::RouterAdvertisement(rest) => (134, 0, rest),
            Icmpv6Kind::NeighbourSolicitation => (135, 0, [0; 4]),
            Icmpv6Kind::NeighbourAdvertisement(rest) => (136, 0, rest),
            Icmpv6Kind::Redirect => (137, 0, [0; 4]),
            Icmpv6Kind::Other { kind, code } => (kind, code, [0; 4]),
        };
        let [a, b, c, d] = rest;
        let mut header = [kind, code, 0, 0, a, b, c, d];
        let len = HEADER_LEN + self.body.len();
        let mut sum = checksum::pseudo_v6(src, dst, protocol::ICMPV6, len as u32);
        sum.add_bytes(&header);
        sum.add_bytes(self.body);
        header[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        header
    }
}

impl Icmpv6Kind {
    /// RFC 4443 2.1: types below 128 are errors.
    pub const fn is_error(&self) -> bool {
        match *self {
            Self::DestinationUnreachable { .. }
            | Self::PacketTooBig { .. }
            | Self::TimeExceeded { .. }
            | Self::ParameterProblem { .. } => true,
            Self::Other { kind, .. } => kind < 128,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const A: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    const B: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

    fn bytes_of(message: &Icmpv6Message<'_>) -> Vec<u8> {
        [&message.header(A, B)[..], message.body].concat()
    }

    #[test]
    fn each_kind_round_trips() {
        let kinds = [
            Icmpv6Kind::DestinationUnreachable {
                code: code::PORT_UNREACHABLE,
            },
            Icmpv6Kind::PacketTooBig { mtu: 70_000 },
            Icmpv6Kind::TimeExceeded { code: 0 },
            Icmpv6Kind::ParameterProblem {
                code: 1,
                pointer: 40,
            },
            Icmpv6Kind::EchoRequest([1, 2, 3, 4]),
            Icmpv6Kind::EchoReply([1, 2, 3, 4]),
            Icmpv6Kind::MldQuery([1, 2, 3, 4]),
            Icmpv6Kind::MldReport([0, 0, 0, 1]),
            Icmpv6Kind::RouterSolicitation,
            Icmpv6Kind::RouterAdvertisement([64, 0, 7, 8]),
            Icmpv6Kind::NeighbourSolicitation,
            Icmpv6Kind::NeighbourAdvertisement([0x60, 0, 0, 0]),
            Icmpv6Kind::Redirect,
            Icmpv6Kind::Other { kind: 200, code: 3 },
        ];
        for kind in kinds {
            let message = Icmpv6Message {
                kind,
                body: b"odd body",
            };
            assert_eq!(Icmpv6Message::parse(A, B, &bytes_of(&message)), Ok(message));
            assert_eq!(
                Icmpv6Message::parse(A, A, &bytes_of(&message)),
                Err(Icmpv6Error::Checksum),
                "another address"
            );
        }
    }

    #[test]
    fn errors_are_the_types_below_128() {
        // RFC 4443 2.1.
        assert!(Icmpv6Kind::PacketTooBig { mtu: 0 }.is_error());
        assert!(Icmpv6Kind::Other { kind: 100, code: 0 }.is_error());
        assert!(!Icmpv6Kind::EchoRequest([0; 4]).is_error());
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_a_wrong_checksum(
            body in proptest::collection::vec(any::<u8>(), 0..70),
            at: usize,
        ) {
            let kind = Icmpv6Kind::EchoRequest([0; 4]);
            let mut bytes = bytes_of(&Icmpv6Message { kind, body: &body });
            let at = at % (bytes.len() * 8);
            bytes[at / 8] ^= 1 << (at % 8);
            prop_assert_eq!(Icmpv6Message::parse(A, B, &bytes), Err(Icmpv6Error::Checksum));
        }

        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = Icmpv6Message::parse(A, B, &bytes);
        }
    }
}
