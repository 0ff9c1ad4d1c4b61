//! IPv6 below TCP, frame by frame: addresses, extension headers, ICMPv6 and neighbours.
//!
//! RFC 8200 4.1, 4.2 and 4.4, RFC 4443 2.4, 4.1 and 4.2, RFC 4861 7.1.1, 7.2.3 and 7.2.5.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::support::*;
use slipstack_stack::{
    Counter, DatagramOut, Event, Role, SocketError, SocketOption, StackConfig, UdpOptions,
};
use slipstack_wire::ethernet;
use slipstack_wire::icmpv6::{Icmpv6Kind, Icmpv6Message};
use slipstack_wire::ipv6::{Ipv6Header, Ipv6Packet, solicited_node};
use slipstack_wire::ndp::{NEIGHBOUR_LEN, Neighbour, flag};
use slipstack_wire::{checksum, protocol, udp};

const OWN: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5);
const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
const FAR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

fn table() -> Table {
    table_with(|_| {})
}

fn table_with(change: impl FnOnce(&mut StackConfig)) -> Table {
    Table::with(|config| {
        config
            .network_mut()
            .own_mut()
            .addresses
            .push((OWN.into(), 64));
        change(config);
    })
}

fn at6(ip: Ipv6Addr, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(ip), port)
}

fn packet(next_header: u8, src: Ipv6Addr, dst: Ipv6Addr, hops: u8, payload: &[u8]) -> Vec<u8> {
    packet6(PEER_MAC, next_header, (src, dst), hops, payload)
}

fn icmp(src: Ipv6Addr, dst: Ipv6Addr, hops: u8, kind: Icmpv6Kind, body: &[u8]) -> Vec<u8> {
    icmpv6(PEER_MAC, (src, dst), hops, kind, body)
}

fn neighbour_body(target: Ipv6Addr, link: Option<[u8; 6]>, is_answer: bool) -> Vec<u8> {
    let mut body = [0; NEIGHBOUR_LEN];
    let neighbour = Neighbour {
        target,
        link,
        nonce: None,
    };
    let len = if is_answer {
        neighbour.emit_advertisement(&mut body)
    } else {
        neighbour.emit_solicitation(&mut body)
    };
    body[..len].to_vec()
}

fn solicitation(src: Ipv6Addr, target: Ipv6Addr, link: Option<[u8; 6]>) -> Vec<u8> {
    let body = neighbour_body(target, link, false);
    icmp(
        src,
        solicited_node(target),
        255,
        Icmpv6Kind::NeighbourSolicitation,
        &body,
    )
}

fn advertisement(target: Ipv6Addr, mac: [u8; 6], flags: u8) -> Vec<u8> {
    let body = neighbour_body(target, Some(mac), true);
    icmp(
        target,
        OWN,
        255,
        Icmpv6Kind::NeighbourAdvertisement([flags, 0, 0, 0]),
        &body,
    )
}

fn datagram(src: (Ipv6Addr, u16), dst: (Ipv6Addr, u16), payload: &[u8]) -> Vec<u8> {
    let mut bytes = [&udp::header(src.1, dst.1, payload.len())[..], payload].concat();
    let mut sum = checksum::pseudo_v6(src.0, dst.0, protocol::UDP, bytes.len() as u32);
    sum.add_bytes(&bytes);
    bytes[6..8].copy_from_slice(&sum.finish().to_be_bytes());
    packet(protocol::UDP, src.0, dst.0, 64, &bytes)
}

/// Returns the only frame that was sent: its packet and ICMPv6 message, whose checksum is right.
fn sent(table: &mut Table) -> (Ipv6Header, Icmpv6Kind, Vec<u8>) {
    let frames = table.take_frames();
    assert_eq!(frames.len(), 1, "{frames:x?}");
    let packet = Ipv6Packet::parse(&frames[0][14..]).unwrap();
    let (src, dst) = (packet.header.src, packet.header.dst);
    let message = Icmpv6Message::parse(src, dst, packet.payload).unwrap();
    (packet.header, message.kind, message.body.to_vec())
}

