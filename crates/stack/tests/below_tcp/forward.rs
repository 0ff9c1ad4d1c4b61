//! IP forwarding.
//!
//! RFC 1812 4.2.2.9, 4.3.3.4, 5.2.6, 5.3.4 and 5.3.7, RFC 4291 2.5.6, RFC 4443 3.2 and 3.3.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::support::*;
use slipstack_stack::fib::{self, Entry, Prefix, Target};
use slipstack_stack::{Counter, RxChecksum, RxMeta};
use slipstack_wire::arp::ArpOperation;
use slipstack_wire::ethernet::{BROADCAST, EtherType, EthernetHeader};
use slipstack_wire::icmpv4::{IcmpKind, IcmpMessage};
use slipstack_wire::icmpv6::{Icmpv6Kind, Icmpv6Message};
use slipstack_wire::ipv6::{Ipv6Header, Ipv6Packet};
use slipstack_wire::protocol;

const FAR: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);
const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5);
const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
const ROUTER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const FAR6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 8);

fn router() -> Table {
    let mut table = Table::with(|config| {
        config.network_mut().is_forwarding = true;
        config
            .network_mut()
            .own_mut()
            .addresses
            .push((OWN6.into(), 64));
        config
            .network_mut()
            .routes
            .push(slipstack_stack::RouteEntry::default_by(ROUTER6.into()));
    });
    table.introduce_peer();
    let now = table.now;
    for (ip, mac) in [
        (GATEWAY.into(), ROUTER_MAC),
        (PEER6.into(), PEER_MAC),
        (ROUTER6.into(), ROUTER_MAC),
    ] {
        table.stack.on_neighbour(now, ip, mac, &mut table.fx);
    }
    table
}

fn datagram(dst: Ipv4Addr, len: usize) -> Vec<u8> {
    udp_frame((PEER, 7), (dst, 53), &vec![7; len])
}

fn frame_v6(src: Ipv6Addr, dst: Ipv6Addr, hop_limit: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![0; 54];
    let ethernet = EthernetHeader {
        dst: MAC,
        src: PEER_MAC,
        ethertype: EtherType::IPV6,
    };
    ethernet.emit(&mut frame);
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 9,
        payload_len: len as u16,
        next_header: protocol::UDP,
        hop_limit,
        src,
        dst,
    };
    header.emit(&mut frame[14..]);
    frame.resize(54 + len, 7);
    frame
}

fn with_ttl(frame: Vec<u8>, ttl: u8) -> Vec<u8> {
    patch_ip(frame, |header| header[8] = ttl)
}

fn error_of(table: &mut Table) -> IcmpKind {
    let frames = table.take_frames();
    assert_eq!(frames.len(), 1);
    let packet = ip_of(&frames[0]);
    assert_eq!((packet.header.src, packet.header.dst), (IP, PEER));
    IcmpMessage::parse(packet.payload).unwrap().kind
}

#[test]
fn a_host_does_not_forward() {
    let mut table = Table::new();
    table.introduce_peer();
    table.input(&datagram(FAR, 10));
    assert_eq!(table.count(Counter::DropIpv4NotOurs), 1);
    assert!(table.take_frames().is_empty());
}

#[test]
fn a_packet_goes_to_its_next_hop_with_one_hop_less() {
    let mut table = router();
    for len in [0, 10, 1000, 1472] {
        let sent = datagram(FAR, len);
        table.input(&sent);
        let frames = table.take_frames();
        assert_eq!(frames.len(), 1);
        assert_eq!(
            (&frames[0][..6], &frames[0][6..12]),
            (&ROUTER_MAC[..], &MAC[..])
        );
        let (was, is) = (ip_of(&sent), ip_of(&frames[0]));
        assert_eq!((is.header.ttl, is.payload), (63, was.payload));
        assert_eq!((is.header.src, is.header.dst), (PEER, FAR));
    }
    table.input(&frame_v6(PEER6, FAR6, 9, 1000));
    let frames = table.take_frames();
    let packet = Ipv6Packet::parse(&frames[0][14..]).unwrap();
    assert_eq!((packet.header.hop_limit, packet.header.flow_label), (8, 9));
    assert_eq!(packet.payload, [7; 1000]);
    assert_eq!(table.count(Counter::Forwarded), 5);
}

