//! What a router says when a packet does not fit the next link (RFC 1191 4).

use std::net::Ipv4Addr;

use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::icmpv4::{self, IcmpKind, IcmpMessage};
use slipstack_wire::ipv4::{self, Ipv4Header, Ipv4Packet};

/// RFC 1812 4.3.2.3: as much of the packet as fits 576 bytes with both headers.
const QUOTE_MAX: usize = 576 - ipv4::HEADER_LEN - icmpv4::HEADER_LEN;
const PROTOCOL_ICMP: u8 = 1;

/// RFC 1122 3.2.2: no ICMP error about an ICMP error; echo is the only query left in use.
fn is_echo(message: &[u8]) -> bool {
    matches!(message.first(), Some(0 | 8))
}

/// The answer to the sender of this frame; `None` when there is none to give (not IPv4, an ICMP
/// error itself, damaged).
pub fn answer(frame: &[u8], mtu: u16, router: Ipv4Addr) -> Option<Vec<u8>> {
    let (link, bytes) = EthernetHeader::parse(frame)?;
    if link.ethertype != EtherType::IPV4 {
        return None;
    }
    let packet = Ipv4Packet::parse(bytes).ok()?;
    if packet.header.protocol == PROTOCOL_ICMP && !is_echo(packet.payload) {
        return None;
    }
    let quote = &bytes[..bytes.len().min(QUOTE_MAX)];
    let message = IcmpMessage {
        kind: IcmpKind::DestinationUnreachable {
            code: icmpv4::code::FRAGMENTATION_NEEDED,
            mtu,
        },
        body: quote,
    };
    let payload_at = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
    let mut answer = vec![0; payload_at];
    EthernetHeader {
        dst: link.src,
        src: link.dst,
        ethertype: EtherType::IPV4,
    }
    .emit(&mut answer);
    Ipv4Header {
        tos: 0,
        total_len: (ipv4::HEADER_LEN + icmpv4::HEADER_LEN + quote.len()) as u16,
        identification: 0,
        dont_fragment: false,
        ttl: 64,
        protocol: PROTOCOL_ICMP,
        src: router,
        dst: packet.header.src,
    }
    .emit(&mut answer[ethernet::HEADER_LEN..]);
    answer.extend_from_slice(&message.header());
    answer.extend_from_slice(quote);
    Some(answer)
}