fn introduce(table: &mut Table) {
    table.input(&solicitation(PEER6, OWN, Some(PEER_MAC)));
    table.take_frames();
}

#[test]
fn an_arp_request_is_answered_and_learnt_from() {
    let mut table = table();
    table.input(&solicitation(PEER6, OWN, Some(PEER_MAC)));
    let (header, kind, body) = sent(&mut table);
    assert_eq!(
        (header.src, header.dst, header.hop_limit),
        (OWN, PEER6, 255)
    );
    let flags = flag::SOLICITED | flag::OVERRIDE;
    assert_eq!(kind, Icmpv6Kind::NeighbourAdvertisement([flags, 0, 0, 0]));
    let told = Neighbour::parse_advertisement(&body).unwrap();
    assert_eq!((told.target, told.link), (OWN, Some(MAC)));
    let learned = Event::Neighbour {
        ip: PEER6.into(),
        mac: PEER_MAC,
    };
    assert_eq!(table.fx.events, [learned]);
}

#[test]
fn a_probe_for_an_assigned_address_is_answered() {
    let mut table = table();
    table.input(&solicitation(Ipv6Addr::UNSPECIFIED, OWN, None));
    let (header, kind, _) = sent(&mut table);
    assert_eq!((header.dst, header.hop_limit), (ALL_NODES, 255));
    assert_eq!(
        kind,
        Icmpv6Kind::NeighbourAdvertisement([flag::OVERRIDE, 0, 0, 0])
    );
    assert!(table.fx.events.is_empty());
}

/// RFC 4861 7.1.1 and 7.1.2.
#[test]
fn neighbour_discovery_against_the_rules_is_dropped_by_reason() {
    let ns = Icmpv6Kind::NeighbourSolicitation;
    let na = |flags| Icmpv6Kind::NeighbourAdvertisement([flags, 0, 0, 0]);
    let asked = neighbour_body(OWN, Some(PEER_MAC), false);
    let told = neighbour_body(PEER6, Some(PEER_MAC), true);
    let cases = [
        (icmp(PEER6, OWN, 254, ns, &asked), Counter::DropNdpHopLimit),
        (
            icmp(PEER6, OWN, 255, ns, &asked[..15]),
            Counter::DropNdpMalformed,
        ),
        (
            solicitation(Ipv6Addr::UNSPECIFIED, OWN, Some(PEER_MAC)),
            Counter::DropNdpMalformed,
        ),
        (
            solicitation(PEER6, OWN, Some([0xff; 6])),
            Counter::DropNdpMalformed,
        ),
        (
            icmp(PEER6, OWN, 255, ns, &neighbour_body(PEER6, None, false)),
            Counter::DropNdpNotOurs,
        ),
        (
            solicitation(FAR, OWN, Some(PEER_MAC)),
            Counter::DropNdpOffLink,
        ),
        (
            icmp(PEER6, ALL_NODES, 255, na(flag::SOLICITED), &told),
            Counter::DropNdpMalformed,
        ),
        (
            icmp(
                PEER6,
                OWN,
                255,
                na(0),
                &neighbour_body(OWN, Some(PEER_MAC), true),
            ),
            Counter::DropNdpConflict,
        ),
        (
            advertisement(PEER6, PEER_MAC, flag::SOLICITED),
            Counter::DropNdpUnsolicited,
        ),
        (
            icmp(
                PEER6,
                OWN,
                255,
                Icmpv6Kind::RouterAdvertisement([64, 0, 7, 8]),
                &[0; 8],
            ),
            Counter::DropNdpRouter,
        ),
        (
            icmp(PEER6, OWN, 255, Icmpv6Kind::Redirect, &[0; 32]),
            Counter::DropNdpRouter,
        ),
    ];
    for (frame, why) in cases {
        let mut table = table();
        table.input(&frame);
        assert_eq!(table.count(why), 1, "{why:?}");
        assert!(
            table.take_frames().is_empty() && table.fx.events.is_empty(),
            "{why:?}"
        );
    }
}

