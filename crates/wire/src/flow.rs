//! The flow of a whole frame, of either family: for those who pass frames on without a stack.

use core::net::{IpAddr, SocketAddr};

use crate::ethernet::{EtherType, EthernetHeader};
use crate::icmpv4::HEADER_LEN as ICMP_HEADER_LEN;
use crate::ipv4::Ipv4Packet;
use crate::ipv6::Ipv6Packet;
use crate::ipv6_extensions::{self as extensions, Walked};
use crate::protocol;

/// TCP and UDP begin with their ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFlow<'a> {
    /// TCP or UDP.
    pub protocol: u8,
    pub src: SocketAddr,
    pub dst: SocketAddr,
    /// From the ports on, as far as it is there.
    pub transport: &'a [u8],
}

impl<'a> FrameFlow<'a> {
    /// `None`: no whole TCP or UDP packet.
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let (header, payload) = EthernetHeader::parse(frame)?;
        match header.ethertype {
            EtherType::IPV4 => {
                let packet = Ipv4Packet::parse(payload).ok()?;
                let ends = (packet.header.src.into(), packet.header.dst.into());
                if packet.is_fragment {
                    return None;
                }
                Self::new(packet.header.protocol, ends, packet.payload)
            }
            EtherType::IPV6 => {
                let packet = Ipv6Packet::parse(payload)?;
                let ends = (packet.header.src.into(), packet.header.dst.into());
                match extensions::walk(packet.header.next_header, packet.payload) {
                    Ok(Walked::Whole(upper)) => Self::new(upper.protocol, ends, upper.payload),
                    Ok(Walked::Fragment(_)) | Err(_) => None,
                }
            }
            _ => None,
        }
    }

    /// The flow of the packet that an ICMP error of either version quotes; its source is who gets
    /// the error.
    pub fn parse_quoted(frame: &'a [u8]) -> Option<Self> {
        let (header, payload) = EthernetHeader::parse(frame)?;
        match header.ethertype {
            EtherType::IPV4 => {
                let packet = Ipv4Packet::parse(payload).ok()?;
                let is_error = matches!(packet.payload.first(), Some(3 | 11 | 12));
                if packet.header.protocol != protocol::ICMP || packet.is_fragment || !is_error {
                    return None;
                }
                let quoted = Ipv4Packet::parse_quoted(packet.payload.get(ICMP_HEADER_LEN..)?);
                let quoted = quoted.ok().filter(|quoted| quoted.fragment_offset == 0)?;
                let ends = (quoted.header.src.into(), quoted.header.dst.into());
                Self::new(quoted.header.protocol, ends, quoted.payload)
            }
            EtherType::IPV6 => {
                let packet = Ipv6Packet::parse(payload)?;
                let Ok(Walked::Whole(upper)) =
                    extensions::walk(packet.header.next_header, packet.payload)
                else {
                    return None;
                };
                let is_error = matches!(upper.payload.first(), Some(1..=4));
                if upper.protocol != protocol::ICMPV6 || !is_error {
                    return None;
                }
                let body = upper.payload.get(crate::icmpv6::HEADER_LEN..)?;
                let quoted = Ipv6Packet::parse_quoted(body)?;
                let (src, dst) = (quoted.header.src, quoted.header.dst);
                let (protocol, transport) =
                    extensions::find_quoted(quoted.header.next_header, quoted.payload)?;
                Self::new(protocol, (src.into(), dst.into()), transport)
            }
            _ => None,
        }
    }

    fn new(protocol: u8, (src, dst): (IpAddr, IpAddr), transport: &'a [u8]) -> Option<Self> {
        if !matches!(protocol, protocol::TCP | protocol::UDP) {
            return None;
        }
        let &[a, b, c, d] = transport.first_chunk::<4>()?;
        Some(Self {
            protocol,
            src: SocketAddr::new(src, u16::from_be_bytes([a, b])),
            dst: SocketAddr::new(dst, u16::from_be_bytes([c, d])),
            transport,
        })
    }

    /// The flags of a TCP segment that is there as far as them.
    pub fn tcp_flags(&self) -> Option<u8> {
        (self.protocol == protocol::TCP)
            .then(|| self.transport.get(13).copied())
            .flatten()
    }
}
