//! Frames with a valid Ethernet and IP header.

use std::net::{Ipv4Addr, Ipv6Addr};

use slipstack_wire::ipv6::Ipv6Header;
use slipstack_wire::{checksum, protocol};

pub const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
pub const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
pub const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// `body` as the payload of an IPv4 packet from the peer.
pub fn framed(protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(34 + body.len());
    frame.extend_from_slice(&OWN_MAC);
    frame.extend_from_slice(&PEER_MAC);
    frame.extend_from_slice(&[8, 0]);
    let total = (20 + body.len() as u16).to_be_bytes();
    let fixed = [
        0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, protocol, 0, 0,
    ];
    frame.extend_from_slice(&fixed);
    frame.extend_from_slice(&PEER.octets());
    frame.extend_from_slice(&OWN.octets());
    let sum = checksum::of(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

/// `body` as the payload of an IPv6 packet from the peer; an ICMPv6 message gets its checksum.
pub fn framed6(next_header: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 54];
    frame[..6].copy_from_slice(&OWN_MAC);
    frame[6..12].copy_from_slice(&PEER_MAC);
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: body.len() as u16,
        next_header,
        hop_limit: 255,
        src: PEER6,
        dst: OWN6,
    };
    header.emit(&mut frame[14..]);
    frame.extend_from_slice(body);
    if next_header == protocol::ICMPV6 && body.len() >= 4 {
        frame[56..58].copy_from_slice(&[0, 0]);
        let mut sum = checksum::pseudo_v6(PEER6, OWN6, next_header, body.len() as u32);
        sum.add_bytes(&frame[54..]);
        frame[56..58].copy_from_slice(&sum.finish().to_be_bytes());
    }
    frame
}