#[test]
fn a_datagram_waits_for_its_neighbour_and_follows_the_answer() {
    // RFC 4861 5.2 and 7.2.2.
    let mut table = table();
    let udp = table.bind("[::]:1000");
    let to = Some(at6(PEER6, 7));
    table
        .stack
        .udp_send(
            table.now,
            udp,
            &DatagramOut::new(to, b"hello"),
            &mut table.fx,
        )
        .unwrap();
    let (header, kind, body) = sent(&mut table);
    assert_eq!(kind, Icmpv6Kind::NeighbourSolicitation);
    assert_eq!((header.src, header.dst), (OWN, solicited_node(PEER6)));
    let asked = Neighbour::parse_solicitation(&body).unwrap();
    assert_eq!((asked.target, asked.link), (PEER6, Some(MAC)));
    table.input(&advertisement(
        PEER6,
        PEER_MAC,
        flag::SOLICITED | flag::OVERRIDE,
    ));
    let frames = table.take_frames();
    assert_eq!(frames[0][..6], PEER_MAC);
    let packet = Ipv6Packet::parse(&frames[0][14..]).unwrap();
    assert!(checksum::is_valid_l4_v6(
        OWN,
        PEER6,
        protocol::UDP,
        packet.payload
    ));
    assert_ne!(packet.header.flow_label, 0);
    assert_eq!(&packet.payload[8..], b"hello");
}

#[test]
fn a_neighbour_that_does_not_answer_is_an_error_of_the_socket() {
    let mut table = table();
    let udp = table.bind("[::]:1000");
    table.stack.udp_connect(udp, Some(at6(PEER6, 7))).unwrap();
    let option = SocketOption::ReturnsV6(true);
    table.stack.udp_set_option(udp, option).unwrap();
    table
        .stack
        .udp_send(table.now, udp, &DatagramOut::new(None, b"x"), &mut table.fx)
        .unwrap();
    table.pass(10_000);
    assert_eq!(table.fx.returned[0].3, [1, 3]);
    assert_eq!(table.count(Counter::TxNdpSolicitations), 3);
    assert!(matches!(table.fx.events[..], [Event::UdpFailed { .. }]));
}

#[test]
fn an_answer_without_override_does_not_move_a_known_neighbour() {
    let mut table = table();
    introduce(&mut table);
    let other = [2, 0, 0, 0, 0, 0x77];
    table.input(&advertisement(PEER6, other, flag::SOLICITED));
    assert_eq!(table.count(Counter::DropNdpUnsolicited), 1);
    table.input(&advertisement(
        PEER6,
        other,
        flag::SOLICITED | flag::OVERRIDE,
    ));
    let moved = Event::Neighbour {
        ip: PEER6.into(),
        mac: other,
    };
    assert_eq!(table.fx.events.last(), Some(&moved));
}

#[test]
fn an_echo_is_answered_from_the_address_that_was_asked() {
    // RFC 4443 2.2.
    let mut table = table();
    introduce(&mut table);
    table.input(&icmp(
        PEER6,
        OWN,
        64,
        Icmpv6Kind::EchoRequest([1, 2, 3, 4]),
        b"ping",
    ));
    let (header, kind, body) = sent(&mut table);
    assert_eq!((header.src, header.dst), (OWN, PEER6));
    assert_eq!(
        (kind, &body[..]),
        (Icmpv6Kind::EchoReply([1, 2, 3, 4]), &b"ping"[..])
    );
}

#[test]
fn an_engine_leaves_answers_to_its_keeper() {
    let mut table = table_with(|config| config.role = Role::Engine);
    table.input(&solicitation(PEER6, OWN, Some(PEER_MAC)));
    table.input(&icmp(PEER6, OWN, 64, Icmpv6Kind::EchoRequest([0; 4]), b""));
    assert!(table.take_frames().is_empty());
    assert_eq!(table.count(Counter::DropIcmpRole), 1);
    let (router, group) = ("fe80::1".parse().unwrap(), solicited_node(OWN));
    let query = Icmpv6Kind::MldQuery([0, 1, 0, 0]);
    table.input(&icmp(router, ALL_NODES, 1, query, &[0; 20]));
    let report = Icmpv6Kind::Other { kind: 131, code: 0 };
    table.input(&icmp(router, group, 1, report, &group.octets()));
    table.pass(10_001);
    assert!(table.take_frames().is_empty());
    assert_eq!(table.count(Counter::DropIcmpRole), 3);
}

