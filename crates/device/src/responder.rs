//! A simulated station that answers every ARP request and neighbour solicitation, so that a stack
//! can send over a device without a link.

use std::net::Ipv6Addr;

use slipstack_wire::arp::{ArpOperation, ArpPacket};
use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::icmpv6::{self, Icmpv6Kind, Icmpv6Message};
use slipstack_wire::ipv6::{self, Ipv6Header, Ipv6Packet};
use slipstack_wire::ndp::{self, Neighbour, flag};
use slipstack_wire::protocol;

/// The station's address on the link.
pub(crate) const STATION: [u8; 6] = [0x02, 0x53, 0x53, 0, 0, 0xff];

/// Offset of a frame's type, and behind an IPv6 header that of an ICMP message's.
const ETHERTYPE_AT: usize = 12;
const NEXT_HEADER_AT: usize = 20;

/// Returns whether a frame that begins so may be a question.
#[inline]
pub(crate) fn may_ask(header: &[u8]) -> bool {
    match header.get(ETHERTYPE_AT..ETHERTYPE_AT + 2) {
        Some([0x08, 0x06]) => true,
        Some([0x86, 0xdd]) => header.get(NEXT_HEADER_AT) == Some(&protocol::ICMPV6),
        _ => false,
    }
}

/// Returns the station's answer to a frame; `None` if it is no request.
pub(crate) fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    let (header, payload) = EthernetHeader::parse(frame)?;
    match header.ethertype {
        EtherType::ARP => answer_arp(&header, payload),
        EtherType::IPV6 => answer_solicitation(&header, payload),
        _ => None,
    }
}

fn answer_arp(header: &EthernetHeader, payload: &[u8]) -> Option<Vec<u8>> {
    let asked = ArpPacket::parse(payload)?;
    // RFC 5227: probes and announcements are requests for the sender's own address.
    let is_question = asked.operation == ArpOperation::Request
        && !asked.sender_ip.is_unspecified()
        && asked.sender_ip != asked.target_ip;
    if !is_question {
        return None;
    }
    let told = ArpPacket {
        operation: ArpOperation::Reply,
        sender_mac: STATION,
        sender_ip: asked.target_ip,
        target_mac: asked.sender_mac,
        target_ip: asked.sender_ip,
    };
    Some(told.frame_to(header.src).into())
}

fn answer_solicitation(header: &EthernetHeader, payload: &[u8]) -> Option<Vec<u8>> {
    let packet = Ipv6Packet::parse(payload)?;
    let (asker, group) = (packet.header.src, packet.header.dst);
    if packet.header.next_header != protocol::ICMPV6 || asker.is_unspecified() {
        return None;
    }
    let message = Icmpv6Message::parse(asker, group, packet.payload).ok()?;
    if message.kind != Icmpv6Kind::NeighbourSolicitation {
        return None;
    }
    let target = Neighbour::parse_solicitation(message.body)?.target;
    Some(advertisement(header, target, asker))
}

fn advertisement(header: &EthernetHeader, target: Ipv6Addr, asker: Ipv6Addr) -> Vec<u8> {
    let mut body = [0; ndp::NEIGHBOUR_LEN];
    let told = Neighbour {
        target,
        link: Some(STATION),
        nonce: None,
    };
    let body_len = told.emit_advertisement(&mut body);
    let message = Icmpv6Message {
        kind: Icmpv6Kind::NeighbourAdvertisement([flag::SOLICITED | flag::OVERRIDE, 0, 0, 0]),
        body: &body[..body_len],
    };
    let mut frame = vec![0; ethernet::HEADER_LEN + ipv6::HEADER_LEN];
    EthernetHeader {
        dst: header.src,
        src: STATION,
        ethertype: EtherType::IPV6,
    }
    .emit(&mut frame);
    Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: (icmpv6::HEADER_LEN + message.body.len()) as u16,
        next_header: protocol::ICMPV6,
        hop_limit: ndp::HOP_LIMIT,
        src: target,
        dst: asker,
    }
    .emit(&mut frame[ethernet::HEADER_LEN..]);
    frame.extend_from_slice(&message.header(target, asker));
    frame.extend_from_slice(message.body);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKER: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn request(sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
        let asked = ArpPacket::request(ASKER, sender.into(), target.into());
        asked.frame_to(ethernet::BROADCAST).into()
    }

    #[test]
    fn an_address_request_is_answered_and_an_announcement_is_not() {
        let frame = request([10, 0, 0, 1], [10, 0, 0, 2]);
        assert!(may_ask(&frame));
        let answer = answer(&frame).unwrap();
        let (header, payload) = EthernetHeader::parse(&answer).unwrap();
        let told = ArpPacket::parse(payload).unwrap();
        assert_eq!((header.dst, header.src), (ASKER, STATION));
        assert_eq!(told.operation, ArpOperation::Reply);
        assert_eq!(
            (told.sender_mac, told.sender_ip.octets()),
            (STATION, [10, 0, 0, 2])
        );
        for sender in [[0; 4], [10, 0, 0, 2]] {
            assert_eq!(super::answer(&request(sender, [10, 0, 0, 2])), None);
        }
    }

    #[test]
    fn other_frames_are_not_taken_for_address_requests() {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&[0x08, 0]);
        assert!(!may_ask(&frame));
        assert_eq!(answer(&frame), None);
    }
}