#[test]
fn a_forwarded_partial_checksum_stays_partial() {
    let mut table = router();
    let mut sent = datagram(FAR, 10);
    // The field holds the sum of the pseudo-header, as virtio has it.
    let sum = slipstack_wire::checksum::pseudo_v4(PEER, FAR, 17, 18).fold();
    let whole = sent[40..42].to_vec();
    sent[40..42].copy_from_slice(&sum.to_be_bytes());
    let meta = RxMeta {
        checksum: RxChecksum::Partial,
        ..RxMeta::UNKNOWN
    };
    table.stack.on_frame(table.now, &sent, meta, &mut table.fx);
    assert_eq!(table.take_frames()[0][40..42], whole);
}

#[test]
fn the_sender_gets_an_error_at_the_last_hop() {
    // RFC 1812 4.3.2.7 and 5.3.1.
    let mut table = router();
    table.input(&patch_ip(datagram(FAR, 10), |header| {
        (header[1], header[8]) = (0x11, 1);
    }));
    // RFC 1812 4.3.2.5.
    assert_eq!(ip_of(&table.fx.frames[0]).header.tos, 0xd0);
    assert_eq!(error_of(&mut table), IcmpKind::TimeExceeded { code: 0 });
    table.input(&frame_v6(PEER6, FAR6, 1, 10));
    let frames = table.take_frames();
    let packet = Ipv6Packet::parse(&frames[0][14..]).unwrap();
    let message = Icmpv6Message::parse(OWN6, PEER6, packet.payload).unwrap();
    assert_eq!(message.kind, Icmpv6Kind::TimeExceeded { code: 0 });
    assert_eq!(table.count(Counter::DropForwardTtl), 2);
    // Not about an error.
    let error = IcmpKind::TimeExceeded { code: 0 };
    table.input(&with_ttl(icmp_frame(PEER, FAR, error, &[0; 28]), 1));
    assert!(table.take_frames().is_empty());
}

#[test]
fn the_sender_gets_an_error_without_a_route() {
    // RFC 1812 5.2.7.1.
    let mut table = router();
    table.stack.change_fib(false, |fib| {
        fib.retain(fib::MAIN, |entry| !entry.prefix.is_all())
    });
    table.input(&datagram(FAR, 10));
    let unreachable = IcmpKind::DestinationUnreachable { code: 0, mtu: 0 };
    assert_eq!(error_of(&mut table), unreachable);
    assert_eq!(table.count(Counter::DropForwardRoute), 1);
    // A route that refuses is told otherwise, as by Linux.
    let entry = Entry::new(Prefix::new(FAR.into(), 32), Target::Unreachable);
    let added = table
        .stack
        .change_fib(false, |fib| fib.add(fib::MAIN, entry));
    added.unwrap();
    table.input(&datagram(FAR, 10));
    let unreachable = IcmpKind::DestinationUnreachable { code: 1, mtu: 0 };
    assert_eq!(error_of(&mut table), unreachable);
}

