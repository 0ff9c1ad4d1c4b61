//! Packets larger than their path takes.
//!
//! RFC 791 3.2, RFC 1191 3, RFC 6864 4.1, RFC 8200 4.5 and 5, RFC 8201 4.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::support::*;
use slipstack_stack::{
    Counter, DatagramOut, Event, MtuDiscovery, Reason, RxMeta, SocketError, SocketOption,
    SocketOptions, UdpId, UdpOptions,
};
use slipstack_wire::ethernet::{EtherType, EthernetHeader};
use slipstack_wire::icmpv4::{IcmpKind, IcmpMessage};
use slipstack_wire::icmpv6::{Icmpv6Kind, Icmpv6Message};
use slipstack_wire::ipv6::{Ipv6Header, Ipv6Packet};
use slipstack_wire::ipv6_extensions::{self as extensions, Walked};
use slipstack_wire::protocol;

const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5);
const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);

fn table() -> Table {
    let mut table = Table::with(|config| {
        config
            .network_mut()
            .own_mut()
            .addresses
            .push((OWN6.into(), 64))
    });
    table.introduce_peer();
    let now = table.now;
    table
        .stack
        .on_neighbour(now, PEER6.into(), PEER_MAC, &mut table.fx);
    table
}

/// The peer that gets the table's packets.
fn peer() -> Table {
    Table::with(|config| {
        config.mac = PEER_MAC;
        config.network_mut().own_mut().addresses = vec![(PEER.into(), 24), (PEER6.into(), 64)];
    })
}

fn peer_at(is_v6: bool) -> SocketAddr {
    let ip: IpAddr = if is_v6 { PEER6.into() } else { PEER.into() };
    SocketAddr::new(ip, 7)
}

fn bind(table: &mut Table, discovery: MtuDiscovery) -> UdpId {
    let options = UdpOptions {
        socket: SocketOptions {
            mtu_discovery: discovery,
            mtu_discovery_v6: discovery,
            ..SocketOptions::default()
        },
        ..UdpOptions::default()
    };
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 1000));
    table.stack.udp_bind(any, options).unwrap()
}

fn send(table: &mut Table, udp: UdpId, is_v6: bool, bytes: &[u8]) -> Result<(), SocketError> {
    let datagram = DatagramOut::new(Some(peer_at(is_v6)), bytes);
    table
        .stack
        .udp_send(table.now, udp, &datagram, &mut table.fx)
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 / 8) as u8).collect()
}

/// The packet lengths of frames, and which of them may not be cut.
fn lengths(frames: &[Vec<u8>]) -> Vec<(usize, bool)> {
    frames
        .iter()
        .map(|frame| {
            let is_v4 = frame[12..14] == [8, 0];
            (frame.len() - 14, is_v4 && ip_of(frame).header.dont_fragment)
        })
        .collect()
}

/// Sends a router's error that our packet is larger than `mtu`.
fn too_big(table: &mut Table, sent: &[u8], mtu: u16) {
    let quoted = &sent[14..sent.len().min(14 + 500)];
    if sent[12..14] == [8, 0] {
        let kind = IcmpKind::DestinationUnreachable { code: 4, mtu };
        return table.input(&icmp_frame(GATEWAY, IP, kind, quoted));
    }
    let router = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    let message = Icmpv6Message {
        kind: Icmpv6Kind::PacketTooBig { mtu: mtu.into() },
        body: quoted,
    };
    table.input(&frame_v6(
        router,
        protocol::ICMPV6,
        &message.header(router, OWN6),
        quoted,
    ));
}

fn frame_v6(src: Ipv6Addr, next_header: u8, header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 54];
    EthernetHeader {
        dst: MAC,
        src: PEER_MAC,
        ethertype: EtherType::IPV6,
    }
    .emit(&mut frame);
    Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: (header.len() + body.len()) as u16,
        next_header,
        hop_limit: 64,
        src,
        dst: OWN6,
    }
    .emit(&mut frame[14..]);
    frame.extend_from_slice(header);
    frame.extend_from_slice(body);
    frame
}

