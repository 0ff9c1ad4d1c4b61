//! UDP sockets: delivery, and errors to senders.
//!
//! RFC 1122 4.1.3.1, 4.1.3.3 and 4.1.3.4.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;

use crate::support::*;
use slipstack_stack::{
    Counter, DatagramOut, Reason, RxChecksum, RxMeta, SocketError, SocketOption, UdpId, UdpOptions,
};
use slipstack_wire::icmpv4::{IcmpKind, IcmpMessage};
use slipstack_wire::udp::UdpDatagram;

fn shared() -> UdpOptions {
    UdpOptions {
        is_shared: true,
        reuse_port: true,
        ..UdpOptions::default()
    }
}

#[test]
fn a_datagram_reaches_the_socket_of_its_port() {
    let mut table = Table::new();
    let udp = table.bind("10.0.0.5:1000");
    table.input(&udp_frame((PEER, 7), (IP, 1000), b"hello"));
    assert_eq!(
        table.fx.datagrams,
        [(udp, at(PEER, 7), at(IP, 1000), b"hello".to_vec())]
    );
}

#[test]
fn a_priority_tag_is_no_vlan() {
    let mut table = Table::new();
    table.bind("10.0.0.5:1000");
    for (tag, want) in [([0xe0, 0], 1), ([0, 1], 1), ([0, 0], 2)] {
        let mut frame = udp_frame((PEER, 7), (IP, 1000), b"hello");
        frame.splice(12..12, [0x81, 0, tag[0], tag[1]]);
        table.input(&frame);
        assert_eq!(table.fx.datagrams.len(), want);
    }
    assert_eq!(table.count(Counter::DropEthernetVlan), 1);
}

#[test]
fn the_best_match_wins_connected_before_bound_before_wildcard() {
    let mut table = Table::new();
    let bind = |table: &mut Table, ip| table.stack.udp_bind(at(ip, 1000), shared()).unwrap();
    let wildcard = bind(&mut table, Ipv4Addr::UNSPECIFIED);
    let bound = bind(&mut table, IP);
    let connected = bind(&mut table, IP);
    table
        .stack
        .udp_connect(connected, Some(at(PEER, 7)))
        .unwrap();
    table.input(&udp_frame((PEER, 7), (IP, 1000), b"a"));
    table.input(&udp_frame((PEER, 8), (IP, 1000), b"b"));
    table.stack.udp_close(bound).unwrap();
    table.input(&udp_frame((PEER, 8), (IP, 1000), b"c"));
    let takers: Vec<_> = table
        .fx
        .datagrams
        .iter()
        .map(|datagram| datagram.0)
        .collect();
    assert_eq!(takers, [connected, bound, wildcard]);
}

#[test]
fn a_reuse_port_group_spreads_senders_and_keeps_each_at_its_socket() {
    let mut table = Table::new();
    for _ in 0..4 {
        table.stack.udp_bind(at(IP, 1000), shared()).unwrap();
    }
    for port in 1..200 {
        table.input(&udp_frame((PEER, port), (IP, 1000), b""));
        table.input(&udp_frame((PEER, port), (IP, 1000), b""));
    }
    let pairs = table.fx.datagrams.chunks(2);
    assert!(
        pairs.clone().all(|pair| pair[0].0 == pair[1].0),
        "a flow stays at its socket"
    );
    assert_eq!(
        pairs.map(|pair| pair[0].0).collect::<BTreeSet<_>>().len(),
        4
    );
}

#[test]
fn the_last_of_several_sockets_that_reuse_an_address_receives() {
    let mut table = Table::new();
    let only_shared = UdpOptions {
        is_shared: true,
        ..UdpOptions::default()
    };
    let bind = |table: &mut Table| {
        let any = at(Ipv4Addr::UNSPECIFIED, 1000);
        table.stack.udp_bind(any, only_shared.clone()).unwrap()
    };
    let (first, second) = (bind(&mut table), bind(&mut table));
    let hear = |table: &mut Table| {
        table.input(&udp_frame((PEER, 7), (IP, 1000), b""));
        table.fx.datagrams.pop().unwrap().0
    };
    assert_eq!(hear(&mut table), second);
    // As on Linux, a socket that was connected meanwhile counts as bound again.
    table.stack.udp_connect(first, Some(at(PEER, 9))).unwrap();
    assert_eq!(hear(&mut table), second);
    table.stack.udp_connect(first, None).unwrap();
    assert_eq!(hear(&mut table), first);
}

