//! Neighbour discovery in unusual cases.
//!
//! RFC 4861 4.4, 7.2.4 and 7.2.6, RFC 6980 5.

use std::net::Ipv6Addr;

use crate::support::*;
use slipstack_stack::{Counter, DatagramOut, Role};
use slipstack_wire::icmpv6::{Icmpv6Kind, Icmpv6Message};
use slipstack_wire::ipv6::{Ipv6Packet, solicited_node};
use slipstack_wire::ipv6_extensions::{FRAGMENT, fragment_header};
use slipstack_wire::ndp::{NEIGHBOUR_LEN, Neighbour, flag};
use slipstack_wire::protocol;

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const OWN: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5);
const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const FAR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

fn table(role: Role, has_router: bool) -> Table {
    Table::with(|config| {
        config.role = role;
        config
            .network_mut()
            .own_mut()
            .addresses
            .push((OWN.into(), 64));
        if has_router {
            config
                .network_mut()
                .routes
                .push(slipstack_stack::RouteEntry::default_by(ROUTER.into()));
        }
    })
}

fn solicitation(src: Ipv6Addr, link: Option<[u8; 6]>) -> Vec<u8> {
    let asked = Neighbour {
        target: OWN,
        link,
        nonce: None,
    };
    let mut body = [0; NEIGHBOUR_LEN];
    let len = asked.emit_solicitation(&mut body);
    let kind = Icmpv6Kind::NeighbourSolicitation;
    icmpv6(
        PEER_MAC,
        (src, solicited_node(OWN)),
        255,
        kind,
        &body[..len],
    )
}

#[test]
fn requests_from_another_network_are_answered_if_routed_and_teach_no_neighbour() {
    let mut table = self::table(Role::Standalone, true);
    table.input(&solicitation(FAR, Some(PEER_MAC)));
    let frames = table.take_frames();
    assert_eq!(frames.len(), 1, "nothing is asked of the router");
    assert_eq!(
        (&frames[0][..6], &frames[0][6..12]),
        (&PEER_MAC[..], &MAC[..])
    );
    let packet = Ipv6Packet::parse(&frames[0][14..]).unwrap();
    let header = packet.header;
    assert_eq!((header.src, header.dst, header.hop_limit), (OWN, FAR, 255));
    let told = Icmpv6Message::parse(OWN, FAR, packet.payload).unwrap();
    let flags = flag::SOLICITED | flag::OVERRIDE;
    assert_eq!(
        told.kind,
        Icmpv6Kind::NeighbourAdvertisement([flags, 0, 0, 0])
    );
    let answer = Neighbour::parse_advertisement(told.body).unwrap();
    assert_eq!((answer.target, answer.link), (OWN, Some(MAC)));
    assert!(table.fx.events.is_empty());
    // There is no way back, or it does not say where it is.
    for (has_router, link) in [(false, Some(PEER_MAC)), (true, None)] {
        let mut table = self::table(Role::Standalone, has_router);
        table.input(&solicitation(FAR, link));
        assert!(table.take_frames().is_empty());
        assert_eq!(table.count(Counter::DropNdpOffLink), 1);
    }
    let mut engine = self::table(Role::Engine, true);
    engine.input(&solicitation(FAR, Some(PEER_MAC)));
    assert!(engine.take_frames().is_empty());
}

/// An ICMPv6 frame again, as fragments that begin at these places.
fn cut(frame: &[u8], places: &[usize]) -> Vec<Vec<u8>> {
    let header = Ipv6Packet::parse(&frame[14..]).unwrap().header;
    let message = &frame[54..];
    let len = message.len();
    let ends = places.iter().skip(1).chain([&len]);
    let parts = places.iter().zip(ends).map(|(&from, &to)| {
        let head = fragment_header(protocol::ICMPV6, from as u16, to < len, 7);
        let bytes = [&head[..], &message[from..to]].concat();
        let ends = (header.src, header.dst);
        packet6(PEER_MAC, FRAGMENT, ends, header.hop_limit, &bytes)
    });
    parts.collect()
}

/// RFC 4861 4.4.
#[test]
fn our_address_is_advertised_to_all_twice_two_seconds_apart() {
    // RFC 4861 7.2.6.
    let mut table = self::table(Role::Keeper, true);
    table.stack.announce(table.now, &mut table.fx);
    for (wait_ms, want) in [(0, 1), (1_999, 0), (1, 1), (60_000, 0)] {
        table.pass(wait_ms);
        let told = announcements(&mut table);
        assert_eq!(told.len(), want, "after {wait_ms} ms");
        for (flags, neighbour) in told {
            assert_eq!(flags, flag::OVERRIDE);
            assert_eq!((neighbour.target, neighbour.link), (OWN, Some(MAC)));
        }
    }
    assert_eq!(table.count(Counter::TxNdpAnnouncements), 2);
    assert_eq!(table.count(Counter::TxNdpAdvertisements), 2);
}

