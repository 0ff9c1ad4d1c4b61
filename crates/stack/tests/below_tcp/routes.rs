//! Configured routes and rules, applied to packets.

use std::net::SocketAddr;

use crate::support::*;
use slipstack_stack::{
    CarriedRange, Counter, DatagramOut, Role, RouteEntry, RouteRefusal, RuleEntry, SocketError,
    UdpId,
};
use slipstack_wire::arp::ArpOperation;

const SECOND: [u8; 4] = [10, 0, 0, 6];
const THIRD: [u8; 4] = [10, 0, 0, 7];
const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 8];

fn route(net: [u8; 4], len: u8, table: u32) -> RouteEntry {
    RouteEntry {
        to: (net.into(), len),
        via: None,
        table,
        ..RouteEntry::default_by(PEER.into())
    }
}

fn refused(net: [u8; 4], len: u8) -> RouteEntry {
    refused_by(RouteRefusal::Unreachable, net, len)
}

fn refused_by(refusal: RouteRefusal, net: [u8; 4], len: u8) -> RouteEntry {
    RouteEntry {
        refusal: Some(refusal),
        ..route(net, len, 254)
    }
}

/// Through the peer: 10.80/16 with a source and an MTU; 10.81/16 is refused; all from the second
/// address by table 100.
fn table() -> Table {
    table_with(Vec::new())
}

/// As [`table`], with further rules.
fn table_with(rules: Vec<RuleEntry>) -> Table {
    let mut table = Table::with(|config| {
        config
            .network_mut()
            .own_mut()
            .addresses
            .push((SECOND.into(), 24));
        config
            .network_mut()
            .own_mut()
            .addresses
            .push((THIRD.into(), 24));
        config.network_mut().routes.clear();
        config.network_mut().routes = vec![
            RouteEntry {
                via: Some(PEER.into()),
                source: Some(THIRD.into()),
                mtu: Some(600),
                ..route([10, 80, 0, 0], 16, 254)
            },
            refused([10, 81, 0, 0], 16),
            refused_by(RouteRefusal::Prohibit, [10, 82, 0, 0], 16),
            refused_by(RouteRefusal::Blackhole, [10, 83, 0, 0], 16),
            RouteEntry {
                via: Some([10, 0, 0, 8].into()),
                ..route([0; 4], 0, 100)
            },
        ];
        config.network_mut().rules = vec![RuleEntry {
            priority: 1000,
            from: Some((SECOND.into(), 32)),
            table: 100,
            ..RuleEntry::default()
        }];
        config.network_mut().rules.extend(rules);
    });
    table.introduce_peer();
    table.input(&arp_frame(
        slipstack_wire::arp::ArpOperation::Request,
        OTHER_MAC,
        [10, 0, 0, 8].into(),
        IP,
    ));
    table.take_frames();
    table
}

fn send(
    table: &mut Table,
    socket: UdpId,
    to: [u8; 4],
    len: usize,
) -> Result<Vec<Vec<u8>>, SocketError> {
    let payload = vec![7; len];
    let to = SocketAddr::from((to, 9));
    let Table { stack, now, fx } = table;
    stack.udp_send(*now, socket, &DatagramOut::new(Some(to), &payload), fx)?;
    Ok(table.take_frames())
}

#[test]
fn a_route_gives_source_gateway_and_mtu() {
    let mut table = table();
    let socket = table.bind("0.0.0.0:7000");
    let frames = send(&mut table, socket, [10, 80, 0, 1], 1000).unwrap();
    assert_eq!(frames.len(), 2);
    assert!(frames[0].len() <= 14 + 600);
    assert_eq!(ip_of(&frames[0]).header.src.octets(), THIRD);
    assert_eq!(frames[0][..6], PEER_MAC);
}