#[test]
fn a_socket_that_waits_for_its_connect_receives_nothing() {
    let mut table = Table::new();
    let any = at(Ipv4Addr::UNSPECIFIED, 1000);
    let first = table.stack.udp_bind(any, shared()).unwrap();
    let second = table.stack.udp_bind(any, shared()).unwrap();
    let awaits = |is_on| SocketOption::AwaitsPeer(is_on);
    table.stack.udp_set_option(second, awaits(true)).unwrap();
    let hear = |table: &mut Table, port| {
        table.input(&udp_frame((PEER, port), (IP, 1000), b""));
        table.fx.datagrams.pop().unwrap().0
    };
    let ports = 7..40;
    assert!(ports.clone().all(|port| hear(&mut table, port) == first));
    table.stack.udp_connect(second, Some(at(PEER, 9))).unwrap();
    assert_eq!(hear(&mut table, 9), second);
    assert_eq!(hear(&mut table, 7), first);
}

#[test]
fn a_port_that_the_stack_chooses_is_unused() {
    let mut table = Table::new();
    table.stack.set_ephemeral(40_000, 40_099);
    let any = at(Ipv4Addr::UNSPECIFIED, 0);
    let ids: Vec<_> = (0..100)
        .map(|_| table.stack.udp_bind(any, shared()).unwrap())
        .collect();
    let ports: BTreeSet<_> = ids
        .iter()
        .filter_map(|&id| table.stack.udp_local(id))
        .map(|local| local.port())
        .collect();
    assert_eq!(ports.len(), 100);
    assert_eq!(
        table.stack.udp_bind(any, shared()),
        Err(SocketError::AddrNotAvailable)
    );
}

#[test]
fn a_broadcast_reaches_wildcard_sockets_only() {
    let mut table = Table::new();
    let wildcard = table
        .stack
        .udp_bind(at(Ipv4Addr::UNSPECIFIED, 1000), shared())
        .unwrap();
    table.stack.udp_bind(at(IP, 1000), shared()).unwrap();
    let broadcast = Ipv4Addr::new(10, 0, 0, 255);
    table.input(&udp_frame((PEER, 7), (broadcast, 1000), b"all"));
    assert_eq!(table.fx.datagrams.len(), 1);
    assert_eq!(table.fx.datagrams[0].0, wildcard);
    table.input(&udp_frame((PEER, 7), (broadcast, 1001), b"nobody"));
    assert_eq!(table.count(Counter::DropUdpGroup), 1);
    assert!(table.take_frames().is_empty(), "no error about a broadcast");
}

#[test]
fn a_closed_port_is_reported_quoting_the_packet_and_not_without_limit() {
    // RFC 1122 4.1.3.3, RFC 1812 4.3.2.3 and 4.3.2.8.
    let mut table = Table::with(|config| config.icmp_errors_per_second = 100);
    table.introduce_peer();
    let frame = udp_frame((PEER, 7), (IP, 1000), &[7; 1000]);
    table.input(&frame);
    let frames = table.take_frames();
    let packet = ip_of(&frames[0]);
    assert!(packet.header.total_len <= 576);
    let message = IcmpMessage::parse(packet.payload).unwrap();
    assert_eq!(
        message.kind,
        IcmpKind::DestinationUnreachable { code: 3, mtu: 0 }
    );
    assert_eq!(message.body, &frame[14..14 + message.body.len()]);
    for _ in 0..1000 {
        table.input(&frame);
    }
    assert_eq!(table.take_frames().len(), 5, "six to one destination");
    assert_eq!(table.count(Counter::DropIcmpRate), 995);
}

