//! A stack that follows its link's routers, frame by frame: probes, advertisements and redirects.
//!
//! RFC 4861 6.1.2, 6.3.4, 8.1 and 8.3, RFC 4862 5.4.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::support::*;
use slipstack_stack::rng::SipKey;
use slipstack_stack::{
    Counter, DatagramOut, Identifiers, Interface, Role, RxMeta, SlaacConfig, UdpId, UdpOptions,
};
use slipstack_wire::LinkId;
use slipstack_wire::icmpv6::{Icmpv6Kind, Icmpv6Message};
use slipstack_wire::ipv6::{Ipv6Header, Ipv6Packet, solicited_node};
use slipstack_wire::ndp::{NEIGHBOUR_LEN, Neighbour};
use slipstack_wire::zone::zoned;

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const OTHER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const FAR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 1);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 2];

fn config() -> SlaacConfig {
    SlaacConfig {
        identifiers: Identifiers {
            secret: SipKey { k0: 1, k1: 2 },
            interface: 3,
        },
        addresses_max: 8,
        image: Vec::new(),
    }
}

fn table() -> Table {
    Table::with(|config| {
        config.role = Role::Keeper;
        config.slaac = Some(self::config());
    })
}

fn frame(src: Ipv6Addr, dst: Ipv6Addr, hops: u8, kind: Icmpv6Kind, body: &[u8]) -> Vec<u8> {
    icmpv6(ROUTER_MAC, (src, dst), hops, kind, body)
}

/// 2001:db8:n::/64 for an hour from a router with its link-layer address and an MTU.
fn advertisement(n: u8, mtu: u32) -> Vec<u8> {
    advertisement_with(n, mtu, 50)
}

