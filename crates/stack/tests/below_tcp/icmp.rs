//! Errors about packets that the stack cannot take, and its answers to echos.
//!
//! RFC 1122 3.2.2, 3.2.2.1 and 3.2.2.6, RFC 4443 3.3 and 4.2, RFC 4291 2.7.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::support::*;
use slipstack_stack::{Counter, Reason, SocketOptions, UdpOptions};
use slipstack_wire::icmpv4::{IcmpKind, IcmpMessage, code};
use slipstack_wire::icmpv6::{Icmpv6Kind, Icmpv6Message};
use slipstack_wire::ipv4::Ipv4Packet;
use slipstack_wire::ipv6::{Ipv6Header, Ipv6Packet, solicited_node};
use slipstack_wire::{protocol, udp};

/// An unassigned protocol number.
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
fn an_unknown_protocol_gives_an_error_and_errors_are_rate_limited() {
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
fn a_multicast_packet_of_an_unknown_protocol_gives_no_error() {
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
fn fragments_of_an_unknown_protocol_give_one_error() {
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

const OWN: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5);
const ASKER: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Returns the answer to an echo to `dst`.
fn answer_v6(src: Ipv6Addr, dst: Ipv6Addr, class: u8) -> (Table, Option<(Ipv6Header, Icmpv6Kind)>) {
    let mut table = Table::with(|config| {
        config
            .network_mut()
            .own_mut()
            .addresses
            .push((OWN.into(), 64))
    });
    let now = table.now;
    let Table { stack, fx, .. } = &mut table;
    stack.on_neighbour(now, ASKER.into(), PEER_MAC, fx);
    let kind = Icmpv6Kind::EchoRequest([1, 2, 3, 4]);
    let mut frame = icmpv6(PEER_MAC, (src, dst), 64, kind, b"ping");
    frame[14] |= class >> 4;
    frame[15] |= class << 4;
    table.input(&frame);
    let frames = table.take_frames();
    let answer = frames.first().map(|frame| {
        let packet = Ipv6Packet::parse(&frame[14..]).unwrap();
        let (src, dst) = (packet.header.src, packet.header.dst);
        let message = Icmpv6Message::parse(src, dst, packet.payload).unwrap();
        assert_eq!(message.body, b"ping");
        (packet.header, message.kind)
    });
    (table, answer)
}

#[test]
fn an_echo_is_answered_with_the_class_that_it_came_with() {
    for class in [0, 0x03, 0xb8, 0xff] {
        let (_, answer) = answer_v6(ASKER, OWN, class);
        assert_eq!(answer.unwrap().0.traffic_class, class);
        let mut table = Table::new();
        table.introduce_peer();
        let request = icmp_frame(PEER, IP, IcmpKind::EchoRequest([0; 4]), b"ping");
        table.input(&patch_ip(request, |header| header[1] = class));
        let frames = table.take_frames();
        assert_eq!(ip_of(&frames[0]).header.tos, class);
    }
}

/// RFC 4291 2.7.
#[test]
fn packets_to_groups_of_reserved_or_interface_scope_are_dropped() {
    for group in ["ff00::1", "ff01::1"] {
        let (table, answer) = answer_v6(ASKER, group.parse().unwrap(), 0);
        assert_eq!(answer, None);
        assert_eq!(table.count(Counter::DropIpv6Martian), 1, "{group}");
    }
}

/// RFC 4443 3.3: whatever its code.
#[test]
fn a_reassembly_timeout_reaches_a_socket_that_requests_errors() {
    let mut table = Table::with(|config| {
        config
            .network_mut()
            .own_mut()
            .addresses
            .push((OWN.into(), 64))
    });
    let options = UdpOptions {
        socket: SocketOptions {
            returns_v6: true,
            ..SocketOptions::default()
        },
        ..UdpOptions::default()
    };
    let local = SocketAddr::new(OWN.into(), 1000);
    table.stack.udp_bind(local, options).unwrap();
    let datagram = udp::header(1000, 7, 1);
    let quoted = packet6(PEER_MAC, protocol::UDP, (OWN, ASKER), 64, &datagram);
    let kind = Icmpv6Kind::TimeExceeded { code: 1 };
    let error = icmpv6(PEER_MAC, (ASKER, OWN), 64, kind, &quoted[14..]);
    table.input(&error);
    let (to, reason, _, which, _) = table.fx.returned.pop().unwrap();
    assert_eq!(to, SocketAddr::new(ASKER.into(), 7));
    assert_eq!((reason, which), (Reason::HostUnreachable, [3, 1]));
}

#[test]
fn an_echo_to_a_group_is_answered_from_an_address_of_ours() {
    for group in [ALL_NODES, solicited_node(OWN)] {
        let (_, answer) = answer_v6(ASKER, group, 0);
        let (header, kind) = answer.unwrap();
        assert_eq!((header.src, header.dst), (OWN, ASKER));
        assert_eq!(kind, Icmpv6Kind::EchoReply([1, 2, 3, 4]));
    }
    let (table, answer) = answer_v6(Ipv6Addr::UNSPECIFIED, ALL_NODES, 0);
    assert_eq!(answer, None);
    assert_eq!(table.count(Counter::DropIcmpGroup), 1);
}

#[test]
fn a_source_quench_is_ignored() {
    // RFC 5927 6.2, of a segment and of a datagram.
    for protocol in [6, 17] {
        let mut table = Table::new();
        let quoted = ip_frame(protocol, IP, PEER, &[3, 232, 0, 80, 0, 0, 0, 1]);
        let quench = IcmpKind::Other { kind: 4, code: 0 };
        table.input(&icmp_frame(PEER, IP, quench, &quoted[14..]));
        assert_eq!(table.count(Counter::DropIcmpType), 1);
        assert_eq!(table.count(Counter::RxIcmpErrors), 0);
        assert!(table.fx.events.is_empty() && table.take_frames().is_empty());
    }
}
