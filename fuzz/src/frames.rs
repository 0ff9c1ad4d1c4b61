//! Frames with a valid Ethernet and IPv4 header.

use std::net::Ipv4Addr;

use slipstack_wire::checksum;

pub const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
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