fn advertisement_with(n: u8, mtu: u32, hop_limit: u8) -> Vec<u8> {
    let mut body = vec![0; 8];
    body.extend([1, 1]);
    body.extend(ROUTER_MAC);
    body.extend([5, 1, 0, 0]);
    body.extend(mtu.to_be_bytes());
    body.extend([3, 4, 64, 0xc0, 0, 0, 14, 16, 0, 0, 14, 16, 0, 0, 0, 0]);
    body.extend([0x20, 1, 0xd, 0xb8, 0, n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let kind = Icmpv6Kind::RouterAdvertisement([hop_limit, 0, 7, 8]);
    frame(ROUTER, ALL_NODES, 255, kind, &body)
}

fn redirect(src: Ipv6Addr, own: Ipv6Addr, target: Ipv6Addr, to: Ipv6Addr) -> Vec<u8> {
    let mut body = [target.octets(), to.octets()].concat();
    body.extend([2, 1]);
    body.extend(OTHER_MAC);
    frame(src, own, 255, Icmpv6Kind::Redirect, &body)
}

fn own(table: &Table, n: u16) -> Option<Ipv6Addr> {
    let (learnt, _) = table.stack.learnt();
    let addresses = learnt.addresses.iter().map(|known| known.ip);
    addresses.into_iter().find(|ip| ip.segments()[2] == n)
}

/// ICMPv6 messages that were sent.
fn messages(table: &mut Table) -> Vec<(Ipv6Header, Icmpv6Kind, Vec<u8>)> {
    let frames = table.take_frames();
    let all = frames.iter().filter_map(|frame| {
        let packet = Ipv6Packet::parse(&frame[14..])?;
        let (src, dst) = (packet.header.src, packet.header.dst);
        let message = Icmpv6Message::parse(src, dst, packet.payload).ok()?;
        Some((packet.header, message.kind, message.body.to_vec()))
    });
    all.collect()
}

/// A stack with an address of 2001:db8:1::/64 and a socket.
fn up() -> (Table, Ipv6Addr, UdpId) {
    let mut table = table();
    table.pass(1000);
    table.input(&advertisement(1, 1400));
    table.pass(1000);
    let ip = own(&table, 1).unwrap();
    let any = "[::]:7000".parse().unwrap();
    let socket = table.stack.udp_bind(any, UdpOptions::default()).unwrap();
    table.take_frames();
    (table, ip, socket)
}

/// Sends a datagram; its frames.
fn send(table: &mut Table, socket: UdpId, to: Ipv6Addr, payload: &[u8]) -> Vec<Vec<u8>> {
    let to = SocketAddr::new(IpAddr::V6(to), 9);
    let datagram = DatagramOut::new(Some(to), payload);
    let Table { stack, now, fx } = table;
    stack.udp_send(*now, socket, &datagram, fx).unwrap();
    table.take_frames()
}

#[test]
fn an_address_is_probed_for_from_the_unspecified_address_and_then_a_router_is_solicited() {
    // RFC 4861 6.3.7.
    let mut table = table();
    table.pass(1000);
    let messages = messages(&mut table);
    let probes: Vec<_> = messages
        .iter()
        .filter(|(header, ..)| header.src.is_unspecified())
        .filter_map(|(header, kind, body)| {
            let asked = Neighbour::parse_solicitation(body)?;
            let is_probe = *kind == Icmpv6Kind::NeighbourSolicitation
                && asked.link.is_none()
                && header.dst == solicited_node(asked.target)
                && header.hop_limit == 255;
            is_probe.then_some(asked.target)
        })
        .collect();
    assert_eq!(probes.len(), 2);
    let own = probes[0];
    let asked = messages
        .iter()
        .find(|(_, kind, _)| *kind == Icmpv6Kind::RouterSolicitation);
    let (header, _, _) = asked.unwrap();
    assert_eq!((header.src, header.dst), (own, ALL_ROUTERS));
    assert_eq!(table.count(Counter::TxNdpProbes), 2);
}

#[test]
fn an_address_is_announced_once_it_is_assigned() {
    // RFC 4861 7.2.6.
    let mut table = table();
    table.stack.announce(table.now, &mut table.fx);
    table.pass(1000);
    table.input(&advertisement(1, 1400));
    table.pass(10_000);
    let ours = own(&table, 1).unwrap();
    let link_local = own(&table, 0).unwrap();
    let told: Vec<_> = messages(&mut table)
        .iter()
        .filter(|(_, kind, _)| matches!(kind, Icmpv6Kind::NeighbourAdvertisement(_)))
        .filter_map(|(_, _, body)| Some(Neighbour::parse_advertisement(body)?.target))
        .collect();
    assert_eq!(told, [link_local, ours, link_local, ours]);
    assert_eq!(table.count(Counter::TxNdpAnnouncements), 4);
}

#[test]
fn an_address_claimed_by_another_station_during_its_probe_is_not_assigned() {
    for is_advertisement in [true, false] {
        let mut table = table();
        table.pass(50);
        let (_, _, body) = messages(&mut table).pop().unwrap();
        let target = Neighbour::parse_solicitation(&body).unwrap().target;
        let body = target.octets();
        table.input(&if is_advertisement {
            let kind = Icmpv6Kind::NeighbourAdvertisement([0x20, 0, 0, 0]);
            frame(target, ALL_NODES, 255, kind, &body)
        } else {
            let kind = Icmpv6Kind::NeighbourSolicitation;
            frame(
                Ipv6Addr::UNSPECIFIED,
                solicited_node(target),
                255,
                kind,
                &body,
            )
        });
        assert_eq!(table.count(Counter::DropNdpConflict), 1);
        table.pass(1000);
        let (learnt, _) = table.stack.learnt();
        assert_eq!(learnt.addresses.len(), 1);
        assert_ne!(learnt.addresses[0].ip, target);
    }
}

/// RFC 7527 4.1 and 4.2.
#[test]
fn a_probe_that_the_link_loops_back_is_no_conflict() {
    let mut table = table();
    table.pass(150);
    let frames = table.take_frames();
    let probes: Vec<_> = frames
        .iter()
        .filter(|frame| frame[54] == 135)
        .cloned()
        .collect();
    let asked = |frame: &[u8]| Neighbour::parse_solicitation(&frame[62..]).unwrap();
    let (first, second) = (asked(&probes[0]), asked(&probes[1]));
    assert!(first.nonce.is_some());
    assert_eq!(first, second);
    for probe in &probes {
        table.input(probe);
    }
    assert_eq!(table.count(Counter::DropNdpLooped), 2);
    assert_eq!(table.count(Counter::DropNdpConflict), 0);
    // Another station's, with a nonce of its own.
    let mut body = [0; NEIGHBOUR_LEN];
    let other = Neighbour {
        nonce: Some([7; 6]),
        ..first
    };
    let len = other.emit_solicitation(&mut body);
    let kind = Icmpv6Kind::NeighbourSolicitation;
    let group = solicited_node(first.target);
    let none = Ipv6Addr::UNSPECIFIED;
    table.input(&frame(none, group, 255, kind, &body[..len]));
    assert_eq!(table.count(Counter::DropNdpConflict), 1);
    // The next address has another one.
    table.pass(50);
    let frames = table.take_frames();
    let next = frames.iter().find(|frame| frame[54] == 135).unwrap();
    assert_ne!(asked(next).target, first.target);
    assert_ne!(asked(next).nonce, first.nonce);
}

#[test]
fn an_advertisement_is_followed_while_the_stack_runs() {
    let (mut table, first, socket) = up();
    // The router's own address was included: no solicitation is needed.
    let frames = send(&mut table, socket, FAR, &[0; 1500]);
    assert_eq!(frames.len(), 2, "cut by the MTU that the router tells");
    let packet = Ipv6Packet::parse(&frames[0][14..]).unwrap();
    assert!(frames[0].len() <= 14 + 1400 && frames[0][..6] == ROUTER_MAC);
    assert_eq!((packet.header.src, packet.header.hop_limit), (first, 50));
    let (_, before) = table.stack.learnt();
    table.input(&advertisement(1, 1400));
    assert_eq!(table.stack.learnt().1, before, "nothing new");
    table.input(&advertisement(2, 1400));
    table.pass(1000);
    assert!(own(&table, 1).is_some() && own(&table, 2).is_some());
    assert_eq!(table.count(Counter::RxNdpRouters), 3);
}

#[test]
fn advertisements_from_beyond_the_link_are_ignored() {
    let kind = Icmpv6Kind::RouterAdvertisement([64, 0, 7, 8]);
    let global = "2001:db8::1".parse().unwrap();
    let cases = [
        (
            frame(ROUTER, ALL_NODES, 254, kind, &[0; 8]),
            Counter::DropNdpHopLimit,
        ),
        (
            frame(global, ALL_NODES, 255, kind, &[0; 8]),
            Counter::DropNdpMalformed,
        ),
        (
            frame(ROUTER, ALL_NODES, 255, kind, &[0; 7]),
            Counter::DropNdpMalformed,
        ),
        (
            frame(
                ROUTER,
                ALL_NODES,
                255,
                kind,
                &[0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0],
            ),
            Counter::DropNdpMalformed,
        ),
    ];
    for (frame, why) in cases {
        let mut table = table();
        table.pass(1000);
        table.input(&frame);
        assert_eq!(table.count(why), 1, "{why:?}");
        assert!(table.stack.learnt().0.routers.is_empty());
    }
}

#[test]
fn a_redirect_of_the_first_hop_is_followed() {
    // RFC 4861 4.5 and 8.3.
    let (mut table, ip, socket) = up();
    table.input(&redirect(ROUTER, ip, OTHER, FAR));
    assert_eq!(table.count(Counter::RxNdpRedirects), 1);
    let frames = send(&mut table, socket, FAR, b"hello");
    assert_eq!(frames[0][..6], OTHER_MAC);
    // Another destination goes the old way.
    let next = Ipv6Addr::from_bits(FAR.to_bits() + 1);
    let frames = send(&mut table, socket, next, b"hello");
    assert_eq!(frames[0][..6], ROUTER_MAC);
    // One that is on the link itself.
    table.input(&redirect(ROUTER, ip, next, next));
    let frames = send(&mut table, socket, next, b"hello");
    assert_eq!(frames[0][..6], OTHER_MAC);
}

#[test]
fn the_target_of_an_on_link_redirect_is_resolved_and_answers() {
    let (mut table, ip, socket) = up();
    let body = [FAR.octets(), FAR.octets()].concat();
    table.input(&frame(ROUTER, ip, 255, Icmpv6Kind::Redirect, &body));
    let frames = send(&mut table, socket, FAR, b"hello");
    let asked = Ipv6Packet::parse(&frames[0][14..]).unwrap();
    assert_eq!(asked.header.dst, solicited_node(FAR));
    let mut told = FAR.octets().to_vec();
    told.extend([2, 1]);
    told.extend(OTHER_MAC);
    let kind = Icmpv6Kind::NeighbourAdvertisement([0x60, 0, 0, 0]);
    table.input(&icmpv6(OTHER_MAC, (FAR, ip), 255, kind, &told));
    let frames = table.take_frames();
    assert_eq!(frames.len(), 1, "what has waited");
    assert_eq!(frames[0][..6], OTHER_MAC);
    assert_eq!(table.count(Counter::DropNdpOffLink), 0);
}

#[test]
fn a_redirect_against_the_rules_is_dropped_by_reason() {
    let near = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 77);
    let (table, ip, _) = up();
    drop(table);
    let group = ALL_NODES;
    let cases = [
        (redirect(OTHER, ip, OTHER, FAR), Counter::DropNdpRedirect),
        (redirect(ROUTER, ip, OTHER, near), Counter::DropNdpRedirect),
        (redirect(ROUTER, ip, ip, ip), Counter::DropNdpRedirect),
        (redirect(near, ip, OTHER, FAR), Counter::DropNdpMalformed),
        (redirect(ROUTER, ip, near, FAR), Counter::DropNdpMalformed),
        (
            redirect(ROUTER, ip, OTHER, group),
            Counter::DropNdpMalformed,
        ),
        (
            redirect(ROUTER, group, OTHER, FAR),
            Counter::DropNdpMalformed,
        ),
    ];
    for (at, (frame, why)) in cases.into_iter().enumerate() {
        let (mut table, _, socket) = up();
        table.input(&frame);
        assert_eq!(table.count(why), 1, "{at} {why:?}");
        assert_eq!(send(&mut table, socket, FAR, b"hello")[0][..6], ROUTER_MAC);
    }
}

#[test]
fn an_engine_applies_the_addresses_that_its_keeper_learned() {
    let (mut keeper, ip, _) = up();
    let mut engine = Table::with(|config| config.role = Role::Engine);
    let now = engine.now;
    engine.stack.learn(now, keeper.stack.learnt().0.clone());
    assert_eq!(engine.stack.find_source(FAR.into()), Some(ip.into()));
    // The address is deprecated, and another one is there.
    keeper.input(&advertisement(2, 1400));
    keeper.pass(3_590_000);
    keeper.input(&advertisement(2, 1400));
    keeper.pass(9_500);
    let second = own(&keeper, 2).unwrap();
    let now = engine.now;
    engine.stack.learn(now, keeper.stack.learnt().0.clone());
    assert_eq!(engine.stack.find_source(FAR.into()), Some(second.into()));
    keeper.pass(3_600_000);
    let now = engine.now;
    engine.stack.learn(now, keeper.stack.learnt().0.clone());
    assert_eq!(engine.stack.find_source(FAR.into()), None);
}

const VLAN: u16 = 10;

/// Returns the frames that were sent since the last call, each with its link.
fn sent_on(table: &mut Table) -> Vec<(u16, Ipv6Header, Icmpv6Kind)> {
    let links = std::mem::take(&mut table.fx.links);
    let frames = table.take_frames();
    let all = links.iter().zip(&frames).filter_map(|(link, frame)| {
        let packet = Ipv6Packet::parse(&frame[14..])?;
        let (src, dst) = (packet.header.src, packet.header.dst);
        let message = Icmpv6Message::parse(src, dst, packet.payload).ok()?;
        Some((*link, packet.header, message.kind))
    });
    all.collect()
}

fn input_on(table: &mut Table, link: u16, frame: &[u8]) {
    let meta = RxMeta {
        link,
        ..RxMeta::UNKNOWN
    };
    table.stack.on_frame(table.now, frame, meta, &mut table.fx);
}

/// A keeper with a VLAN; the routers of both links have the same link-local address.
fn two_links() -> Table {
    let vlan = Interface {
        link: VLAN,
        mtu: 1500,
        ..Interface::default()
    };
    let mut table = Table::with(|config| {
        config.role = Role::Keeper;
        config.slaac = Some(self::config());
        config.network_mut().interfaces.push(vlan);
    });
    table.pass(1000);
    table
}

#[test]
fn each_link_probes_for_an_address_of_its_own_and_asks_its_routers() {
    // RFC 4862 5.3, RFC 4861 6.3.7.
    let mut table = two_links();
    let sent = sent_on(&mut table);
    for link in [0, VLAN] {
        let of = |kind| {
            let mut all = sent.iter().filter(|it| it.0 == link && it.2 == kind);
            all.next().map(|it| it.1)
        };
        let probe = of(Icmpv6Kind::NeighbourSolicitation).unwrap();
        assert!(probe.src.is_unspecified());
        let asked = of(Icmpv6Kind::RouterSolicitation).unwrap();
        assert!(asked.src.is_unicast_link_local(), "{link}: {}", asked.src);
        // No link of ours stands in a frame.
        assert_eq!(asked.src.segments()[1], 0);
        assert_eq!(solicited_node(asked.src), probe.dst, "{link}");
    }
    let (learnt, _) = table.stack.learnt();
    let own: Vec<_> = learnt.addresses.iter().map(|it| (it.link, it.ip)).collect();
    assert_eq!(own.len(), 2);
    assert_ne!(own[0].1.to_bits() as u64, own[1].1.to_bits() as u64);
}

#[test]
fn routers_of_two_links_with_one_address_are_two() {
    let mut table = two_links();
    table.input(&advertisement(1, 1400));
    input_on(&mut table, VLAN, &advertisement(2, 1300));
    table.pass(1000);
    let learnt = table.stack.learnt().0.clone();
    assert_eq!(learnt.routers.len(), 2);
    assert_eq!(
        (learnt.mtu, &learnt.further_mtus[..]),
        (Some(1400), &[(VLAN, 1300)][..])
    );
    let links: Vec<_> = learnt.networks.iter().map(|net| net.link).collect();
    assert_eq!(links, [0, VLAN]);
    // A neighbour of the VLAN's network is solicited there, from our address there.
    let any = "[::]:7000".parse().unwrap();
    let socket = table.stack.udp_bind(any, UdpOptions::default()).unwrap();
    table.pass(1000);
    sent_on(&mut table);
    let near = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 9);
    let own = learnt
        .addresses
        .iter()
        .find(|it| it.ip.segments()[2] == 2)
        .unwrap();
    let to = SocketAddr::new(near.into(), 9);
    let datagram = DatagramOut::new(Some(to), b"x");
    let Table { stack, now, fx } = &mut table;
    stack.udp_send(*now, socket, &datagram, fx).unwrap();
    let sent = sent_on(&mut table);
    assert_eq!((sent[0].0, sent[0].1.src), (VLAN, own.ip));
}