#[test]
fn packets_with_invalid_addresses_are_dropped_by_reason() {
    // RFC 4291 2.5.2, 2.5.3 and 2.7, RFC 4038 8.
    let mapped = "::ffff:10.0.0.9".parse().unwrap();
    let cases = [
        (ALL_NODES, OWN, Counter::DropIpv6Martian),
        (Ipv6Addr::LOCALHOST, OWN, Counter::DropIpv6Martian),
        (mapped, OWN, Counter::DropIpv6Martian),
        (PEER6, Ipv6Addr::UNSPECIFIED, Counter::DropIpv6Martian),
        (Ipv6Addr::UNSPECIFIED, OWN, Counter::DropIpv6Martian),
        (OWN, OWN, Counter::DropIpv6Spoofed),
        (PEER6, PEER6, Counter::DropIpv6NotOurs),
        (PEER6, solicited_node(PEER6), Counter::DropIpv6NotOurs),
    ];
    for (src, dst, why) in cases {
        let mut table = table();
        table.input(&packet(protocol::UDP, src, dst, 64, &[0; 8]));
        assert_eq!(table.count(why), 1, "{src} to {dst}");
        assert!(table.take_frames().is_empty());
    }
    let mut table = table();
    let mut grouped = packet(protocol::UDP, PEER6, OWN, 64, &[0; 8]);
    grouped[..6].copy_from_slice(&ethernet::multicast_v6(ALL_NODES));
    table.input(&grouped);
    table.input(&grouped[..53]);
    assert_eq!(table.count(Counter::DropIpv6LinkGroup), 1);
    assert_eq!(table.count(Counter::DropIpv6Malformed), 1);
}

#[test]
fn a_stack_without_ipv6_ignores_it() {
    let mut table = Table::new();
    table.input(&solicitation(PEER6, OWN, Some(PEER_MAC)));
    assert_eq!(table.count(Counter::DropIpv6NotOurs), 1);
    assert!(table.take_frames().is_empty());
}

#[test]
fn extension_headers_are_followed_or_the_error_is_reported() {
    // RFC 4443 3.4.
    let plain = datagram((PEER6, 7), (OWN, 1000), b"8 bytes.");
    let behind = |first: u8, extension: &[u8]| {
        let payload = [extension, &plain[54..]].concat();
        packet(first, PEER6, OWN, 64, &payload)
    };
    let mut table = table();
    table.bind("[::]:1000");
    introduce(&mut table);
    table.input(&behind(60, &[17, 0, 1, 4, 0, 0, 0, 0]));
    table.input(&behind(44, &[17, 0, 0, 0, 0, 0, 0, 1]));
    assert_eq!(
        table.fx.datagrams.len(),
        2,
        "options and an atomic fragment"
    );
    table.input(&behind(44, &[17, 0, 0, 1, 0, 0, 0, 1]));
    table.input(&behind(60, &[17, 0, 0x5e, 4, 0, 0, 0, 0]));
    assert!(table.take_frames().is_empty());
    table.input(&behind(60, &[17, 0, 0xde, 4, 0, 0, 0, 0]));
    let (_, kind, body) = sent(&mut table);
    assert_eq!(
        kind,
        Icmpv6Kind::ParameterProblem {
            code: 2,
            pointer: 42
        }
    );
    assert_eq!(body[..4], plain[14..18]);
    table.input(&packet(200, PEER6, OWN, 64, &[0; 8]));
    assert_eq!(
        sent(&mut table).1,
        Icmpv6Kind::ParameterProblem {
            code: 1,
            pointer: 6
        }
    );
    assert_eq!(table.fx.datagrams.len(), 2);
    assert_eq!(table.count(Counter::DropIpv6Extension), 2);
    assert_eq!(table.count(Counter::RxFragments), 1);
}