#[test]
fn checksums_lengths_and_port_zero_are_checked() {
    let good = udp_frame((PEER, 7), (IP, 1000), b"hello");
    let mut wrong = good.clone();
    wrong[45] ^= 1;
    let mut none = wrong.clone();
    none[40..42].fill(0);
    let mut lie = good.clone();
    lie[39] += 1;
    let cases = [
        (good, None),
        (none, None),
        (wrong, Some(Counter::DropUdpChecksum)),
        (lie, Some(Counter::DropUdpMalformed)),
        (
            udp_frame((PEER, 7), (IP, 0), b""),
            Some(Counter::DropUdpPort),
        ),
    ];
    for (frame, counter) in cases {
        let mut table = Table::new();
        table.bind("0.0.0.0:1000");
        table.input(&frame);
        match counter {
            None => assert_eq!(table.fx.datagrams.len(), 1),
            Some(counter) => {
                assert_eq!(table.count(counter), 1, "{counter:?}");
                assert!(table.fx.datagrams.is_empty());
            }
        }
    }
}

#[test]
fn sent_datagrams_have_the_right_addresses_and_checksum() {
    let mut table = Table::new();
    table.introduce_peer();
    let udp = table.bind("0.0.0.0:1000");
    table
        .stack
        .udp_send(
            table.now,
            udp,
            &DatagramOut::new(Some(at(PEER, 7)), b"odd"),
            &mut table.fx,
        )
        .unwrap();
    let frames = table.take_frames();
    let packet = ip_of(&frames[0]);
    assert_eq!((packet.header.src, packet.header.dst), (IP, PEER));
    let datagram = UdpDatagram::parse(packet.payload).unwrap();
    assert_eq!(
        (datagram.src_port, datagram.dst_port, datagram.payload),
        (1000, 7, &b"odd"[..])
    );
    assert!(slipstack_wire::checksum::is_valid_l4_v4(
        IP,
        PEER,
        17,
        packet.payload
    ));
}

#[test]
fn binding_refuses_used_and_foreign_addresses() {
    let mut table = Table::new();
    table.bind("0.0.0.0:1000");
    let mut bind = |ip, port, options| table.stack.udp_bind(at(ip, port), options);
    let taken = Err(SocketError::AddrInUse);
    assert_eq!(bind(IP, 1000, UdpOptions::default()), taken);
    assert_eq!(bind(IP, 1000, shared()), taken);
    assert_eq!(
        bind(PEER, 1001, shared()),
        Err(SocketError::AddrNotAvailable)
    );
    assert!(bind(IP, 1001, shared()).is_ok());
    assert!(bind(IP, 1001, shared()).is_ok());
    assert_eq!(bind(IP, 1001, UdpOptions::default()), taken);
    let mut bind = |addr: &str| {
        let options = UdpOptions::default();
        table.stack.udp_bind(addr.parse().unwrap(), options)
    };
    assert_eq!(bind("[::]:1001"), Err(SocketError::AddrInUse));
    assert_eq!(bind("[fd00::5]:1"), Err(SocketError::AddrNotAvailable));
}

#[test]
fn ephemeral_ports_are_distinct_and_run_out_cleanly() {
    let mut table = Table::with(|config| config.ephemeral = (40_000, 40_009));
    let mut ports = BTreeSet::new();
    for _ in 0..10 {
        let udp = table
            .stack
            .udp_bind(at(IP, 0), UdpOptions::default())
            .unwrap();
        ports.insert(table.stack.udp_local(udp).unwrap().port());
    }
    assert_eq!(ports, (40_000..=40_009).collect());
    let refused = table.stack.udp_bind(at(IP, 0), UdpOptions::default());
    assert_eq!(refused, Err(SocketError::AddrNotAvailable));
}

#[test]
fn a_stale_id_finds_nothing() {
    let mut table = Table::new();
    let old = table.bind("0.0.0.0:1000");
    table.stack.udp_close(old).unwrap();
    let new = table.bind("0.0.0.0:1000");
    assert_eq!(old.index, new.index);
    assert_eq!(table.stack.udp_local(old), None);
    assert_eq!(table.stack.udp_close(old), Err(SocketError::UnknownId));
    let sent = table.stack.udp_send(
        table.now,
        old,
        &DatagramOut::new(Some(at(PEER, 7)), b""),
        &mut table.fx,
    );
    assert_eq!(sent, Err(SocketError::UnknownId));
}

