//! A frame that carries a fragment, for code that passes frames on without a stack.

use core::net::{IpAddr, SocketAddr};

use crate::ethernet::{EtherType, EthernetHeader};
use crate::ipv4::Ipv4Packet;
use crate::ipv6::Ipv6Packet;
use crate::ipv6_extensions::{self as extensions, Walked};
use crate::protocol;

/// Which packet a fragment is a part of; the same for all its fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketId {
    pub src: IpAddr,
    pub dst: IpAddr,
    /// 0 in IPv6, where it does not count (RFC 8200 4.5).
    pub protocol: u8,
    pub identification: u32,
}

/// The facts known of a fragment without the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFragment {
    /// The one that begins with the ports: protocol, source and destination.
    First(PacketId, u8, SocketAddr, SocketAddr),
    /// The first one of something without ports. In IPv6 the later ones do not say so.
    Portless(PacketId),
    Later(PacketId),
}

impl FrameFragment {
    /// `None`: no fragment, or in IPv4 one of something else than TCP and UDP.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (header, payload) = EthernetHeader::parse(frame)?;
        match header.ethertype {
            EtherType::IPV4 => {
                let packet = Ipv4Packet::parse(payload).ok()?;
                let number = packet.header.protocol;
                if !packet.is_fragment || !matches!(number, protocol::TCP | protocol::UDP) {
                    return None;
                }
                let id = PacketId {
                    src: packet.header.src.into(),
                    dst: packet.header.dst.into(),
                    protocol: number,
                    identification: packet.header.identification.into(),
                };
                if packet.fragment_offset != 0 {
                    return Some(Self::Later(id));
                }
                Self::first(id, number, packet.payload)
            }
            EtherType::IPV6 => {
                let packet = Ipv6Packet::parse(payload)?;
                let Ok(Walked::Fragment(fragment)) =
                    extensions::walk(packet.header.next_header, packet.payload)
                else {
                    return None;
                };
                let id = PacketId {
                    src: packet.header.src.into(),
                    dst: packet.header.dst.into(),
                    protocol: 0,
                    identification: fragment.identification,
                };
                if fragment.offset != 0 {
                    return Some(Self::Later(id));
                }
                let (number, transport) =
                    extensions::find_quoted(fragment.next_header, fragment.payload)?;
                Self::first(id, number, transport)
            }
            _ => None,
        }
    }

    fn first(id: PacketId, number: u8, transport: &[u8]) -> Option<Self> {
        if !matches!(number, protocol::TCP | protocol::UDP) {
            return Some(Self::Portless(id));
        }
        let &[a, b, c, d] = transport.first_chunk::<4>()?;
        Some(Self::First(
            id,
            number,
            SocketAddr::new(id.src, u16::from_be_bytes([a, b])),
            SocketAddr::new(id.dst, u16::from_be_bytes([c, d])),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv4::Ipv4Header;
    use crate::ipv6::Ipv6Header;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn v4(flags: u16, protocol: u8) -> Vec<u8> {
        let mut frame = Vec::from([0; 42]);
        frame[12..14].copy_from_slice(&[8, 0]);
        let header = Ipv4Header {
            tos: 0,
            total_len: 28,
            identification: 77,
            dont_fragment: false,
            ttl: 64,
            protocol,
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
        };
        header.emit(&mut frame[14..]);
        frame[34..38].copy_from_slice(&[0, 7, 0, 9]);
        frame[20..22].copy_from_slice(&flags.to_be_bytes());
        frame[24..26].fill(0);
        let sum = crate::checksum::of(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    fn v6(offset_and_more: u16) -> Vec<u8> {
        let mut frame = Vec::from([0; 54]);
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        let header = Ipv6Header {
            traffic_class: 0,
            flow_label: 0,
            payload_len: 16,
            next_header: extensions::FRAGMENT,
            hop_limit: 64,
            src: "fd00::1".parse().unwrap(),
            dst: "fd00::2".parse().unwrap(),
        };
        header.emit(&mut frame[14..]);
        frame.extend([protocol::UDP, 0]);
        frame.extend(offset_and_more.to_be_bytes());
        frame.extend([0, 0, 0, 5, 0, 7, 0, 9, 0, 8, 0, 0]);
        frame
    }

    #[test]
    fn only_the_first_fragment_names_its_sockets() {
        for (first, later) in [(v4(0x2000, 17), v4(0x0003, 17)), (v6(1), v6(24))] {
            let Some(FrameFragment::First(id, 17, src, dst)) = FrameFragment::parse(&first) else {
                panic!("{first:?}");
            };
            assert_eq!((src.port(), dst.port()), (7, 9));
            assert_eq!((src.ip(), dst.ip()), (id.src, id.dst));
            assert_eq!(FrameFragment::parse(&later), Some(FrameFragment::Later(id)));
        }
    }

    #[test]
    fn whole_packets_and_other_ethertypes_are_not_fragments() {
        assert_eq!(FrameFragment::parse(&v4(0, 17)), None);
        assert_eq!(FrameFragment::parse(&v4(0x2000, 1)), None);
        assert_eq!(FrameFragment::parse(&v6(0)), None, "atomic");
    }

    #[test]
    fn first_fragments_without_ports_are_recognised_in_ipv6() {
        let mut frame = v6(1);
        frame[54] = protocol::ICMPV6;
        let Some(FrameFragment::Later(id)) = FrameFragment::parse(&v6(24)) else {
            panic!("a later one");
        };
        assert_eq!(
            FrameFragment::parse(&frame),
            Some(FrameFragment::Portless(id))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(
            v6: bool,
            bytes in proptest::collection::vec(any::<u8>(), 0..120),
        ) {
            let mut frame = Vec::from([0; 12]);
            frame.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
            frame.extend(bytes);
            let _ = FrameFragment::parse(&frame);
        }
    }
}
