//! What the stack says of packets that it cannot take, and how it answers echos.
//!
//! RFC 1122 3.2.2, 3.2.2.1 and 3.2.2.6.

use std::net::Ipv4Addr;

use crate::support::*;
use slipstack_stack::Counter;
use slipstack_wire::icmpv4::{IcmpKind, IcmpMessage, code};
use slipstack_wire::ipv4::Ipv4Packet;

/// Of a protocol that nobody speaks.
const UNKNOWN: u8 = 200;

const PROTOCOL_UNREACHABLE: IcmpKind = IcmpKind::DestinationUnreachable {
    code: code::PROTOCOL_UNREACHABLE,
    mtu: 0,
};

/// A piece of a packet of an unknown protocol.
fn piece(offset: u16, has_more: bool, payload: &[u8]) -> Vec<u8> {
    let mut frame = ip_frame(UNKNOWN, PEER, IP, payload);
    let header = Ipv4Packet::parse(&frame[14..]).unwrap().header;
    header.emit_fragment(offset, has_more, &mut frame[14..34]);
    frame
}

#[test]
fn a_protocol_that_nobody_speaks_is_told_and_errors_are_limited() {
    let mut table = Table::new();
    table.introduce_peer();
    let frame = patch_ip(ip_frame(UNKNOWN, PEER, IP, &[7; 40]), |header| {
        header[1] = 0x1f;
    });
    table.input(&frame);
    let frames = table.take_frames();
    let packet = ip_of(&frames[0]);
    assert_eq!((packet.header.src, packet.header.dst), (IP, PEER));
    assert_eq!(packet.header.tos, 0xde);
    let told = IcmpMessage::parse(packet.payload).unwrap();
    assert_eq!(told.kind, PROTOCOL_UNREACHABLE);
    assert_eq!(told.body, &frame[14..]);
    for _ in 0..1000 {
        table.input(&frame);
    }
    assert_eq!(table.take_frames().len(), 5, "six to one destination");
    assert_eq!(table.count(Counter::DropIpv4Protocol), 1001);
}

#[test]
fn a_group_is_told_nothing_of_its_protocol() {
    let mut table = Table::new();
    table.introduce_peer();
    for group in [
        Ipv4Addr::new(224, 0, 0, 1),
        Ipv4Addr::new(10, 0, 0, 255),
        Ipv4Addr::BROADCAST,
    ] {
        table.input(&ip_frame(UNKNOWN, PEER, group, &[7; 40]));
    }
    assert_eq!(table.count(Counter::DropIpv4Protocol), 3);
    assert!(table.take_frames().is_empty());
}

#[test]
fn of_fragments_of_an_unknown_protocol_their_whole_is_told_once() {
    let mut table = Table::new();
    table.introduce_peer();
    table.input(&piece(800, false, &[8; 80]));
    assert!(table.take_frames().is_empty());
    table.input(&piece(0, true, &[7; 800]));
    let frames = table.take_frames();
    assert_eq!(frames.len(), 1);
    let told = IcmpMessage::parse(ip_of(&frames[0]).payload).unwrap();
    assert_eq!(told.kind, PROTOCOL_UNREACHABLE);
    let quoted = Ipv4Packet::parse_quoted(told.body).unwrap();
    assert_eq!(quoted.header.total_len, 900);
    assert!(!quoted.is_fragment);
}
