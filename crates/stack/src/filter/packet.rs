//! The fields of a packet that a filter looks at.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use slipstack_wire::ipv4;
use slipstack_wire::ipv6::Ipv6Packet;
use slipstack_wire::ipv6_extensions::{self as extensions, Walked};
use slipstack_wire::tcp::TcpFlags;
use slipstack_wire::{icmpv6, protocol};

use super::ranges::V4;
use crate::bound;
use slipstack_terms::FilterDirection;

/// In the place of the port of a packet that has none.
pub const NO_PORT: u32 = 1 << 16;

/// Offset of the flags in a TCP header.
const FLAGS_AT: usize = 13;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// An address as a number, so that a network is a range.
#[inline]
pub fn value(ip: IpAddr) -> u128 {
    bound::bits(ip).swap_bytes()
}

/// The properties by which rules go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub direction: FilterDirection,
    /// As numbers, IPv4 in its mapped form.
    pub src: u128,
    pub dst: u128,
    pub is_v6: bool,
    pub protocol: u8,
    /// [`NO_PORT`] in later fragments and where the protocol has none.
    pub ports: (u32, u32),
    /// Flags of a TCP segment.
    pub flags: TcpFlags,
    /// Type of an ICMP or ICMPv6 message.
    pub icmp_type: Option<u8>,
    pub is_later_fragment: bool,
    /// TTL, or hop limit.
    pub ttl: u8,
    pub link: u16,
    /// Length of the IP packet.
    pub len: u32,
}

/// Position of the transport's header, and its protocol.
struct Upper<'a> {
    protocol: u8,
    bytes: &'a [u8],
    is_later_fragment: bool,
}

impl Packet {
    #[inline]
    pub fn has_ports(&self) -> bool {
        self.ports.0 != NO_PORT
    }

    #[inline]
    pub fn is_established(&self) -> bool {
        self.flags.intersects(TcpFlags::ACK | TcpFlags::RST)
    }

    #[inline]
    pub fn is_setup(&self) -> bool {
        self.flags.is_syn() && !self.flags.is_ack()
    }

    /// Returns the two-valued fields as a number: direction, family, established, setup.
    #[inline]
    pub fn kind(&self) -> usize {
        usize::from(self.direction == FilterDirection::Out)
            | usize::from(self.is_v6) << 1
            | usize::from(self.is_established()) << 2
            | usize::from(self.is_setup()) << 3
    }

    pub fn src_ip(&self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from_bits(self.src)).to_canonical()
    }

    /// Makes a packet whose headers have only addresses and ports.
    pub fn plain(
        direction: FilterDirection,
        protocol: u8,
        src: SocketAddr,
        dst: SocketAddr,
    ) -> Packet {
        Packet {
            direction,
            src: value(src.ip()),
            dst: value(dst.ip()),
            is_v6: src.is_ipv6(),
            protocol,
            ports: (src.port().into(), dst.port().into()),
            flags: TcpFlags::NONE,
            icmp_type: None,
            is_later_fragment: false,
            ttl: 0,
            link: 0,
            len: 0,
        }
    }

    /// Reads an IP packet, or its headers. `None`: it is none, or one of neighbour discovery,
    /// without which nothing would be reached.
    #[inline]
    pub fn parse(direction: FilterDirection, link: u16, is_v6: bool, ip: &[u8]) -> Option<Packet> {
        match is_v6 {
            false => Self::parse_v4(direction, link, ip),
            true => Self::parse_v6(direction, link, ip),
        }
    }

    #[inline]
    fn parse_v4(direction: FilterDirection, link: u16, ip: &[u8]) -> Option<Packet> {
        let h = ip.first_chunk::<{ ipv4::HEADER_LEN }>()?;
        let header_len = usize::from(h[0] & 0x0f) * 4;
        let total_len = u16::from_be_bytes([h[2], h[3]]);
        if h[0] >> 4 != 4 || header_len < ipv4::HEADER_LEN || usize::from(total_len) < header_len {
            return None;
        }
        let end = usize::from(total_len).min(ip.len());
        let address = |at: usize| {
            V4 | u128::from(u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]))
        };
        let packet = Packet {
            direction,
            src: address(12),
            dst: address(16),
            is_v6: false,
            protocol: h[9],
            ports: (NO_PORT, NO_PORT),
            flags: TcpFlags::NONE,
            icmp_type: None,
            is_later_fragment: u16::from_be_bytes([h[6], h[7]]) & FRAGMENT_OFFSET != 0,
            ttl: h[8],
            link,
            len: ip.len() as u32,
        };
        let upper = Upper {
            protocol: h[9],
            bytes: ip.get(header_len..end)?,
            is_later_fragment: packet.is_later_fragment,
        };
        Some(packet.with_upper(&upper))
    }

    fn parse_v6(direction: FilterDirection, link: u16, ip: &[u8]) -> Option<Packet> {
        let packet = Ipv6Packet::parse_quoted(ip)?;
        let header = &packet.header;
        let upper = match extensions::walk(header.next_header, packet.payload) {
            Ok(Walked::Whole(upper)) => Upper {
                protocol: upper.protocol,
                bytes: upper.payload,
                is_later_fragment: false,
            },
            Ok(Walked::Fragment(_)) | Err(_) => Upper {
                protocol: header.next_header,
                bytes: &[],
                is_later_fragment: true,
            },
        };
        if upper.protocol == protocol::ICMPV6 && icmpv6::is_discovery(upper.bytes) {
            return None;
        }
        let packet = Packet {
            direction,
            src: value(header.src.into()),
            dst: value(header.dst.into()),
            is_v6: true,
            protocol: upper.protocol,
            ports: (NO_PORT, NO_PORT),
            flags: TcpFlags::NONE,
            icmp_type: None,
            is_later_fragment: upper.is_later_fragment,
            ttl: header.hop_limit,
            link,
            len: ip.len() as u32,
        };
        Some(packet.with_upper(&upper))
    }

    #[inline(always)]
    fn with_upper(mut self, upper: &Upper<'_>) -> Packet {
        if upper.is_later_fragment {
            return self;
        }
        match upper.protocol {
            protocol::TCP | protocol::UDP => {
                if let Some(&[a, b, c, d]) = upper.bytes.first_chunk::<4>() {
                    let port = |high, low| u32::from(u16::from_be_bytes([high, low]));
                    self.ports = (port(a, b), port(c, d));
                    let flags = upper.bytes.get(FLAGS_AT);
                    let flags = flags.filter(|_| upper.protocol == protocol::TCP);
                    self.flags = TcpFlags(flags.copied().unwrap_or(0));
                }
            }
            protocol::ICMP | protocol::ICMPV6 => self.icmp_type = upper.bytes.first().copied(),
            _ => {}
        }
        self
    }
}
