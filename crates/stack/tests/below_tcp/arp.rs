//! ARP: answers, learning, held frames and their lifetime.
//!
//! RFC 1122 2.3.2.

use std::net::Ipv4Addr;

use crate::support::*;
use slipstack_stack::{
    Counter, DatagramOut, Event, NetworkState, Role, SocketError, SocketOption, UdpOptions,
};
use slipstack_wire::arp::ArpOperation;
use slipstack_wire::ethernet::BROADCAST;

#[test]
fn a_request_for_us_is_answered_and_its_sender_learned() {
    let mut table = Table::new();
    table.input(&arp_frame(ArpOperation::Request, PEER_MAC, PEER, IP));
    let reply = arp_of(&table.take_frames()[0]);
    assert_eq!(reply.operation, ArpOperation::Reply);
    assert_eq!((reply.sender_mac, reply.sender_ip), (MAC, IP));
    assert_eq!((reply.target_mac, reply.target_ip), (PEER_MAC, PEER));
    assert_eq!(
        table.fx.events,
        [Event::Neighbour {
            ip: PEER.into(),
            mac: PEER_MAC
        }]
    );
}

#[test]
fn an_engine_does_not_answer_arp_requests_but_learns_the_sender() {
    let mut table = Table::with(|config| config.role = Role::Engine);
    table.input(&arp_frame(ArpOperation::Request, PEER_MAC, PEER, IP));
    assert!(table.take_frames().is_empty());
    assert_eq!(table.fx.events.len(), 1);
}

#[test]
fn an_address_that_another_claims_is_defended_once_in_ten_seconds() {
    // RFC 5227 1.1 and 2.4.
    let claim = arp_frame(ArpOperation::Request, PEER_MAC, IP, IP);
    let mut table = Table::new();
    for (wait_ms, want) in [(0, 1), (0, 0), (9_900, 0), (200, 1)] {
        table.pass(wait_ms);
        table.input(&claim);
        let frames = table.take_frames();
        assert_eq!(frames.len(), want, "after {wait_ms} ms");
        for frame in &frames {
            assert_eq!(frame[..6], BROADCAST);
            let arp = arp_of(frame);
            assert_eq!(
                (arp.operation, arp.sender_mac),
                (ArpOperation::Request, MAC)
            );
            assert_eq!((arp.sender_ip, arp.target_ip), (IP, IP));
        }
    }
    assert_eq!(table.count(Counter::DropArpConflict), 4);
    assert_eq!(table.count(Counter::TxArpDefences), 2);
    let conflict = Event::Conflict {
        ip: IP.into(),
        mac: PEER_MAC,
    };
    assert_eq!(table.fx.events, [conflict, conflict]);
}

#[test]
fn our_address_is_announced_twice_two_seconds_apart() {
    // RFC 5227 1.1 and 2.3.
    let mut table = Table::new();
    table.stack.announce(table.now, &mut table.fx);
    for (wait_ms, want) in [(0, 1), (1_999, 0), (1, 1), (60_000, 0)] {
        table.pass(wait_ms);
        let frames = table.take_frames();
        assert_eq!(frames.len(), want, "after {wait_ms} ms");
        for frame in &frames {
            assert_eq!(frame[..6], BROADCAST);
            let arp = arp_of(frame);
            assert_eq!(arp.operation, ArpOperation::Request);
            assert_eq!((arp.sender_mac, arp.target_mac), (MAC, [0; 6]));
            assert_eq!((arp.sender_ip, arp.target_ip), (IP, IP));
        }
    }
    assert_eq!(table.count(Counter::TxArpAnnouncements), 2);
    assert_eq!(table.count(Counter::TxArpDefences), 0);
    assert_eq!(table.stack.next_deadline(), None);
}

#[test]
fn an_engine_leaves_announcements_to_its_keeper() {
    let mut table = Table::with(|config| config.role = Role::Engine);
    table.stack.announce(table.now, &mut table.fx);
    table.pass(10_000);
    assert!(table.take_frames().is_empty());
}