#[test]
fn packets_have_the_hop_limit_that_the_routers_of_their_link_advertise() {
    // RFC 4861 6.3.2 and 6.3.4; 0: this router leaves it to the stack.
    for (advertised, used) in [(33, 33), (0, 64)] {
        let mut table = two_links();
        table.input(&advertisement(1, 1400));
        input_on(&mut table, VLAN, &advertisement_with(2, 1300, advertised));
        table.pass(1000);
        let any = "[::]:7000".parse().unwrap();
        let socket = table.stack.udp_bind(any, UdpOptions::default()).unwrap();
        for (link, expected) in [(0, 50), (VLAN, used)] {
            table.take_frames();
            let frames = send(&mut table, socket, zoned(ROUTER, LinkId(link)), b"x");
            let packet = Ipv6Packet::parse(&frames[0][14..]).unwrap();
            assert_eq!(packet.header.hop_limit, expected, "link {link}");
        }
    }
}

#[test]
fn packets_to_a_link_local_address_leave_by_the_link_in_its_zone() {
    let mut table = two_links();
    input_on(&mut table, VLAN, &advertisement(2, 1300));
    table.pass(1000);
    let any = "[::]:7000".parse().unwrap();
    let socket = table.stack.udp_bind(any, UdpOptions::default()).unwrap();
    table.take_frames();
    table.fx.links.clear();
    let router = zoned(ROUTER, LinkId(VLAN));
    let frames = send(&mut table, socket, router, b"x");
    assert_eq!(table.fx.links, [VLAN]);
    // Its advertisement has given its link-layer address.
    assert_eq!(frames[0][..6], ROUTER_MAC);
    let packet = Ipv6Packet::parse(&frames[0][14..]).unwrap();
    assert_eq!(packet.header.dst, ROUTER);
    assert!(packet.header.src.is_unicast_link_local());
    let is_valid = slipstack_wire::checksum::is_valid_l4_v6(
        packet.header.src,
        packet.header.dst,
        17,
        packet.payload,
    );
    assert!(is_valid);
    // An equal address on the first link is another neighbour, which has to be resolved.
    table.fx.links.clear();
    let frames = send(&mut table, socket, ROUTER, b"x");
    assert_eq!(
        (&table.fx.links[..], &frames[0][..2]),
        (&[0][..], &[0x33, 0x33][..])
    );
}