#[test]
fn sending_refuses_impossible_datagrams() {
    let mut table = Table::with(|config| config.network_mut().routes.clear());
    let udp = table.bind("0.0.0.0:1000");
    let mut send = |dst, payload: &[u8]| {
        table.stack.udp_send(
            table.now,
            udp,
            &DatagramOut::new(dst, payload),
            &mut table.fx,
        )
    };
    assert_eq!(send(None, b""), Err(SocketError::DestinationRequired));
    assert_eq!(
        send(Some(at(PEER, 0)), b""),
        Err(SocketError::InvalidArgument)
    );
    assert_eq!(
        send(Some(at(PEER, 7)), &[0; 65_508]),
        Err(SocketError::MessageTooLong)
    );
    let far = Ipv4Addr::new(8, 8, 8, 8);
    assert_eq!(
        send(Some(at(far, 7)), b""),
        Err(SocketError::NetUnreachable)
    );
    assert!(send(Some(at(PEER, 7)), &[0; 1472]).is_ok());
}

#[test]
fn disconnecting_restores_the_bound_address() {
    let mut table = Table::new();
    let udp = table.bind("0.0.0.0:1000");
    table.stack.udp_connect(udp, Some(at(PEER, 7))).unwrap();
    assert_eq!(table.stack.udp_local(udp), Some(at(IP, 1000)));
    table.stack.udp_connect(udp, None).unwrap();
    assert_eq!(
        table.stack.udp_local(udp),
        Some(at(Ipv4Addr::UNSPECIFIED, 1000))
    );
}

/// A frame that joins datagrams of `size`, its checksum left out.
fn input_joined(table: &mut Table, frame: &[u8], size: u16) {
    let meta = RxMeta {
        checksum: RxChecksum::Partial,
        segment: size,
        ..RxMeta::UNKNOWN
    };
    table.stack.on_frame(table.now, frame, meta, &mut table.fx);
}

#[test]
fn joined_datagrams_are_split_unless_the_socket_has_udp_gro() {
    let mut table = Table::new();
    let udp = table.bind("0.0.0.0:1000");
    let payload: Vec<u8> = (0..25).collect();
    let frame = udp_frame((PEER, 7), (IP, 1000), &payload);
    input_joined(&mut table, &frame, 10);
    let bytes = |table: &Table| -> Vec<Vec<u8>> {
        let datagrams = table.fx.datagrams.iter();
        datagrams.map(|(.., bytes)| bytes.clone()).collect()
    };
    let parts = [&payload[..10], &payload[10..20], &payload[20..]];
    assert_eq!(bytes(&table), parts);
    assert_eq!(table.count(Counter::RxUdp), 3);

    table.fx.datagrams.clear();
    let option = SocketOption::TakesJoined(true);
    table.stack.udp_set_option(udp, option).unwrap();
    input_joined(&mut table, &frame, 10);
    assert_eq!(bytes(&table), [&payload[..]]);
    input_joined(&mut table, &frame, 25);
    assert_eq!(
        bytes(&table).len(),
        2,
        "one datagram of the size is just that"
    );
}

fn send_cut(
    table: &mut Table,
    udp: UdpId,
    dst: SocketAddr,
    len: usize,
    size: u16,
) -> Result<(), SocketError> {
    let payload = vec![7; len];
    let datagram = DatagramOut {
        segment: NonZeroU16::new(size),
        ..DatagramOut::new(Some(dst), &payload)
    };
    table
        .stack
        .udp_send(table.now, udp, &datagram, &mut table.fx)
}