#[test]
fn an_engine_leaves_the_defence_to_its_keeper() {
    let mut table = Table::with(|config| config.role = Role::Engine);
    table.input(&arp_frame(ArpOperation::Request, PEER_MAC, IP, IP));
    assert!(table.take_frames().is_empty() && table.fx.events.is_empty());
    assert_eq!(table.count(Counter::DropArpConflict), 1);
}

#[test]
fn requests_for_others_and_lying_senders_are_dropped_with_their_counter() {
    let other = Ipv4Addr::new(10, 0, 0, 77);
    let request = ArpOperation::Request;
    let cases = [
        (
            arp_frame(request, PEER_MAC, PEER, other),
            Counter::DropArpUnsolicited,
        ),
        (
            arp_frame(ArpOperation::Reply, PEER_MAC, PEER, IP),
            Counter::DropArpUnsolicited,
        ),
        (arp_frame(request, [0; 6], PEER, IP), Counter::DropArpSender),
        (
            arp_frame(request, [0xff; 6], PEER, IP),
            Counter::DropArpSender,
        ),
        (arp_frame(request, MAC, PEER, IP), Counter::DropArpSender),
        (
            arp_frame(ArpOperation::Reply, PEER_MAC, Ipv4Addr::new(8, 8, 8, 8), IP),
            Counter::DropArpOffLink,
        ),
        (
            arp_frame(request, PEER_MAC, Ipv4Addr::new(127, 0, 0, 1), IP),
            Counter::DropArpOffLink,
        ),
        (
            arp_frame(request, PEER_MAC, Ipv4Addr::new(10, 0, 0, 255), IP),
            Counter::DropArpOffLink,
        ),
        (
            arp_frame(request, PEER_MAC, PEER, IP)[..30].to_vec(),
            Counter::DropArpMalformed,
        ),
    ];
    for (frame, counter) in cases {
        let mut table = Table::new();
        table.input(&frame);
        assert_eq!(table.count(counter), 1, "{counter:?}");
        assert!(table.take_frames().is_empty(), "{counter:?}");
        assert!(table.fx.events.is_empty(), "{counter:?}");
    }
}

#[test]
fn an_address_probe_is_answered_and_teaches_no_neighbour() {
    // RFC 5227 2.1.1.
    let mut table = Table::new();
    table.input(&arp_frame(
        ArpOperation::Request,
        PEER_MAC,
        Ipv4Addr::UNSPECIFIED,
        IP,
    ));
    assert_eq!(
        arp_of(&table.take_frames()[0]).operation,
        ArpOperation::Reply
    );
    assert!(table.fx.events.is_empty());
}

#[test]
fn a_datagram_waits_for_the_answer_and_then_leaves() {
    let mut table = Table::new();
    let udp = table.bind("0.0.0.0:1000");
    table
        .stack
        .udp_send(
            table.now,
            udp,
            &DatagramOut::new(Some(at(PEER, 7)), b"hello"),
            &mut table.fx,
        )
        .unwrap();
    let asked = table.take_frames();
    assert_eq!(asked.len(), 1);
    assert_eq!(arp_of(&asked[0]).target_ip, PEER);
    assert_eq!(&asked[0][..6], &[0xff; 6]);
    table.input(&arp_frame(ArpOperation::Reply, PEER_MAC, PEER, IP));
    let sent = table.take_frames();
    assert_eq!(sent.len(), 1);
    assert_eq!(&sent[0][..6], &PEER_MAC);
    assert_eq!(&ip_of(&sent[0]).payload[8..], b"hello");
}

#[test]
fn a_deleted_neighbour_is_resolved_again() {
    let mut table = Table::new();
    table.input(&arp_frame(ArpOperation::Request, PEER_MAC, PEER, IP));
    table.take_frames();
    let udp = table.bind("0.0.0.0:1000");
    for deletions in [0, 1] {
        let network = NetworkState {
            deletions,
            ..NetworkState::of(1500, vec![(IP.into(), 24)], &[GATEWAY.into()])
        };
        table.stack.set_network(table.now, network.into());
        let datagram = DatagramOut::new(Some(at(PEER, 7)), b"?");
        let sent = table
            .stack
            .udp_send(table.now, udp, &datagram, &mut table.fx);
        sent.unwrap();
        let frames = table.take_frames();
        assert_eq!(frames.len(), 1);
        match deletions {
            0 => assert_eq!(frames[0][..6], PEER_MAC),
            _ => assert_eq!(arp_of(&frames[0]).target_ip, PEER),
        }
    }
}