/// Neighbour advertisements to all nodes that were sent.
fn announcements(table: &mut Table) -> Vec<(u8, Neighbour)> {
    let frames = table.take_frames();
    let all = frames.iter().filter_map(|frame| {
        let packet = Ipv6Packet::parse(&frame[14..])?;
        let (src, dst) = (packet.header.src, packet.header.dst);
        let message = Icmpv6Message::parse(src, dst, packet.payload).ok()?;
        let Icmpv6Kind::NeighbourAdvertisement([flags, ..]) = message.kind else {
            return None;
        };
        let told = Neighbour::parse_advertisement(message.body)?;
        (dst == ALL_NODES && src == told.target).then_some((flags, told))
    });
    all.collect()
}

#[test]
fn a_forwarding_stack_sets_the_router_flag() {
    for (forwarding, want) in [(false, 0), (true, flag::ROUTER)] {
        for asker in [PEER6, FAR, Ipv6Addr::UNSPECIFIED] {
            let mut table = Table::with(|config| {
                config.network_mut().is_forwarding = forwarding;
                config
                    .network_mut()
                    .own_mut()
                    .addresses
                    .push((OWN.into(), 64));
                config
                    .network_mut()
                    .routes
                    .push(slipstack_stack::RouteEntry::default_by(ROUTER.into()));
            });
            let link = (!asker.is_unspecified()).then_some(PEER_MAC);
            table.input(&solicitation(asker, link));
            let frames = table.take_frames();
            let packet = Ipv6Packet::parse(&frames[0][14..]).unwrap();
            let (src, dst) = (packet.header.src, packet.header.dst);
            let told = Icmpv6Message::parse(src, dst, packet.payload).unwrap();
            let Icmpv6Kind::NeighbourAdvertisement([flags, ..]) = told.kind else {
                panic!("{told:?}");
            };
            assert_eq!(flags & flag::ROUTER, want, "{asker}");
        }
    }
}

#[test]
fn discovery_in_fragments_is_ignored_and_an_echo_is_not() {
    let near = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
    let asked = solicitation(near, Some(PEER_MAC));
    let echo = Icmpv6Kind::EchoRequest([0, 1, 0, 2]);
    let echo = icmpv6(PEER_MAC, (near, OWN), 255, echo, &[7; 24]);
    for places in [&[0][..], &[0, 16]] {
        let mut table = self::table(Role::Standalone, false);
        for part in cut(&asked, places) {
            table.input(&part);
        }
        assert!(table.take_frames().is_empty() && table.fx.events.is_empty());
        assert_eq!(table.count(Counter::DropNdpFragment), 1);
        table.input(&asked);
        assert_eq!(table.take_frames().len(), 1);
        for part in cut(&echo, places) {
            table.input(&part);
        }
        assert_eq!(table.take_frames().len(), 1);
        assert_eq!(table.count(Counter::DropNdpFragment), 1);
    }
}

#[test]
fn an_unsolicited_neighbour_address_is_used_for_five_seconds_before_it_is_verified() {
    // RFC 4861 7.3.1 and 10: DELAY_FIRST_PROBE_TIME, and REACHABLE_TIME for a confirmed entry.
    for (is_confirmed, wait_ms, frames) in [
        (false, 4_000, 1),
        (false, 6_000, 2),
        (true, 6_000, 1),
        (true, 31_000, 2),
    ] {
        let mut table = table(Role::Standalone, false);
        table.input(&solicitation(PEER6, Some(PEER_MAC)));
        if is_confirmed {
            let mut body = [0; NEIGHBOUR_LEN];
            let answer = Neighbour {
                target: PEER6,
                link: Some(PEER_MAC),
                nonce: None,
            };
            let len = answer.emit_advertisement(&mut body);
            let flags = flag::SOLICITED | flag::OVERRIDE;
            let kind = Icmpv6Kind::NeighbourAdvertisement([flags, 0, 0, 0]);
            table.input(&icmpv6(PEER_MAC, (PEER6, OWN), 255, kind, &body[..len]));
        }
        table.pass(wait_ms);
        table.take_frames();
        let udp = table.bind("[::]:1000");
        let out = DatagramOut::new(Some((PEER6, 7).into()), b"x");
        let sent = table.stack.udp_send(table.now, udp, &out, &mut table.fx);
        sent.unwrap();
        let sent = table.take_frames();
        assert_eq!(sent.len(), frames, "{is_confirmed} {wait_ms}");
        assert!(sent.iter().all(|frame| frame[..6] == PEER_MAC));
    }
}