#[test]
fn a_smaller_next_mtu_gives_an_error_or_fragments() {
    // RFC 1191 4.
    let mut table = router();
    let narrow = Entry {
        mtu: Some(600),
        ..Entry::new(
            Prefix::new([8, 8, 8, 0].into(), 24),
            Target::Via(GATEWAY.into()),
        )
    };
    let added = table
        .stack
        .change_fib(false, |fib| fib.add(fib::MAIN, narrow));
    added.unwrap();
    let whole = datagram(FAR, 1000);
    table.input(&patch_ip(whole.clone(), |header| header[6] = 0x40));
    let needed = IcmpKind::DestinationUnreachable { code: 4, mtu: 600 };
    assert_eq!(error_of(&mut table), needed);
    assert_eq!(table.count(Counter::DropForwardTooBig), 1);
    table.input(&whole);
    let frames = table.take_frames();
    let mut bytes = Vec::new();
    for (at, frame) in frames.iter().enumerate() {
        let packet = ip_of(frame);
        assert!(packet.header.total_len <= 600 && packet.header.ttl == 63);
        assert_eq!(usize::from(packet.fragment_offset), bytes.len());
        assert_eq!(packet.has_more, at + 1 < frames.len());
        bytes.extend_from_slice(packet.payload);
    }
    assert_eq!(bytes, ip_of(&whole).payload);
    // In IPv6 only the sender cuts.
    let narrow = Entry {
        mtu: Some(1280),
        ..Entry::new(Prefix::new(FAR6.into(), 32), Target::Via(ROUTER6.into()))
    };
    let added = table
        .stack
        .change_fib(true, |fib| fib.add(fib::MAIN, narrow));
    added.unwrap();
    table.input(&frame_v6(PEER6, FAR6, 9, 1300));
    let frames = table.take_frames();
    let packet = Ipv6Packet::parse(&frames[0][14..]).unwrap();
    let message = Icmpv6Message::parse(OWN6, PEER6, packet.payload).unwrap();
    assert_eq!(message.kind, Icmpv6Kind::PacketTooBig { mtu: 1280 });
}

/// RFC 791 3.1.
#[test]
fn each_fragment_of_a_forwarded_packet_has_the_options_of_rfc_791() {
    let mut table = router();
    let narrow = Entry {
        mtu: Some(600),
        ..Entry::new(
            Prefix::new([8, 8, 8, 0].into(), 24),
            Target::Via(GATEWAY.into()),
        )
    };
    let added = table
        .stack
        .change_fib(false, |fib| fib.add(fib::MAIN, narrow));
    added.unwrap();
    // A timestamp and a router alert.
    let options = [68, 4, 5, 0, 148, 4, 0, 0];
    let plain = datagram(FAR, 1000);
    let mut whole = [&plain[..34], &options, &plain[34..]].concat();
    let len = (whole.len() - 14) as u16;
    whole[14] = 0x47;
    whole[16..18].copy_from_slice(&len.to_be_bytes());
    whole[24..26].fill(0);
    let sum = slipstack_wire::checksum::of(&whole[14..42]);
    whole[24..26].copy_from_slice(&sum.to_be_bytes());
    table.input(&whole);
    let frames = table.take_frames();
    assert_eq!(frames.len(), 2);
    let mut bytes = Vec::new();
    for frame in &frames {
        let packet = ip_of(frame);
        let want = match packet.fragment_offset {
            0 => options,
            _ => [1, 1, 1, 1, 148, 4, 0, 0],
        };
        assert_eq!(packet.options, want);
        assert!(packet.header.total_len <= 600 && packet.header.ttl == 63);
        bytes.extend_from_slice(packet.payload);
    }
    assert_eq!(bytes, ip_of(&whole).payload);
}

/// RFC 791 3.1.
#[test]
fn a_fragment_beyond_the_largest_packet_is_not_fragmented_again() {
    let mut table = router();
    let narrow = Entry {
        mtu: Some(600),
        ..Entry::new(
            Prefix::new([8, 8, 8, 0].into(), 24),
            Target::Via(GATEWAY.into()),
        )
    };
    let added = table
        .stack
        .change_fib(false, |fib| fib.add(fib::MAIN, narrow));
    added.unwrap();
    let last = |offset: u16| {
        patch_ip(datagram(FAR, 992), |header| {
            header[6..8].copy_from_slice(&(offset / 8).to_be_bytes());
        })
    };
    table.input(&last(65_000));
    assert!(table.take_frames().is_empty());
    assert_eq!(table.count(Counter::DropFragmentMalformed), 1);
    table.input(&last(64_512));
    assert_eq!(table.take_frames().len(), 2);
}