#[test]
fn a_closed_port_gives_an_error_and_errors_are_rate_limited() {
    // RFC 4443 3.1.
    let mut table = table_with(|config| config.icmp_errors_per_second = 10);
    introduce(&mut table);
    table.input(&datagram((PEER6, 7), (OWN, 9), &[7; 1400]));
    let (header, kind, body) = sent(&mut table);
    assert_eq!(kind, Icmpv6Kind::DestinationUnreachable { code: 4 });
    assert_eq!(header.payload_len, 1240, "the error fits 1280 bytes");
    assert_eq!(body.len(), 1232);
    for _ in 0..20 {
        table.input(&datagram((PEER6, 7), (OWN, 9), b""));
    }
    assert_eq!(table.count(Counter::DropIcmpRate), 20);
}

#[test]
fn a_host_gets_six_errors_at_once_and_ten_a_second() {
    let mut table = table();
    introduce(&mut table);
    let ask = |table: &mut Table| {
        for _ in 0..20 {
            table.input(&datagram((PEER6, 7), (OWN, 9), b""));
        }
        table.take_frames().len()
    };
    assert_eq!(ask(&mut table), 6);
    table.pass(101);
    assert_eq!(ask(&mut table), 1);
}

#[test]
fn an_error_about_our_datagram_reaches_its_socket() {
    let mut table = table();
    introduce(&mut table);
    let udp = table.bind("[fd00::5]:1000");
    table.stack.udp_connect(udp, Some(at6(PEER6, 7))).unwrap();
    let quoted = datagram((OWN, 1000), (PEER6, 7), b"x");
    let kind = Icmpv6Kind::DestinationUnreachable { code: 4 };
    table.input(&icmp(PEER6, OWN, 64, kind, &quoted[14..]));
    assert!(matches!(
        table.fx.events.last(),
        Some(Event::UdpFailed { .. })
    ));
    let others = datagram((FAR, 1000), (PEER6, 7), b"x");
    table.input(&icmp(PEER6, OWN, 64, kind, &others[14..]));
    assert_eq!(table.count(Counter::DropIcmpQuote), 1);
}

#[test]
fn a_datagram_without_or_with_a_wrong_checksum_is_refused() {
    // RFC 8200 8.1.
    let mut table = table();
    table.bind("[::]:1000");
    let mut bare = datagram((PEER6, 7), (OWN, 1000), b"x");
    bare[60..62].copy_from_slice(&[0, 0]);
    table.input(&bare);
    let mut wrong = datagram((PEER6, 7), (OWN, 1000), b"x");
    wrong[62] ^= 1;
    table.input(&wrong);
    assert_eq!(table.count(Counter::DropUdpChecksum), 2);
    assert!(table.fx.datagrams.is_empty());
}

#[test]
fn a_socket_of_both_families_takes_both_and_one_of_ipv6_alone_its_own() {
    let mut table = table();
    let both = table.bind("[::]:1000");
    table.input(&udp_frame((PEER, 7), (IP, 1000), b"four"));
    table.input(&datagram((PEER6, 7), (OWN, 1000), b"six"));
    assert_eq!(table.fx.datagrams.len(), 2);
    assert!(table.fx.datagrams.iter().all(|taken| taken.0 == both));
    let only = UdpOptions {
        is_v6_only: true,
        ..UdpOptions::default()
    };
    let any = "[::]:2000".parse().unwrap();
    let six = table.stack.udp_bind(any, only).unwrap();
    let four = table.bind("0.0.0.0:2000");
    table.input(&udp_frame((PEER, 7), (IP, 2000), b"four"));
    table.input(&datagram((PEER6, 7), (OWN, 2000), b"six"));
    let takers: Vec<_> = table.fx.datagrams[2..]
        .iter()
        .map(|taken| taken.0)
        .collect();
    assert_eq!(takers, [four, six]);
}

