//! Several default routers on a link: which one is used (RFC 4861 6.3.6 and 7.2.5).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::support::*;
use slipstack_stack::rng::SipKey;
use slipstack_stack::{Counter, DatagramOut, Identifiers, Role, SlaacConfig, UdpId, UdpOptions};
use slipstack_wire::icmpv6::{Icmpv6Kind, Icmpv6Message};
use slipstack_wire::ipv6::Ipv6Packet;
use slipstack_wire::ndp::Neighbour;
use slipstack_wire::protocol;

const FIRST: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const SECOND: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const FAR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 1);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

fn mac_of(router: Ipv6Addr) -> [u8; 6] {
    [2, 0, 0, 0, 1, router.octets()[15]]
}

fn frame(src: Ipv6Addr, dst: Ipv6Addr, kind: Icmpv6Kind, body: &[u8]) -> Vec<u8> {
    icmpv6(mac_of(src), (src, dst), 255, kind, body)
}

/// A default router for hours, with 2001:db8:1::/64; it may say its link-layer address.
fn advertise(table: &mut Table, router: Ipv6Addr, says_address: bool) {
    let mut body = vec![0; 8];
    if says_address {
        body.extend([1, 1]);
        body.extend(mac_of(router));
    }
    body.extend([
        3, 4, 64, 0xc0, 0, 0, 0xff, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0x20, 1, 0xd, 0xb8, 0, 1,
    ]);
    body.extend([0; 10]);
    let kind = Icmpv6Kind::RouterAdvertisement([64, 0, 0xff, 0]);
    table.input(&frame(router, ALL_NODES, kind, &body));
}

/// Sends the router's answer.
fn answer(table: &mut Table, router: Ipv6Addr, to: Ipv6Addr) {
    answer_with(table, 0xe0, router, to);
}

fn answer_with(table: &mut Table, flags: u8, router: Ipv6Addr, to: Ipv6Addr) {
    let mut body = router.octets().to_vec();
    body.extend([2, 1]);
    body.extend(mac_of(router));
    let kind = Icmpv6Kind::NeighbourAdvertisement([flags, 0, 0, 0]);
    table.input(&frame(router, to, kind, &body));
}

/// A stack with two routers and a socket.
fn up(says_address: [bool; 2]) -> (Table, UdpId) {
    let mut table = Table::with(|config| {
        config.role = Role::Keeper;
        config.slaac = Some(SlaacConfig {
            identifiers: Identifiers {
                secret: SipKey { k0: 1, k1: 2 },
                interface: 3,
            },
            addresses_max: 8,
            image: Vec::new(),
        });
    });
    table.pass(1000);
    advertise(&mut table, FIRST, says_address[0]);
    advertise(&mut table, SECOND, says_address[1]);
    table.pass(1000);
    let any = "[::]:7000".parse().unwrap();
    let socket = table.stack.udp_bind(any, UdpOptions::default()).unwrap();
    table.take_frames();
    (table, socket)
}

/// Sends a datagram beyond the routers.
fn send(table: &mut Table, socket: UdpId) {
    let to = SocketAddr::new(IpAddr::V6(FAR), 9);
    let datagram = DatagramOut::new(Some(to), b"x");
    let Table { stack, now, fx } = table;
    stack.udp_send(*now, socket, &datagram, fx).unwrap();
}

/// Returns stations that datagrams went to, and neighbours that were solicited, since the last
/// call.
fn seen(table: &mut Table) -> (Vec<[u8; 6]>, Vec<Ipv6Addr>) {
    let (mut hops, mut asked) = (Vec::new(), Vec::new());
    for frame in table.take_frames() {
        let Some(packet) = Ipv6Packet::parse(&frame[14..]) else {
            continue;
        };
        let (src, dst) = (packet.header.src, packet.header.dst);
        if packet.header.next_header == protocol::UDP {
            hops.push(frame[..6].try_into().unwrap());
        } else if let Ok(message) = Icmpv6Message::parse(src, dst, packet.payload)
            && message.kind == Icmpv6Kind::NeighbourSolicitation
        {
            asked.push(Neighbour::parse_solicitation(message.body).unwrap().target);
        }
    }
    (hops, asked)
}

fn hop_of_next(table: &mut Table, socket: UdpId) -> [u8; 6] {
    seen(table);
    send(table, socket);
    seen(table).0[0]
}

