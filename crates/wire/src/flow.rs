//! The flow of a whole frame, of either family, for code that passes frames on without a stack.

use core::net::{IpAddr, SocketAddr};

use crate::ethernet::{EtherType, EthernetHeader};
use crate::icmpv4::HEADER_LEN as ICMP_HEADER_LEN;
use crate::ipv4::Ipv4Packet;
use crate::ipv6::Ipv6Packet;
use crate::ipv6_extensions::{self as extensions, Walked};
use crate::{checksum, protocol};

/// TCP flags of the answer to a SYN.
const SYN_AND_ACK: u8 = 0x12;

/// TCP and UDP begin with their ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFlow<'a> {
    /// TCP or UDP.
    pub protocol: u8,
    pub src: SocketAddr,
    pub dst: SocketAddr,
    /// From the ports on, as far as it is there.
    pub transport: &'a [u8],
    /// Offset of that in the frame.
    pub transport_at: usize,
}

/// Returns whether a frame goes to a link-layer group, the broadcast one included.
pub fn is_group_frame(frame: &[u8]) -> bool {
    frame.first().is_some_and(|first| first & 1 != 0)
}

/// Returns whether a frame is the answer to a SYN.
pub fn is_syn_ack(frame: &[u8]) -> bool {
    let flags = FrameFlow::parse(frame).and_then(|flow| flow.tcp_flags());
    flags.is_some_and(|flags| flags & SYN_AND_ACK == SYN_AND_ACK)
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
                Self::new(frame, packet.header.protocol, ends, packet.payload)
            }
            EtherType::IPV6 => {
                let packet = Ipv6Packet::parse(payload)?;
                let ends = (packet.header.src.into(), packet.header.dst.into());
                match extensions::walk(packet.header.next_header, packet.payload) {
                    Ok(Walked::Whole(upper)) => {
                        Self::new(frame, upper.protocol, ends, upper.payload)
                    }
                    Ok(Walked::Fragment(_)) | Err(_) => None,
                }
            }
            _ => None,
        }
    }

    /// As [`FrameFlow::parse`], of the headers of a packet whose payload is elsewhere.
    pub fn parse_headers(frame: &'a [u8]) -> Option<Self> {
        let (header, payload) = EthernetHeader::parse(frame)?;
        match header.ethertype {
            EtherType::IPV4 => {
                let packet = Ipv4Packet::parse_quoted(payload).ok()?;
                let ends = (packet.header.src.into(), packet.header.dst.into());
                let is_whole = !packet.is_fragment;
                is_whole.then(|| Self::new(frame, packet.header.protocol, ends, packet.payload))?
            }
            EtherType::IPV6 => {
                let packet = Ipv6Packet::parse_quoted(payload)?;
                let ends = (packet.header.src.into(), packet.header.dst.into());
                let (protocol, transport) =
                    extensions::find_quoted(packet.header.next_header, packet.payload)?;
                Self::new(frame, protocol, ends, transport)
            }
            _ => None,
        }
    }

    /// Parses the flow of the packet that an ICMP error of either version quotes; its source is the
    /// receiver of the error.
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
                Self::new(frame, quoted.header.protocol, ends, quoted.payload)
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
                Self::new(frame, protocol, (src.into(), dst.into()), transport)
            }
            _ => None,
        }
    }

    /// `transport` is a part of `frame`.
    fn new(
        frame: &[u8],
        protocol: u8,
        (src, dst): (IpAddr, IpAddr),
        transport: &'a [u8],
    ) -> Option<Self> {
        if !matches!(protocol, protocol::TCP | protocol::UDP) {
            return None;
        }
        let &[a, b, c, d] = transport.first_chunk::<4>()?;
        Some(Self {
            protocol,
            src: SocketAddr::new(src, u16::from_be_bytes([a, b])),
            dst: SocketAddr::new(dst, u16::from_be_bytes([c, d])),
            transport,
            transport_at: transport.as_ptr().addr() - frame.as_ptr().addr(),
        })
    }

    /// Returns whether it goes to all sockets of the port: a link-layer multicast, and no TCP.
    pub fn is_to_group(&self, frame: &[u8]) -> bool {
        self.protocol == protocol::UDP && is_group_frame(frame)
    }

    /// Returns whether the transport checksum is right, or not needed; of a whole packet.
    pub fn is_checksum_valid(&self) -> bool {
        let (mut bytes, number) = (self.transport, self.protocol);
        if number == protocol::UDP {
            let Some(&[.., high, low, a, b]) = bytes.first_chunk::<8>() else {
                return false;
            };
            // A datagram may end before its packet does.
            let len = usize::from(u16::from_be_bytes([high, low]));
            let Some(datagram) = bytes.get(..len).filter(|_| len >= 8) else {
                return false;
            };
            // RFC 768; RFC 8200 8.1: in IPv6 it is always there.
            if [a, b] == [0, 0] {
                return self.src.is_ipv4();
            }
            bytes = datagram;
        }
        match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => checksum::is_valid_l4_v4(src, dst, number, bytes),
            (IpAddr::V6(src), IpAddr::V6(dst)) => checksum::is_valid_l4_v6(src, dst, number, bytes),
            _ => false,
        }
    }

    /// The flags of a TCP segment that is there as far as them.
    pub fn tcp_flags(&self) -> Option<u8> {
        (self.protocol == protocol::TCP)
            .then(|| self.transport.get(13).copied())
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv6::Ipv6Header;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// A UDP datagram of one byte over IPv6, behind destination options.
    fn extended() -> Vec<u8> {
        let (src, dst) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let mut datagram = Vec::from(crate::udp::header(7, 9, 1));
        datagram.push(b'x');
        let mut sum = checksum::pseudo_v6(src, dst, protocol::UDP, 9);
        sum.add_bytes(&datagram);
        datagram[6..8].copy_from_slice(&sum.finish().to_be_bytes());
        let mut frame = Vec::from([0; 54]);
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        let header = Ipv6Header {
            traffic_class: 0,
            flow_label: 0,
            payload_len: 17,
            next_header: extensions::DESTINATION_OPTIONS,
            hop_limit: 64,
            src,
            dst,
        };
        header.emit(&mut frame[14..]);
        frame.extend([protocol::UDP, 0, 1, 4, 0, 0, 0, 0]);
        frame.extend(datagram);
        frame
    }

    #[test]
    fn a_flow_is_found_behind_extension_headers() {
        let mut frame = extended();
        let flow = FrameFlow::parse(&frame).unwrap();
        assert_eq!((flow.protocol, flow.transport.len()), (protocol::UDP, 9));
        assert_eq!((flow.src.port(), flow.dst.port()), (7, 9));
        assert!(flow.is_checksum_valid() && flow.tcp_flags().is_none());
        assert_eq!(flow.transport, &frame[flow.transport_at..]);
        let last = frame.len() - 1;
        frame[last] ^= 1;
        assert!(!FrameFlow::parse(&frame).unwrap().is_checksum_valid());
        assert_eq!(FrameFlow::parse(&frame[..last]), None);
        let headers = FrameFlow::parse_headers(&frame[..last]).unwrap();
        assert_eq!((headers.src.port(), headers.dst.port()), (7, 9));
    }

    #[test]
    fn the_checksum_of_a_datagram_covers_its_own_length_and_no_padding() {
        let mut frame = extended();
        frame.extend(*b"rest");
        frame[18..20].copy_from_slice(&21u16.to_be_bytes());
        assert!(FrameFlow::parse(&frame).unwrap().is_checksum_valid());
        for length in [7u16, 8, 10, 13, 14] {
            frame[66..68].copy_from_slice(&length.to_be_bytes());
            let flow = FrameFlow::parse(&frame).unwrap();
            assert!(!flow.is_checksum_valid(), "{length}");
        }
    }

    #[test]
    fn a_datagram_without_a_checksum_is_valid_only_over_ipv4() {
        let mut six = extended();
        six[68..70].fill(0);
        assert!(!FrameFlow::parse(&six).unwrap().is_checksum_valid());
        let mut four = Vec::from([0; 34]);
        four[12..14].copy_from_slice(&[8, 0]);
        let header = crate::ipv4::Ipv4Header {
            tos: 0,
            total_len: 29,
            identification: 0,
            dont_fragment: true,
            ttl: 64,
            protocol: protocol::UDP,
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
        };
        header.emit(&mut four[14..]);
        four.extend(crate::udp::header(7, 9, 1));
        four.push(b'x');
        four[40..42].fill(0);
        assert!(FrameFlow::parse(&four).unwrap().is_checksum_valid());
        four[40] = 1;
        assert!(!FrameFlow::parse(&four).unwrap().is_checksum_valid());
    }

    #[test]
    fn an_icmpv6_error_quotes_its_flow() {
        let quoted = extended();
        let mut frame = quoted[..54].to_vec();
        frame[18..20].copy_from_slice(&(8 + quoted.len() as u16 - 14).to_be_bytes());
        frame[20] = protocol::ICMPV6;
        frame.extend([1, 4, 0, 0, 0, 0, 0, 0]);
        frame.extend(&quoted[14..]);
        let flow = FrameFlow::parse_quoted(&frame).unwrap();
        assert_eq!(flow.src, "[fd00::1]:7".parse().unwrap());
        frame[54] = 128;
        assert_eq!(
            FrameFlow::parse_quoted(&frame),
            None,
            "an echo quotes nothing"
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
            let _ = FrameFlow::parse_headers(&frame);
            let _ = FrameFlow::parse_quoted(&frame);
            if let Some(whole) = FrameFlow::parse(&frame) {
                let headers = FrameFlow::parse_headers(&frame).unwrap();
                prop_assert_eq!((headers.src, headers.dst), (whole.src, whole.dst));
            }
        }
    }
}