#[test]
fn a_udp_segment_send_is_split_by_the_stack_or_the_device() {
    for has_udp_segmentation in [false, true] {
        let mut table = Table::with(|config| config.has_udp_segmentation = has_udp_segmentation);
        table.introduce_peer();
        let udp = table.bind("0.0.0.0:1000");
        send_cut(&mut table, udp, at(PEER, 7), 2500, 1000).unwrap();
        let lens: Vec<usize> = table.take_frames().iter().map(Vec::len).collect();
        let whole = if has_udp_segmentation {
            vec![2542]
        } else {
            vec![1042, 1042, 542]
        };
        assert_eq!(lens, whole);
        send_cut(&mut table, udp, at(IP, 1000), 2500, 1000).unwrap();
        assert_eq!(table.take_frames().len(), 3, "nobody cuts what stays here");
        let refused = send_cut(&mut table, udp, at(PEER, 7), 3000, 1473);
        assert_eq!(refused, Err(SocketError::MessageTooLong));
        let refused = send_cut(&mut table, udp, at(PEER, 7), 1290, 10);
        assert_eq!(refused, Err(SocketError::InvalidArgument));
    }
}

#[test]
fn a_datagram_may_have_its_own_source_ttl_and_type_of_service() {
    // RFC 1122 3.2.1.7 and 4.1.3.5.
    let other = Ipv4Addr::new(10, 0, 0, 6);
    let mut table = Table::with(|config| {
        config
            .network_mut()
            .own_mut()
            .addresses
            .push((other.into(), 24))
    });
    table.introduce_peer();
    let udp = table.bind("0.0.0.0:1000");
    let named = DatagramOut {
        src: Some(other.into()),
        tos: Some(0xb8),
        ttl: Some(3),
        ..DatagramOut::new(Some(at(PEER, 7)), b"x")
    };
    table
        .stack
        .udp_send(table.now, udp, &named, &mut table.fx)
        .unwrap();
    let frame = table.take_frames().remove(0);
    let header = ip_of(&frame).header;
    assert_eq!((header.src, header.tos, header.ttl), (other, 0xb8, 3));
    let strange = DatagramOut {
        src: Some(PEER.into()),
        ..named
    };
    let refused = table
        .stack
        .udp_send(table.now, udp, &strange, &mut table.fx);
    assert_eq!(refused, Err(SocketError::InvalidArgument));
}

#[test]
fn icmp_errors_reach_an_unconnected_socket_that_requests_them() {
    let mut table = Table::new();
    table.introduce_peer();
    table.fx.events.clear();
    let udp = table.bind("0.0.0.0:1000");
    let sent = udp_frame((IP, 1000), (PEER, 7), b"payload");
    let errors = [
        (1, Reason::HostUnreachable),
        (3, Reason::Refused),
        (7, Reason::HostDown),
    ];
    let tell = |table: &mut Table| {
        for (code, _) in errors {
            let kind = IcmpKind::DestinationUnreachable { code, mtu: 0 };
            table.input(&icmp_frame(GATEWAY, IP, kind, &sent[14..]));
        }
    };
    tell(&mut table);
    assert_eq!((table.fx.events.len(), table.fx.returned.len()), (0, 0));
    let option = SocketOption::ReturnsV4(true);
    table.stack.udp_set_option(udp, option).unwrap();
    tell(&mut table);
    let told = errors.map(|(code, reason)| {
        let payload = b"payload".to_vec();
        (at(PEER, 7), reason, GATEWAY.into(), [3, code], payload)
    });
    assert_eq!(table.fx.returned, told);
    assert_eq!(table.fx.events.len(), 3);
}

#[test]
fn a_connected_socket_gets_permanent_errors_only() {
    let mut table = Table::new();
    table.introduce_peer();
    table.fx.events.clear();
    let udp = table.bind("0.0.0.0:1000");
    table.stack.udp_connect(udp, Some(at(PEER, 7))).unwrap();
    let sent = udp_frame((IP, 1000), (PEER, 7), b"x");
    for code in 0..16 {
        let kind = IcmpKind::DestinationUnreachable { code, mtu: 0 };
        table.input(&icmp_frame(GATEWAY, IP, kind, &sent[14..]));
    }
    let passing = [0, 1, 5, 11, 12].len();
    assert_eq!(table.fx.events.len(), 16 - passing);
    assert!(table.fx.returned.is_empty());
}