#[test]
fn an_address_conflict_counts_on_its_link_alone() {
    // RFC 4862 5.4.3.
    let vlan = Interface {
        link: VLAN,
        mtu: 1500,
        ..Interface::default()
    };
    let mut table = Table::with(|config| {
        config.role = Role::Keeper;
        config.slaac = Some(self::config());
        config.network_mut().interfaces.push(vlan);
    });
    table.pass(1);
    let sent = sent_on(&mut table);
    let probe = sent.iter().find(|it| it.0 == VLAN).unwrap().1;
    let tentative = table.stack.learnt().0.addresses.len();
    assert_eq!(tentative, 0);
    let low = config().identifiers.of_link(LinkId(VLAN));
    let target = low.address(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 0);
    assert_eq!(solicited_node(target), probe.dst);
    let mut body = [0; NEIGHBOUR_LEN];
    let told = Neighbour {
        target,
        link: Some(OTHER_MAC),
        nonce: None,
    };
    let len = told.emit_advertisement(&mut body);
    let kind = Icmpv6Kind::NeighbourAdvertisement([0x20, 0, 0, 0]);
    let claim = frame(target, ALL_NODES, 255, kind, &body[..len]);
    input_on(&mut table, 0, &claim);
    assert_eq!(table.count(Counter::DropNdpConflict), 0);
    input_on(&mut table, VLAN, &claim);
    assert_eq!(table.count(Counter::DropNdpConflict), 1);
    table.pass(1000);
    let learnt = table.stack.learnt().0.clone();
    let there = learnt.addresses.iter().find(|it| it.link == VLAN).unwrap();
    assert_ne!(there.ip, zoned(target, LinkId(VLAN)));
}