#[test]
fn a_rule_by_the_source_leads_packets_of_bound_sockets() {
    let mut table = table();
    let first = table.bind("10.0.0.5:7000");
    let second = table.bind("10.0.0.6:7000");
    let frames = send(&mut table, first, [10, 80, 0, 1], 10).unwrap();
    assert_eq!(frames[0][..6], PEER_MAC);
    let frames = send(&mut table, second, [10, 80, 0, 1], 10).unwrap();
    assert_eq!(frames[0][..6], OTHER_MAC);
    let frames = send(&mut table, second, [8, 8, 8, 8], 10).unwrap();
    assert_eq!(frames[0][..6], OTHER_MAC);
    assert_eq!(
        send(&mut table, first, [8, 8, 8, 8], 10),
        Err(SocketError::NetUnreachable)
    );
}

#[test]
fn a_rule_by_protocol_and_ports_leads_single_datagrams() {
    let rule = |protocol| RuleEntry {
        priority: 900,
        carried: CarriedRange {
            protocol: Some(protocol),
            source_ports: Some((7000, 7009)),
            destination_ports: Some((9, 9)),
        },
        table: 100,
        ..RuleEntry::default()
    };
    let mut table = table_with(vec![rule(17)]);
    let sockets = ["0.0.0.0:7000", "0.0.0.0:8000"].map(|at| table.bind(at));
    // From one socket to one address, in turn.
    for (socket, port, is_led) in [
        (0, 9, true),
        (0, 10, false),
        (0, 9, true),
        (1, 9, false),
        (1, 10, false),
    ] {
        let to = SocketAddr::from(([10, 80, 0, 1], port));
        let Table { stack, now, fx } = &mut table;
        let datagram = DatagramOut::new(Some(to), b"x");
        stack
            .udp_send(*now, sockets[socket], &datagram, fx)
            .unwrap();
        let frames = table.take_frames();
        let by = if is_led { OTHER_MAC } else { PEER_MAC };
        assert_eq!(frames[0][..6], by, "{socket} {port}");
    }
    let mut other = table_with(vec![rule(6)]);
    let socket = other.bind("0.0.0.0:7000");
    let frames = send(&mut other, socket, [10, 80, 0, 1], 1).unwrap();
    assert_eq!(frames[0][..6], PEER_MAC);
}

#[test]
fn hosts_of_a_network_without_a_gateway_are_neighbours() {
    for role in [Role::Standalone, Role::Keeper] {
        let mut table = Table::with(|config| {
            config.role = role;
            config.network_mut().routes.clear();
            config.network_mut().routes =
                vec![route([10, 90, 0, 0], 16, 254), refused([10, 90, 7, 0], 24)];
        });
        let socket = table.bind("0.0.0.0:7000");
        let frames = send(&mut table, socket, [10, 90, 0, 7], 10).unwrap();
        let asked = arp_of(&frames[0]);
        assert_eq!(asked.target_ip.octets(), [10, 90, 0, 7]);
        let near = asked.target_ip;
        table.input(&arp_frame(ArpOperation::Reply, OTHER_MAC, near, IP));
        let frames = table.take_frames();
        assert_eq!(frames[0][..6], OTHER_MAC);
        assert_eq!(ip_of(&frames[0]).header.dst, near);
        let refused = [10, 90, 7, 7].into();
        table.input(&arp_frame(ArpOperation::Reply, OTHER_MAC, refused, IP));
        assert_eq!(table.count(Counter::DropArpOffLink), 1);
    }
}

#[test]
fn an_unreachable_route_is_distinguished_from_none() {
    let mut table = table();
    let socket = table.bind("0.0.0.0:7000");
    let told = send(&mut table, socket, [10, 81, 0, 1], 10);
    assert_eq!(told, Err(SocketError::HostUnreachable));
    let told = send(&mut table, socket, [8, 8, 8, 8], 10);
    assert_eq!(told, Err(SocketError::NetUnreachable));
    for (to, why) in [
        ("10.81.0.1:9", SocketError::HostUnreachable),
        ("10.82.0.1:9", SocketError::NotPermitted),
        ("10.83.0.1:9", SocketError::InvalidArgument),
        ("8.8.8.8:9", SocketError::NetUnreachable),
    ] {
        assert_eq!(table.stack.udp_connect(socket, to.parse().ok()), Err(why));
    }
}