#[test]
fn sending_without_a_route_is_refused() {
    let mut table = table();
    let udp = table.bind("[::]:1000");
    let mut send = |to| {
        table.stack.udp_send(
            table.now,
            udp,
            &DatagramOut::new(Some(to), b"x"),
            &mut table.fx,
        )
    };
    assert_eq!(send(at6(FAR, 1)), Err(SocketError::NetUnreachable));
    assert_eq!(
        send(at6(Ipv6Addr::LOCALHOST, 1)),
        Err(SocketError::NetUnreachable)
    );
    assert_eq!(
        send(at6(Ipv6Addr::UNSPECIFIED, 1)),
        Err(SocketError::InvalidArgument)
    );
}

#[test]
fn a_query_about_one_group_and_one_of_version_1_are_answered() {
    // RFC 3810 5.1, 6.2 and 8.1.
    let mut table = table();
    table.stack.announce_groups(table.now, &mut table.fx);
    table.pass(1001);
    table.take_frames();
    let router = "fe80::1".parse().unwrap();
    let query = Icmpv6Kind::MldQuery([0x27, 0x10, 0, 0]);
    let group = solicited_node(OWN);
    let about = [&group.octets()[..], &[0; 4]].concat();
    for (dst, body) in [(group, &about[..]), (ALL_NODES, &[0; 16])] {
        table.input(&icmp(router, dst, 1, query, body));
        table.pass(10_001);
        assert_eq!(table.take_frames().len(), 1, "{} bytes", body.len());
    }
}

#[test]
fn the_groups_of_assigned_addresses_are_reported_unsolicited_and_on_query() {
    // RFC 3810 5.2, 6.1 to 6.3, 9.1 and 9.11, RFC 4291 2.8.
    let mut table = table();
    table.stack.announce_groups(table.now, &mut table.fx);
    let frames = table.take_frames();
    let packet = Ipv6Packet::parse(&frames[0][14..]).unwrap();
    let header = packet.header;
    assert_eq!(
        (header.dst.to_string().as_str(), header.hop_limit),
        ("ff02::16", 1)
    );
    assert_eq!((header.next_header, header.src), (0, Ipv6Addr::UNSPECIFIED));
    assert_eq!(
        packet.payload[..8],
        [58, 0, 5, 2, 0, 0, 1, 0],
        "router alert"
    );
    let report = Icmpv6Message::parse(header.src, header.dst, &packet.payload[8..]).unwrap();
    assert_eq!(report.kind, Icmpv6Kind::MldReport([0, 0, 0, 1]));
    assert_eq!(report.body[0], 4);
    assert_eq!(report.body[4..20], solicited_node(OWN).octets());
    let router = "fe80::1".parse().unwrap();
    let query = Icmpv6Kind::MldQuery([0x27, 0x10, 0, 0]);
    table.pass(1001);
    assert_eq!(table.take_frames().len(), 1, "said twice");
    table.input(&icmp(router, ALL_NODES, 1, query, &[0; 20]));
    table.pass(10_001);
    assert_eq!(table.take_frames().len(), 1, "answered within ten seconds");
    table.input(&icmp(PEER6, ALL_NODES, 1, query, &[0; 20]));
    assert_eq!(table.count(Counter::DropMldMalformed), 1);
}

#[test]
fn neighbours_beyond_the_link_are_ignored() {
    // RFC 2710 3 and 4.
    let mut table = table();
    table.stack.announce_groups(table.now, &mut table.fx);
    table.pass(1001);
    table.take_frames();
    let router = "fe80::1".parse().unwrap();
    let query = Icmpv6Kind::MldQuery([0x27, 0x10, 0, 0]);
    let report = Icmpv6Kind::Other { kind: 131, code: 0 };
    let group = solicited_node(OWN);
    let about = [&group.octets()[..], &[0; 4]].concat();
    for (src, dst, ttl, answers) in [
        (PEER6, OWN, 64, 1),
        (PEER6, OWN, 1, 1),
        (router, group, 1, 0),
    ] {
        table.input(&icmp(router, group, 1, query, &about));
        table.input(&icmp(src, dst, ttl, report, &group.octets()));
        table.pass(10_001);
        assert_eq!(table.take_frames().len(), answers, "{src} {ttl}");
    }
    assert_eq!(table.count(Counter::DropMldMalformed), 2);
    assert_eq!(table.count(Counter::RxGroupReports), 1);
}