/// Time in which a neighbour that does not answer is given up, with traffic at its beginning.
fn fall_silent(table: &mut Table, socket: UdpId) {
    table.pass(60_000);
    send(table, socket);
    table.pass(10_000);
}

#[test]
fn a_router_that_no_longer_answers_is_left_for_another() {
    let (mut table, socket) = up([true, true]);
    assert_eq!(hop_of_next(&mut table, socket), mac_of(FIRST));
    fall_silent(&mut table, socket);
    assert_eq!(table.count(Counter::RoutersLost), 1);
    assert_eq!(hop_of_next(&mut table, socket), mac_of(SECOND));
    advertise(&mut table, FIRST, true);
    assert_eq!(hop_of_next(&mut table, socket), mac_of(FIRST));
}

/// RFC 4861 7.2.5.
#[test]
fn a_router_that_withdraws_is_left() {
    let (mut table, socket) = up([true, true]);
    assert_eq!(hop_of_next(&mut table, socket), mac_of(FIRST));
    let Some(IpAddr::V6(own)) = table.stack.find_source(FIRST.into()) else {
        panic!("no address");
    };
    answer(&mut table, FIRST, own);
    assert_eq!(table.stack.learnt().0.routers, [FIRST, SECOND]);
    answer_with(&mut table, 0x60, FIRST, own);
    assert_eq!(table.stack.learnt().0.routers, [SECOND]);
    assert_eq!(hop_of_next(&mut table, socket), mac_of(SECOND));
    // Until it advertises again.
    advertise(&mut table, FIRST, true);
    assert_eq!(table.stack.learnt().0.routers, [SECOND, FIRST]);
}

#[test]
fn packets_for_a_router_that_never_answers_leave_by_the_next() {
    let (mut table, socket) = up([false, true]);
    send(&mut table, socket);
    let (hops, asked) = seen(&mut table);
    assert_eq!((hops, asked), (vec![], vec![FIRST]));
    table.pass(10_000);
    let (hops, asked) = seen(&mut table);
    assert_eq!(hops, [mac_of(SECOND)]);
    assert!(!asked.is_empty() && asked.iter().all(|ip| *ip == FIRST));
}

#[test]
fn routers_of_which_none_answers_take_turns() {
    let (mut table, socket) = up([false, false]);
    let mut order = Vec::new();
    for _ in 0..6 {
        send(&mut table, socket);
        order.extend(seen(&mut table).1);
        table.pass(2500);
        order.extend(seen(&mut table).1);
    }
    order.dedup();
    assert!(order.len() >= 4, "{order:?}");
    let turns = order.iter().enumerate();
    assert!(
        turns
            .into_iter()
            .all(|(i, ip)| *ip == [FIRST, SECOND][i % 2])
    );
}

#[test]
fn a_router_that_would_be_preferred_is_asked_again_once_a_minute_while_there_is_traffic() {
    // RFC 4191 3.2.
    let (mut table, socket) = up([true, true]);
    send(&mut table, socket);
    fall_silent(&mut table, socket);
    let mut own = None;
    let mut minutes_asked = 0;
    for _ in 0..3 {
        seen(&mut table);
        for _ in 0..12 {
            send(&mut table, socket);
            table.pass(100);
            let learnt = table.stack.learnt().0.clone();
            own = learnt.addresses.iter().map(|known| known.ip).next_back();
            answer(&mut table, SECOND, own.unwrap());
            table.pass(4900);
        }
        minutes_asked += u32::from(seen(&mut table).1.contains(&FIRST));
    }
    assert!(minutes_asked >= 2, "{minutes_asked}");
    assert_eq!(hop_of_next(&mut table, socket), mac_of(SECOND));
    // Without traffic nothing is solicited.
    table.pass(200_000);
    seen(&mut table);
    table.pass(200_000);
    assert!(!seen(&mut table).1.contains(&FIRST));
    // Then it is there again.
    send(&mut table, socket);
    for _ in 0..70 {
        table.pass(1000);
        send(&mut table, socket);
        let asked = seen(&mut table).1;
        if asked.contains(&FIRST) {
            answer(&mut table, FIRST, own.unwrap());
            break;
        }
        answer(&mut table, SECOND, own.unwrap());
    }
    assert_eq!(hop_of_next(&mut table, socket), mac_of(FIRST));
}