#[test]
fn destinations_off_link_ask_for_the_gateway() {
    let mut table = Table::new();
    let udp = table.bind("0.0.0.0:1000");
    let far = at(Ipv4Addr::new(8, 8, 8, 8), 53);
    table
        .stack
        .udp_send(
            table.now,
            udp,
            &DatagramOut::new(Some(far), b"?"),
            &mut table.fx,
        )
        .unwrap();
    assert_eq!(arp_of(&table.take_frames()[0]).target_ip, GATEWAY);
}

#[test]
fn a_silent_neighbour_is_asked_three_times_and_then_reported() {
    let mut table = Table::new();
    let udp = table.bind("0.0.0.0:1000");
    table.stack.udp_connect(udp, Some(at(PEER, 7))).unwrap();
    table
        .stack
        .udp_send(
            table.now,
            udp,
            &DatagramOut::new(None, b"hello"),
            &mut table.fx,
        )
        .unwrap();
    table.pass(10_000);
    assert_eq!(table.take_frames().len(), 3);
    assert_eq!(table.count(Counter::DropNeighbourFailed), 1);
    assert_eq!(table.fx.events, [], "it may come back by itself");
    let option = SocketOption::ReturnsV4(true);
    table.stack.udp_set_option(udp, option).unwrap();
    let again = DatagramOut::new(None, b"hello");
    table
        .stack
        .udp_send(table.now, udp, &again, &mut table.fx)
        .unwrap();
    table.pass(10_000);
    table.take_frames();
    let reason = slipstack_stack::Reason::HostUnreachable;
    assert_eq!(table.fx.events, [Event::UdpFailed { udp, reason }]);
    let told = (at(PEER, 7), reason, IP.into(), [3, 1], b"hello".to_vec());
    assert_eq!(table.fx.returned, [told]);
    assert_eq!(table.stack.next_deadline(), None, "nothing is left running");
    table
        .stack
        .udp_send(
            table.now,
            udp,
            &DatagramOut::new(None, b"again"),
            &mut table.fx,
        )
        .unwrap();
    assert_eq!(table.take_frames().len(), 1, "the next packet asks again");
}

#[test]
fn the_queue_of_a_neighbour_keeps_the_newest() {
    let mut table = Table::with(|config| config.neighbour.queue_len_max = 2);
    let udp = table.bind("0.0.0.0:1000");
    for text in [b"1", b"2", b"3"] {
        table
            .stack
            .udp_send(
                table.now,
                udp,
                &DatagramOut::new(Some(at(PEER, 7)), text),
                &mut table.fx,
            )
            .unwrap();
    }
    assert_eq!(table.count(Counter::DropNeighbourQueue), 1);
    table.take_frames();
    table.input(&arp_frame(ArpOperation::Reply, PEER_MAC, PEER, IP));
    let sent: Vec<_> = table
        .take_frames()
        .iter()
        .map(|frame| ip_of(frame).payload[8..].to_vec())
        .collect();
    assert_eq!(sent, [b"2", b"3"]);
}

#[test]
fn an_old_answer_is_used_while_it_is_verified_by_unicast() {
    // RFC 4861 7.3.2 and 7.3.3, of IPv4 too.
    let mut table = Table::new();
    table.introduce_peer();
    let udp = table.bind("0.0.0.0:1000");
    table.pass(31_000);
    table
        .stack
        .udp_send(
            table.now,
            udp,
            &DatagramOut::new(Some(at(PEER, 7)), b"x"),
            &mut table.fx,
        )
        .unwrap();
    let frames = table.take_frames();
    assert_eq!(frames.len(), 2);
    assert_eq!(&frames[0][..6], &PEER_MAC, "asked directly");
    assert_eq!(ip_of(&frames[1]).header.dst, PEER, "and used meanwhile");
    table.input(&arp_frame(ArpOperation::Reply, PEER_MAC, PEER, IP));
    table.pass(20_000);
    assert!(table.take_frames().is_empty());
}