#[test]
fn a_large_datagram_arrives_whole_and_no_frame_is_larger_than_the_link() {
    // RFC 791 2.3, RFC 1122 3.3.3.
    for (is_v6, longest) in [(false, 65_507), (true, 65_527)] {
        for len in [1473, 2952, 2953, 5000, longest] {
            let (mut table, mut peer) = (table(), peer());
            let udp = bind(&mut table, MtuDiscovery::Want);
            peer.bind("[::]:7");
            send(&mut table, udp, is_v6, &bytes(len)).unwrap();
            let frames = table.take_frames();
            assert!(lengths(&frames).iter().all(|&(len, df)| len <= 1500 && !df));
            for frame in &frames {
                peer.stack
                    .on_frame(peer.now, frame, RxMeta::UNKNOWN, &mut peer.fx);
            }
            assert_eq!(peer.fx.datagrams.len(), 1, "{is_v6} {len}");
            assert_eq!(peer.fx.datagrams[0].3, bytes(len));
            assert_eq!(peer.stack.counters().dropped(), 0);
            assert_eq!(table.count(Counter::TxFragments), frames.len() as u64);
            assert_eq!(table.count(Counter::TxFragmented), 1);
        }
        let mut table = table();
        let udp = bind(&mut table, MtuDiscovery::Want);
        let sent = send(&mut table, udp, is_v6, &bytes(longest + 1));
        assert_eq!(sent, Err(SocketError::MessageTooLong));
    }
}

#[test]
fn oversized_datagrams_follow_the_sockets_mtu_discovery_mode() {
    let too_long = Err(SocketError::MessageTooLong);
    // How a packet of the link's length leaves (whole, may not be fragmented) and the result for a
    // longer one.
    let table_of = [
        (MtuDiscovery::Dont, false, Ok(())),
        (MtuDiscovery::Want, true, Ok(())),
        (MtuDiscovery::Do, true, too_long),
        (MtuDiscovery::Probe, true, too_long),
        (MtuDiscovery::Interface, false, too_long),
        (MtuDiscovery::Omit, false, Ok(())),
    ];
    for (discovery, is_uncut, longer) in table_of {
        let mut table = table();
        let udp = bind(&mut table, discovery);
        send(&mut table, udp, false, &bytes(1472)).unwrap();
        assert_eq!(
            lengths(&table.take_frames()),
            [(1500, is_uncut)],
            "{discovery:?}"
        );
        assert_eq!(
            send(&mut table, udp, false, &bytes(1473)),
            longer,
            "{discovery:?}"
        );
        send(&mut table, udp, true, &bytes(1452)).unwrap();
        assert_eq!(
            send(&mut table, udp, true, &bytes(1453)),
            longer,
            "{discovery:?}"
        );
    }
}

#[test]
fn a_smaller_path_mtu_gives_smaller_fragments() {
    for is_v6 in [false, true] {
        let mut table = table();
        let udp = bind(&mut table, MtuDiscovery::Want);
        table.stack.udp_connect(udp, Some(peer_at(is_v6))).unwrap();
        let largest = bytes(if is_v6 { 1452 } else { 1472 });
        send(&mut table, udp, is_v6, &largest).unwrap();
        let frames = table.take_frames();
        assert_eq!(frames[0].len(), 1514);
        too_big(&mut table, &frames[0], 1400);
        let told = Event::UdpFailed {
            udp,
            reason: Reason::MessageTooLong,
        };
        assert_eq!(table.fx.events.last(), Some(&told));
        assert_eq!(table.count(Counter::PathMtusLearnt), 1);
        send(&mut table, udp, is_v6, &largest).unwrap();
        let lens = lengths(&table.take_frames());
        assert!(
            lens.len() == 2 && lens.iter().all(|&(len, _)| len <= 1400),
            "{lens:?}"
        );
        // After ten minutes the path is tried again.
        table.pass(601_000);
        table.introduce_peer();
        let now = table.now;
        table
            .stack
            .on_neighbour(now, PEER6.into(), PEER_MAC, &mut table.fx);
        send(&mut table, udp, is_v6, &largest).unwrap();
        assert_eq!(table.take_frames().last().unwrap().len(), 1514);
    }
}

