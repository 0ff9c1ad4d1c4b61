//! The IP header around a script's packet, of either version.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use slipstack_wire::ipv4::{self, Ipv4Header, Ipv4Packet};
use slipstack_wire::ipv6::{self, Ipv6Header, Ipv6Packet};
use slipstack_wire::{checksum, protocol};

/// Source and destination, which are of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl Pair {
    pub fn new(src: IpAddr, dst: IpAddr) -> Self {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Self::V4(src, dst),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Self::V6(src, dst),
            (IpAddr::V4(src), IpAddr::V6(dst)) => Self::V6(src.to_ipv6_mapped(), dst),
            (IpAddr::V6(src), IpAddr::V4(dst)) => Self::V6(src, dst.to_ipv6_mapped()),
        }
    }

    pub fn src(self) -> IpAddr {
        match self {
            Self::V4(src, _) => src.into(),
            Self::V6(src, _) => src.into(),
        }
    }

    pub fn dst(self) -> IpAddr {
        match self {
            Self::V4(_, dst) => dst.into(),
            Self::V6(_, dst) => dst.into(),
        }
    }

    pub fn header_len(self) -> usize {
        match self {
            Self::V4(..) => ipv4::HEADER_LEN,
            Self::V6(..) => ipv6::HEADER_LEN,
        }
    }

    /// A whole packet.
    pub fn packet(self, tos: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let head = self.header_len();
        let mut bytes = vec![0; head + payload.len()];
        match self {
            Self::V4(src, dst) => Ipv4Header {
                tos,
                total_len: bytes.len() as u16,
                identification: 0,
                dont_fragment: true,
                ttl: 64,
                protocol,
                src,
                dst,
            }
            .emit(&mut bytes),
            Self::V6(src, dst) => Ipv6Header {
                traffic_class: tos,
                flow_label: 0,
                payload_len: payload.len() as u16,
                next_header: protocol,
                hop_limit: 64,
                src,
                dst,
            }
            .emit(&mut bytes),
        }
        bytes[head..].copy_from_slice(payload);
        bytes
    }

    /// Writes the checksum of a segment or datagram, which covers the addresses.
    pub fn seal(self, bytes: &mut [u8], at: u16, protocol: u8) {
        let len = bytes.len() as u32;
        let mut sum = match self {
            Self::V4(src, dst) => checksum::pseudo_v4(src, dst, protocol, len),
            Self::V6(src, dst) => checksum::pseudo_v6(src, dst, protocol, len),
        };
        sum.add_bytes(bytes);
        let at = usize::from(at);
        bytes[at..at + 2].copy_from_slice(&sum.finish().to_be_bytes());
    }
}

/// The contents of a sent packet.
pub struct Inside<'a> {
    pub pair: Pair,
    pub tos: u8,
    pub protocol: u8,
    pub payload: &'a [u8],
}

impl Inside<'_> {
    pub fn has_sum(&self) -> bool {
        match self.pair {
            Pair::V4(src, dst) => checksum::is_valid_l4_v4(src, dst, self.protocol, self.payload),
            Pair::V6(src, dst) => checksum::is_valid_l4_v6(src, dst, self.protocol, self.payload),
        }
    }

    /// Returns whether the packet belongs to the link: neighbour discovery or group management.
    pub fn is_of_the_link(&self) -> bool {
        let is_kind = |kind: u8| matches!(kind, 130..=137 | 143);
        let is_listening = self.protocol == 0;
        matches!(self.pair, Pair::V6(..))
            && (is_listening
                || self.protocol == protocol::ICMPV6
                    && self.payload.first().copied().is_some_and(is_kind))
    }
}

/// Opens a packet.
///
/// # Errors
/// The defect of its header.
pub fn open(bytes: &[u8]) -> Result<Inside<'_>, String> {
    if bytes.first().is_some_and(|first| first >> 4 == 6) {
        let packet = Ipv6Packet::parse(bytes).ok_or("IPv6 header")?;
        let header = packet.header;
        return Ok(Inside {
            pair: Pair::V6(header.src, header.dst),
            tos: header.traffic_class,
            protocol: header.next_header,
            payload: packet.payload,
        });
    }
    let packet = Ipv4Packet::parse(bytes).map_err(|error| format!("IPv4 header: {error:?}"))?;
    let header = packet.header;
    Ok(Inside {
        pair: Pair::V4(header.src, header.dst),
        tos: header.tos,
        protocol: header.protocol,
        payload: packet.payload,
    })
}