#[test]
fn a_neighbour_that_moves_is_followed_at_once() {
    let mut table = Table::new();
    table.introduce_peer();
    let udp = table.bind("0.0.0.0:1000");
    table
        .stack
        .udp_send(
            table.now,
            udp,
            &DatagramOut::new(Some(at(PEER, 7)), b"x"),
            &mut table.fx,
        )
        .unwrap();
    let moved = [2, 0, 0, 0, 0, 0x99];
    table.input(&arp_frame(ArpOperation::Reply, moved, PEER, IP));
    table.take_frames();
    table
        .stack
        .udp_send(
            table.now,
            udp,
            &DatagramOut::new(Some(at(PEER, 7)), b"y"),
            &mut table.fx,
        )
        .unwrap();
    assert_eq!(&table.take_frames()[0][..6], &moved);
}

#[test]
fn an_engine_gets_resolved_neighbours_from_its_keeper() {
    let mut table = Table::with(|config| config.role = Role::Engine);
    let udp = table.bind("0.0.0.0:1000");
    table
        .stack
        .udp_send(
            table.now,
            udp,
            &DatagramOut::new(Some(at(PEER, 7)), b"x"),
            &mut table.fx,
        )
        .unwrap();
    let mut pending = Vec::new();
    table.stack.pending_neighbours(&mut pending);
    assert_eq!(pending, [PEER]);
    table.take_frames();
    table
        .stack
        .on_neighbour(table.now, PEER.into(), PEER_MAC, &mut table.fx);
    assert_eq!(&table.take_frames()[0][..6], &PEER_MAC);
    pending.clear();
    table.stack.pending_neighbours(&mut pending);
    assert!(pending.is_empty());
}

#[test]
fn a_full_table_forgets_the_longest_unused_and_never_grows() {
    let mut table = Table::with(|config| config.neighbour.entries_max = 4);
    for i in 20..60 {
        table.pass(1);
        table.input(&arp_frame(
            ArpOperation::Request,
            [2, 0, 0, 0, 1, i],
            Ipv4Addr::new(10, 0, 0, i),
            IP,
        ));
    }
    table.take_frames();
    let udp = table
        .stack
        .udp_bind(at(IP, 0), UdpOptions::default())
        .unwrap();
    let mut send = |host| {
        let to = Some(at(Ipv4Addr::new(10, 0, 0, host), 7));
        table
            .stack
            .udp_send(table.now, udp, &DatagramOut::new(to, b""), &mut table.fx)
            .unwrap();
        ethertype(&std::mem::take(&mut table.fx.frames)[0])
    };
    assert_eq!(send(59), 0x0800, "the newest is known");
    assert_eq!(send(20), 0x0806, "the oldest is asked for");
    // With every entry busy resolving, the next unknown neighbour is refused.
    for host in 100..103 {
        send(host);
    }
    let to = Some(at(Ipv4Addr::new(10, 0, 0, 110), 7));
    let refused = table
        .stack
        .udp_send(table.now, udp, &DatagramOut::new(to, b""), &mut table.fx);
    assert_eq!(refused, Err(SocketError::HostUnreachable));
    assert_eq!(table.count(Counter::DropNeighbourTable), 1);
}

fn ethertype(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[12], frame[13]])
}

#[test]
fn requests_from_another_network_are_answered_if_routed_and_teach_no_neighbour() {
    let far = Ipv4Addr::new(8, 8, 8, 8);
    let mut table = Table::new();
    table.input(&arp_frame(ArpOperation::Request, PEER_MAC, far, IP));
    let sent = table.take_frames();
    assert_eq!(sent.len(), 1);
    assert_eq!(
        (arp_of(&sent[0]).operation, &sent[0][..6]),
        (ArpOperation::Reply, &PEER_MAC[..])
    );
    assert!(table.fx.events.is_empty());
    let mut lonely = Table::with(|config| config.network_mut().routes.clear());
    lonely.input(&arp_frame(ArpOperation::Request, PEER_MAC, far, IP));
    assert!(lonely.take_frames().is_empty());
    assert_eq!(lonely.count(Counter::DropArpOffLink), 1);
}