#[test]
fn mtu_discovery_modes_refuse_or_use_the_link_mtu_alone() {
    let cases = [
        (MtuDiscovery::Do, Err(SocketError::MessageTooLong)),
        (MtuDiscovery::Probe, Ok(())),
        (MtuDiscovery::Interface, Ok(())),
    ];
    for (discovery, want) in cases {
        let mut table = table();
        let udp = bind(&mut table, discovery);
        send(&mut table, udp, false, &bytes(1472)).unwrap();
        let frames = table.take_frames();
        too_big(&mut table, &frames[0], 1400);
        assert_eq!(
            send(&mut table, udp, false, &bytes(1472)),
            want,
            "{discovery:?}"
        );
    }
}

#[test]
fn a_socket_that_asks_for_errors_is_told_the_mtu_that_a_datagram_exceeds() {
    for is_v6 in [false, true] {
        let mut table = table();
        let udp = bind(&mut table, MtuDiscovery::Do);
        let largest = bytes(if is_v6 { 1452 } else { 1472 });
        send(&mut table, udp, is_v6, &largest).unwrap();
        let frames = table.take_frames();
        too_big(&mut table, &frames[0], 1400);
        let refused = Err(SocketError::MessageTooLong);
        assert_eq!(send(&mut table, udp, is_v6, &largest), refused);
        assert_eq!(table.fx.returned, []);
        for option in [
            SocketOption::ReturnsV4(!is_v6),
            SocketOption::ReturnsV6(is_v6),
        ] {
            table.stack.udp_set_option(udp, option).unwrap();
        }
        assert_eq!(send(&mut table, udp, is_v6, &largest), refused);
        let mut to = peer_at(is_v6);
        let nobody: IpAddr = match is_v6 {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        if !is_v6 {
            // That of the connection, as ip_local_error() has it.
            to.set_port(0);
        }
        let told = (to, Reason::MessageTooLong, nobody, [0, 0], Vec::new());
        assert_eq!(table.fx.returned, [told]);
        assert_eq!(table.fx.returned_info, [1400]);
    }
}

#[test]
fn errors_about_unsent_packets_are_ignored() {
    let mut table = table();
    let udp = bind(&mut table, MtuDiscovery::Want);
    send(&mut table, udp, false, &bytes(100)).unwrap();
    let mut forged = table.take_frames().remove(0);
    // A port of ours that no socket has.
    forged[35] ^= 1;
    too_big(&mut table, &forged, 600);
    assert_eq!(table.count(Counter::PathMtusLearnt), 0);
}

#[test]
fn packets_over_an_unknown_path_mtu_may_be_fragmented_by_routers() {
    let mut table = table();
    let udp = bind(&mut table, MtuDiscovery::Want);
    send(&mut table, udp, false, &bytes(1400)).unwrap();
    let sent = table.take_frames().remove(0);
    too_big(&mut table, &sent, 552);
    send(&mut table, udp, false, &bytes(100)).unwrap();
    assert_eq!(lengths(&table.take_frames()), [(128, true)]);
    too_big(&mut table, &sent, 400);
    send(&mut table, udp, false, &bytes(100)).unwrap();
    assert_eq!(lengths(&table.take_frames()), [(128, false)]);
}

#[test]
fn an_ipv6_path_mtu_below_the_minimum_is_ignored() {
    let mut table = table();
    let udp = bind(&mut table, MtuDiscovery::Want);
    send(&mut table, udp, true, &bytes(1400)).unwrap();
    let sent = table.take_frames().remove(0);
    too_big(&mut table, &sent, 1279);
    assert_eq!(table.count(Counter::PathMtusLearnt), 0);
    too_big(&mut table, &sent, 1280);
    assert_eq!(table.count(Counter::PathMtusLearnt), 1);
}

#[test]
fn identifications_differ_and_only_where_they_are_needed() {
    let mut table = table();
    let udp = bind(&mut table, MtuDiscovery::Want);
    let mut v4 = BTreeSet::new();
    let mut v6 = BTreeSet::new();
    // RFC 7739 5.2: those of IPv6 do not follow from the ones before.
    let mut steps = BTreeSet::new();
    let mut last = 0u32;
    for _ in 0..100 {
        send(&mut table, udp, false, &bytes(2000)).unwrap();
        send(&mut table, udp, true, &bytes(2000)).unwrap();
        let frames = table.take_frames();
        assert_eq!(frames.len(), 4);
        let ids: Vec<u16> = frames[..2]
            .iter()
            .map(|f| ip_of(f).header.identification)
            .collect();
        assert_eq!(ids[0], ids[1]);
        v4.insert(ids[0]);
        let ids: Vec<u32> = frames[2..]
            .iter()
            .map(|frame| {
                let packet = Ipv6Packet::parse(&frame[14..]).unwrap();
                match extensions::walk(packet.header.next_header, packet.payload) {
                    Ok(Walked::Fragment(fragment)) => fragment.identification,
                    other => panic!("{other:?}"),
                }
            })
            .collect();
        assert_eq!(ids[0], ids[1]);
        v6.insert(ids[0]);
        steps.insert(ids[0].wrapping_sub(last));
        last = ids[0];
    }
    assert_eq!(steps.len(), 100);
    assert_eq!((v4.len(), v6.len()), (100, 100));
    send(&mut table, udp, false, &bytes(20)).unwrap();
    assert_eq!(ip_of(&table.take_frames()[0]).header.identification, 0);
}

#[test]
fn a_large_echo_is_answered_in_fragments_of_the_path_mtu() {
    let (mut table, mut peer) = (table(), peer());
    peer.bind("[::]:7");
    let body = bytes(4000);
    let echo = IcmpKind::EchoRequest([1, 2, 3, 4]);
    table.input(&icmp_frame(PEER, IP, echo, &body));
    let frames = table.take_frames();
    assert_eq!(frames.len(), 3);
    let whole: Vec<u8> = frames
        .iter()
        .flat_map(|frame| frame[34..].to_vec())
        .collect();
    let reply = IcmpMessage::parse(&whole).unwrap();
    assert_eq!(
        (reply.kind, reply.body),
        (IcmpKind::EchoReply([1, 2, 3, 4]), &body[..])
    );

    let kind = Icmpv6Kind::EchoRequest([1, 2, 3, 4]);
    let message = Icmpv6Message { kind, body: &body };
    let header = message.header(PEER6, OWN6);
    let ask = frame_v6(PEER6, protocol::ICMPV6, &header, &body);
    table.input(&ask);
    let frames = table.take_frames();
    assert_eq!(frames.len(), 3);
    let whole: Vec<u8> = frames
        .iter()
        .flat_map(|frame| frame[62..].to_vec())
        .collect();
    let reply = Icmpv6Message::parse(OWN6, PEER6, &whole).unwrap();
    assert_eq!(
        (reply.kind, reply.body),
        (Icmpv6Kind::EchoReply([1, 2, 3, 4]), &body[..])
    );
    // RFC 8201: only the sender can cut.
    too_big(&mut table, &frames[0], 1300);
    table.input(&ask);
    assert!(
        lengths(&table.take_frames())
            .iter()
            .all(|&(len, _)| len <= 1300)
    );
}

#[test]
fn all_fragments_of_a_datagram_wait_for_neighbour_resolution() {
    let mut table = Table::new();
    let udp = table.bind("0.0.0.0:1000");
    send(&mut table, udp, false, &bytes(10_000)).unwrap();
    assert_eq!(table.take_frames().len(), 1, "a question");
    let (now, mac) = (table.now, PEER_MAC);
    table
        .stack
        .on_neighbour(now, PEER.into(), mac, &mut table.fx);
    assert_eq!(table.take_frames().len(), 7);
}
