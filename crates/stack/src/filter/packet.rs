//! What a filter looks at in a packet.

use core::net::IpAddr;

use slipstack_wire::ipv4::Ipv4Packet;
use slipstack_wire::ipv6::Ipv6Packet;
use slipstack_wire::ipv6_extensions::{self as extensions, Walked};
use slipstack_wire::tcp::TcpFlags;
use slipstack_wire::{icmpv6, protocol};

use super::Direction;
use crate::bound;

/// In the place of the port of a packet that has none.
pub const NO_PORT: u32 = 1 << 16;

/// Where the flags are in a TCP header.
const FLAGS_AT: usize = 13;

/// An address as a number, so that a network is a range.
#[inline]
pub fn value(ip: IpAddr) -> u128 {
    bound::bits(ip).swap_bytes()
}

/// The properties by which rules go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub direction: Direction,
    /// As numbers, IPv4 in its mapped form.
    pub src: u128,
    pub dst: u128,
    pub is_v6: bool,
    pub protocol: u8,
    /// [`NO_PORT`] in later fragments and where the protocol has none.
    pub ports: (u32, u32),
    pub is_established: bool,
    pub is_setup: bool,
    pub vlan: u16,
    /// Of the IP packet.
    pub len: u32,
}

impl Packet {
    pub fn has_ports(&self) -> bool {
        self.ports.0 != NO_PORT
    }

    /// Reads an IP packet, or its headers. `None`: it is none, or one of neighbour discovery, without which nothing
    /// would be reached.
    pub fn parse(direction: Direction, vlan: u16, is_v6: bool, ip: &[u8]) -> Option<Packet> {
        let (src, dst, number, transport, is_later): (IpAddr, IpAddr, u8, &[u8], bool) = match is_v6
        {
            false => {
                let packet = Ipv4Packet::parse_quoted(ip).ok()?;
                let header = &packet.header;
                let is_later = packet.fragment_offset != 0;
                (
                    header.src.into(),
                    header.dst.into(),
                    header.protocol,
                    packet.payload,
                    is_later,
                )
            }
            true => {
                let packet = Ipv6Packet::parse_quoted(ip)?;
                let (src, dst) = (packet.header.src.into(), packet.header.dst.into());
                match extensions::walk(packet.header.next_header, packet.payload) {
                    Ok(Walked::Whole(upper)) => (src, dst, upper.protocol, upper.payload, false),
                    Ok(Walked::Fragment(_)) | Err(_) => {
                        (src, dst, packet.header.next_header, &[][..], true)
                    }
                }
            }
        };
        if is_v6 && number == protocol::ICMPV6 && icmpv6::is_discovery(transport) {
            return None;
        }
        let mut packet = Packet {
            direction,
            src: value(src),
            dst: value(dst),
            is_v6,
            protocol: number,
            ports: (NO_PORT, NO_PORT),
            is_established: false,
            is_setup: false,
            vlan,
            len: ip.len() as u32,
        };
        let has_ports = matches!(number, protocol::TCP | protocol::UDP) && !is_later;
        if let Some(&[a, b, c, d]) = transport.first_chunk::<4>()
            && has_ports
        {
            let port = |high, low| u32::from(u16::from_be_bytes([high, low]));
            packet.ports = (port(a, b), port(c, d));
            let flags = transport.get(FLAGS_AT).filter(|_| number == protocol::TCP);
            let flags = TcpFlags(flags.copied().unwrap_or(0));
            packet.is_established = flags.is_ack() || flags.is_rst();
            packet.is_setup = flags.is_syn() && !flags.is_ack();
        }
        Some(packet)
    }
}
