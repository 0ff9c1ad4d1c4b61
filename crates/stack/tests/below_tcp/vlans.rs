//! Several VLANs of a device in one stack, and replacement of the network configuration.

use std::net::Ipv4Addr;

use crate::support::*;
use slipstack_stack::*;
use slipstack_wire::arp::ArpOperation;

const VLAN: u16 = 10;
const OWN: Ipv4Addr = Ipv4Addr::new(10, 10, 10, 5);
const VIRTUAL: Ipv4Addr = Ipv4Addr::new(110, 110, 10, 1);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 10, 10, 1);
const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 9, 10];
const FAR: Ipv4Addr = Ipv4Addr::new(55, 55, 55, 55);

fn network() -> NetworkState {
    let rule = |net: Ipv4Addr, len| RuleEntry {
        priority: 1000,
        from: Some((net.into(), len)),
        table: 10,
        ..RuleEntry::default()
    };
    let mut network = NetworkState::of(1500, vec![(IP.into(), 24)], &[GATEWAY.into()]);
    network.interfaces.push(Interface {
        link: VLAN,
        mtu: 1400,
        addresses: vec![(OWN.into(), 24), (VIRTUAL.into(), 32)],
        ..Interface::default()
    });
    network.routes.push(RouteEntry {
        link: Some(VLAN),
        table: 10,
        ..RouteEntry::default_by(ROUTER.into())
    });
    network.rules = vec![rule(OWN, 24), rule(VIRTUAL, 32)];
    network
}

fn table() -> Table {
    Table::with(|config| config.network = network().into())
}

fn input_in(table: &mut Table, link: u16, frame: &[u8]) {
    let meta = RxMeta {
        link,
        ..RxMeta::UNKNOWN
    };
    table.stack.on_frame(table.now, frame, meta, &mut table.fx);
}

/// The frames since the last call, with their VLANs.
fn taken(table: &mut Table) -> Vec<(u16, Vec<u8>)> {
    let links = std::mem::take(&mut table.fx.links);
    links.into_iter().zip(table.take_frames()).collect()
}

fn ask(whom: Ipv4Addr) -> Vec<u8> {
    arp_frame(ArpOperation::Request, ROUTER_MAC, ROUTER, whom)
}

#[test]
fn a_request_in_a_vlan_is_answered_there() {
    let mut table = table();
    for whom in [OWN, VIRTUAL] {
        input_in(&mut table, VLAN, &ask(whom));
        let frames = taken(&mut table);
        assert_eq!(frames.len(), 1, "{whom}");
        assert_eq!(frames[0].0, VLAN);
        assert_eq!(arp_of(&frames[0].1).sender_ip, whom);
    }
}

#[test]
fn a_neighbour_of_a_vlan_is_not_accepted_from_another_link() {
    let mut table = table();
    // It is answered where it asks, as by Linux, and nothing is learnt from it.
    input_in(&mut table, 0, &ask(OWN));
    assert_eq!(taken(&mut table)[0].0, 0);
    let socket = table.bind("10.10.10.5:7");
    let to = DatagramOut::new(Some((ROUTER, 9).into()), b"x");
    let sent = table.stack.udp_send(table.now, socket, &to, &mut table.fx);
    sent.unwrap();
    let frames = taken(&mut table);
    assert_eq!((frames.len(), frames[0].0), (1, VLAN));
    assert_eq!(arp_of(&frames[0].1).target_ip, ROUTER);
}

#[test]
fn packets_from_a_virtual_address_use_the_vlans_gateway() {
    let mut table = table();
    input_in(&mut table, VLAN, &ask(OWN));
    taken(&mut table);
    let socket = table.bind("110.110.10.1:7");
    let to = DatagramOut::new(Some((FAR, 9).into()), b"x");
    let sent = table.stack.udp_send(table.now, socket, &to, &mut table.fx);
    sent.unwrap();
    let frames = taken(&mut table);
    assert_eq!(frames.len(), 1);
    assert_eq!((frames[0].0, &frames[0].1[..6]), (VLAN, &ROUTER_MAC[..]));
    // A datagram from the device's own address goes by the other gateway, which is resolved there.
    let own = table.bind("10.0.0.5:7");
    let sent = table.stack.udp_send(table.now, own, &to, &mut table.fx);
    sent.unwrap();
    let frames = taken(&mut table);
    assert_eq!((frames.len(), frames[0].0), (1, 0));
    assert_eq!(arp_of(&frames[0].1).target_ip, GATEWAY);
}

#[test]
fn a_replaced_network_applies_to_the_next_packet() {
    let mut table = Table::new();
    input_in(&mut table, VLAN, &ask(OWN));
    assert!(taken(&mut table).is_empty());
    table.stack.set_network(table.now, network().into());
    input_in(&mut table, VLAN, &ask(OWN));
    assert_eq!(taken(&mut table).len(), 1);
    let before = NetworkState::of(1500, vec![(IP.into(), 24)], &[GATEWAY.into()]).into();
    table.stack.set_network(table.now, before);
    input_in(&mut table, VLAN, &ask(OWN));
    assert!(taken(&mut table).is_empty());
}

#[test]
fn a_configured_neighbour_is_not_resolved() {
    let mut table = table();
    let mut network = network();
    network.neighbours = vec![NeighbourEntry {
        link: 0,
        ip: GATEWAY.into(),
        mac: PEER_MAC,
    }];
    table.stack.set_network(table.now, network.into());
    let own = table.bind("10.0.0.5:7");
    let to = DatagramOut::new(Some((FAR, 9).into()), b"x");
    let sent = table.stack.udp_send(table.now, own, &to, &mut table.fx);
    sent.unwrap();
    let frames = taken(&mut table);
    assert_eq!((frames.len(), &frames[0].1[..6]), (1, &PEER_MAC[..]));
    // The sender's own address in the request does not change that.
    table.input(&arp_frame(ArpOperation::Request, ROUTER_MAC, GATEWAY, IP));
    taken(&mut table);
    let sent = table.stack.udp_send(table.now, own, &to, &mut table.fx);
    sent.unwrap();
    assert_eq!(taken(&mut table)[0].1[..6], PEER_MAC);
}
