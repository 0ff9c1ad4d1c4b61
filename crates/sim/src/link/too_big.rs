//! A router's answer to a packet that does not fit the next link (RFC 1191 4, RFC 4443 3.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::icmpv4::{self, IcmpKind, IcmpMessage};
use slipstack_wire::icmpv6::{self, Icmpv6Kind, Icmpv6Message};
use slipstack_wire::ipv4::{self, Ipv4Header, Ipv4Packet};
use slipstack_wire::ipv6::{self, Ipv6Header, Ipv6Packet};
use slipstack_wire::protocol;

/// RFC 1812 4.3.2.3: as much of the packet as fits 576 bytes with both headers.
const QUOTE_MAX_V4: usize = 576 - ipv4::HEADER_LEN - icmpv4::HEADER_LEN;
/// RFC 4443 2.4 (c): as much as fits the least MTU.
const QUOTE_MAX_V6: usize = ipv6::MTU_MIN as usize - ipv6::HEADER_LEN - icmpv6::HEADER_LEN;
const HOP_LIMIT: u8 = 64;

/// RFC 1122 3.2.2: no ICMP error about an ICMP error; echo is the only query left in use.
fn is_echo(message: &[u8]) -> bool {
    matches!(message.first(), Some(0 | 8))
}

/// RFC 4443 2.1: types below 128 are errors.
fn is_error_v6(message: &[u8]) -> bool {
    matches!(message.first(), Some(0..=127))
}

/// The answer to the sender of this frame; `None` when there is none to give (of another family
/// than the router, an ICMP error itself, damaged).
pub fn answer(frame: &[u8], mtu: u16, router: IpAddr) -> Option<Vec<u8>> {
    let (link, bytes) = EthernetHeader::parse(frame)?;
    let packet = match (link.ethertype, router) {
        (EtherType::IPV4, IpAddr::V4(router)) => answer_v4(bytes, mtu, router)?,
        (EtherType::IPV6, IpAddr::V6(router)) => answer_v6(bytes, mtu, router)?,
        _ => return None,
    };
    let mut answer = vec![0; ethernet::HEADER_LEN];
    EthernetHeader {
        dst: link.src,
        src: link.dst,
        ethertype: link.ethertype,
    }
    .emit(&mut answer);
    answer.extend_from_slice(&packet);
    Some(answer)
}

fn answer_v4(bytes: &[u8], mtu: u16, router: Ipv4Addr) -> Option<Vec<u8>> {
    let packet = Ipv4Packet::parse(bytes).ok()?;
    if packet.header.protocol == protocol::ICMP && !is_echo(packet.payload) {
        return None;
    }
    let quote = &bytes[..bytes.len().min(QUOTE_MAX_V4)];
    let message = IcmpMessage {
        kind: IcmpKind::DestinationUnreachable {
            code: icmpv4::code::FRAGMENTATION_NEEDED,
            mtu,
        },
        body: quote,
    };
    let mut answer = vec![0; ipv4::HEADER_LEN];
    Ipv4Header {
        tos: 0,
        total_len: (ipv4::HEADER_LEN + icmpv4::HEADER_LEN + quote.len()) as u16,
        identification: 0,
        dont_fragment: false,
        ttl: HOP_LIMIT,
        protocol: protocol::ICMP,
        src: router,
        dst: packet.header.src,
    }
    .emit(&mut answer);
    answer.extend_from_slice(&message.header());
    answer.extend_from_slice(quote);
    Some(answer)
}

fn answer_v6(bytes: &[u8], mtu: u16, router: Ipv6Addr) -> Option<Vec<u8>> {
    let packet = Ipv6Packet::parse(bytes)?;
    if packet.header.next_header == protocol::ICMPV6 && is_error_v6(packet.payload) {
        return None;
    }
    let quote = &bytes[..bytes.len().min(QUOTE_MAX_V6)];
    let message = Icmpv6Message {
        kind: Icmpv6Kind::PacketTooBig { mtu: mtu.into() },
        body: quote,
    };
    let mut answer = vec![0; ipv6::HEADER_LEN];
    Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: (icmpv6::HEADER_LEN + quote.len()) as u16,
        next_header: protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        src: router,
        dst: packet.header.src,
    }
    .emit(&mut answer);
    answer.extend_from_slice(&message.header(router, packet.header.src));
    answer.extend_from_slice(quote);
    Some(answer)
}