#[test]
fn link_local_packets_are_not_forwarded() {
    // RFC 3927 2.7, RFC 4291 2.5.2.
    let v4 = |src: [u8; 4], dst: [u8; 4]| udp_frame((src.into(), 7), (dst.into(), 53), b"x");
    let local: Ipv6Addr = "fe80::9".parse().unwrap();
    let mut group = datagram(FAR, 10);
    group[..6].copy_from_slice(&BROADCAST);
    let frames = [
        v4([169, 254, 1, 1], [8, 8, 8, 8]),
        v4([10, 0, 0, 9], [169, 254, 1, 1]),
        v4([10, 0, 0, 9], [127, 0, 0, 1]),
        v4([10, 0, 0, 9], [0, 1, 2, 3]),
        v4([10, 0, 0, 9], [224, 0, 0, 5]),
        v4([10, 0, 0, 9], [240, 0, 0, 5]),
        frame_v6(local, FAR6, 9, 10),
        frame_v6(PEER6, "fe80::77".parse().unwrap(), 9, 10),
        frame_v6(PEER6, "ff0e::77".parse().unwrap(), 9, 10),
        frame_v6(Ipv6Addr::UNSPECIFIED, FAR6, 9, 10),
        group,
    ];
    let mut table = router();
    for frame in &frames {
        table.input(frame);
    }
    assert!(table.take_frames().is_empty());
    assert_eq!(
        table.count(Counter::DropForwardMartian),
        frames.len() as u64
    );
    assert_eq!(table.count(Counter::Forwarded), 0);
}

#[test]
fn a_router_resolves_next_hops_with_its_own_source_address() {
    // RFC 4861 7.2.2.
    const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 77];
    let mut table = router();
    let near = Ipv4Addr::new(10, 0, 0, 77);
    table.input(&datagram(near, 100));
    let asked = arp_of(&table.take_frames()[0]);
    assert_eq!((asked.sender_ip, asked.sender_mac), (IP, MAC));
    table.input(&arp_frame(ArpOperation::Reply, NEAR_MAC, near, IP));
    let frames = table.take_frames();
    assert_eq!(frames[0][..6], NEAR_MAC);
    assert_eq!(ip_of(&frames[0]).header.src, PEER);

    let near: Ipv6Addr = "fd00::77".parse().unwrap();
    table.input(&frame_v6(PEER6, near, 9, 100));
    let frames = table.take_frames();
    let asked = Ipv6Packet::parse(&frames[0][14..]).unwrap().header;
    assert_eq!((frames.len(), asked.src), (1, OWN6));
    let mut told = near.octets().to_vec();
    told.extend([2, 1]);
    told.extend(NEAR_MAC);
    let kind = Icmpv6Kind::NeighbourAdvertisement([0x60, 0, 0, 0]);
    table.input(&icmpv6(NEAR_MAC, (near, asked.src), 255, kind, &told));
    let frames = table.take_frames();
    assert_eq!(frames[0][..6], NEAR_MAC);
    let packet = Ipv6Packet::parse(&frames[0][14..]).unwrap();
    assert_eq!((packet.header.src, packet.header.hop_limit), (PEER6, 8));
}

#[test]
fn the_sender_gets_an_error_about_a_neighbour_that_does_not_answer() {
    let mut table = router();
    let nobody = Ipv4Addr::new(10, 0, 0, 77);
    table.input(&datagram(nobody, 100));
    assert_eq!(table.take_frames().len(), 1, "a question");
    table.pass(10_000);
    let errors = table
        .take_frames()
        .into_iter()
        .filter(|frame| frame[12..14] == [8, 0]);
    let kinds: Vec<IcmpKind> = errors
        .map(|frame| IcmpMessage::parse(ip_of(&frame).payload).unwrap().kind)
        .collect();
    assert_eq!(
        kinds,
        [IcmpKind::DestinationUnreachable { code: 1, mtu: 0 }]
    );
}
