//! Listeners: queues, limits, groups.
//!
//! RFC 9293 3.10.7.2, RFC 4987 3.5.

use super::harness::*;
use crate::{Counter, Event, ListenOptions, SocketError};
use alloc::collections::BTreeSet;
use core::net::SocketAddr;
use slipstack_wire::tcp_options::TcpOptions;

fn syn(world: &mut World, port: u16) {
    world.inject((port, PORT), ISS, 0, SYN, &TcpOptions::default(), &[]);
}

fn complete(world: &mut World, port: u16) -> bool {
    world.take_sent();
    syn(world, port);
    let Some(answer) = world.take_sent().pop().filter(|s| s.is(SYN)) else {
        return false;
    };
    let ack = answer.header.seq.wrapping_add(1);
    let before = world.fx.events.len();
    world.inject((port, PORT), ISS + 1, ack, ACK, &TcpOptions::default(), &[]);
    world.fx.events[before..]
        .iter()
        .any(|e| matches!(e, Event::Accepted { .. }))
}

#[test]
fn a_full_queue_takes_no_more_until_the_program_accepts() {
    let mut world = World::new(config());
    let listener = world.listen_with(ListenOptions {
        backlog: 2,
        ..Default::default()
    });
    assert!((0..3).all(|i| complete(&mut world, 1000 + i)));
    assert!(!complete(&mut world, 2000));
    assert_eq!(world.stack.counters().value(Counter::DropTcpBacklog), 1);
    world.stack.tcp_accepted(listener, 1);
    assert!(complete(&mut world, 2001));
    // More than was offered (some came from another engine): the queue counts as empty, no more.
    world.stack.tcp_accepted(listener, 1000);
    assert!((0..3).all(|i| complete(&mut world, 3000 + i)));
    assert!(!complete(&mut world, 4000));
}

#[test]
fn no_thread_wakes_for_a_connection_that_has_opened() {
    let mut world = World::new(config());
    world.listen();
    world.sleep(10 * SECOND);
    let before = world.stack.next_deadline();
    syn(&mut world, 40_000);
    let repeated = Some(world.now.plus_nanos(SECOND));
    assert!(repeated != before && world.stack.next_deadline() == repeated);
    assert!(complete(&mut world, 40_000));
    assert_eq!(world.stack.next_deadline(), before);
    // The SYN-ACK of a later one is repeated in time, though it stands behind in the queue.
    world.sleep(SECOND / 2);
    syn(&mut world, 40_001);
    let repeated = Some(world.now.plus_nanos(SECOND));
    assert!(world.stack.next_deadline() <= repeated);
    world.sleep(SECOND * 3 / 4);
    assert_eq!(world.stack.next_deadline(), repeated);
}

#[test]
fn connections_that_open_beside_one_that_does_not_cost_one_wake_up() {
    let mut world = World::new(config());
    world.listen();
    syn(&mut world, 40_000);
    world.sleep(SECOND / 10);
    for port in 40_001..40_011 {
        syn(&mut world, port);
        assert!(complete(&mut world, port));
        world.sleep(SECOND / 100);
    }
    // The SYN-ACK of the first is repeated after a second, and then after two more.
    world.sleep(SECOND * 95 / 100);
    let next = world.stack.next_deadline().unwrap();
    assert!(next.0 - world.now.0 > SECOND, "{next:?}, {:?}", world.now);
}

#[test]
fn half_open_connections_are_bounded() {
    let mut world = World::new(config());
    world.listen();
    for port in 1000..2000 {
        syn(&mut world, port);
    }
    assert_eq!(world.stack.tcp_sizes().half_open, 256);
    // The others got a cookie.
    assert_eq!(world.stack.counters().value(Counter::TxTcpCookies), 744);
}

#[test]
fn a_closed_listener_resets_half_open_connections() {
    let mut world = World::new(config());
    let listener = world.listen();
    syn(&mut world, 1000);
    let answer = world.only();
    world.stack.tcp_unlisten(listener).unwrap();
    let ack = answer.header.seq.wrapping_add(1);
    world.inject((1000, PORT), ISS + 1, ack, ACK, &TcpOptions::default(), &[]);
    assert!(world.only().is(RST));
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 0));
    assert!(
        world
            .stack
            .tcp_listen(SocketAddr::from((OURS, PORT)), ListenOptions::default())
            .is_ok()
    );
}

#[test]
fn an_address_is_taken_once_unless_shared() {
    let mut world = World::new(config());
    let local = SocketAddr::from((OURS, PORT));
    let shared = ListenOptions {
        reuse_port: true,
        ..Default::default()
    };
    world
        .stack
        .tcp_listen(local, ListenOptions::default())
        .unwrap();
    assert_eq!(
        world.stack.tcp_listen(local, shared.clone()),
        Err(SocketError::AddrInUse)
    );
    let other = SocketAddr::from((OURS, 81));
    world.stack.tcp_listen(other, shared.clone()).unwrap();
    world.stack.tcp_listen(other, shared).unwrap();
}

#[test]
fn a_group_shares_flows_and_keeps_each_with_its_listener() {
    let mut world = World::new(config());
    let shared = ListenOptions {
        reuse_port: true,
        backlog: 1000,
        ..Default::default()
    };
    for _ in 0..4 {
        world.listen_with(shared.clone());
    }
    assert!((0..200).all(|i| complete(&mut world, 1000 + i)));
    let mut counts = alloc::collections::BTreeMap::new();
    for event in &world.fx.events {
        if let Event::Accepted { listener, .. } = event {
            *counts.entry(listener.index).or_insert(0) += 1;
        }
    }
    assert_eq!(counts.len(), 4);
    assert!(counts.values().all(|n| (20..90).contains(n)), "{counts:?}");
}

#[test]
fn ephemeral_ports_stay_in_their_range_and_do_not_repeat() {
    let mut world = World::new(config());
    world.stack.set_ephemeral(5000, 5009);
    let mut ports = BTreeSet::new();
    for _ in 0..10 {
        let conn = world
            .stack
            .tcp_connect(world.now, None, peer(), &Default::default(), &mut world.fx)
            .unwrap();
        ports.insert(world.stack.tcp_endpoints(conn).unwrap().0.port());
    }
    assert_eq!(
        ports.iter().copied().collect::<alloc::vec::Vec<_>>(),
        (5000..5010).collect::<alloc::vec::Vec<u16>>()
    );
    let full = world
        .stack
        .tcp_connect(world.now, None, peer(), &Default::default(), &mut world.fx);
    assert_eq!(full, Err(SocketError::AddrNotAvailable));
    // Another destination may use the same ports.
    let other = SocketAddr::from((PEER, 9));
    assert!(
        world
            .stack
            .tcp_connect(world.now, None, other, &Default::default(), &mut world.fx)
            .is_ok()
    );
}

#[test]
fn a_half_open_connection_outlives_its_listener_if_a_sibling_is_there() {
    let mut world = World::new(config());
    let shared = ListenOptions {
        reuse_port: true,
        ..Default::default()
    };
    let first = world.listen_with(shared.clone());
    syn(&mut world, 1000);
    let answer = world.only();
    let second = world.listen_with(shared);
    world.stack.tcp_unlisten(first).unwrap();
    let ack = answer.header.seq.wrapping_add(1);
    world.inject((1000, PORT), ISS + 1, ack, ACK, &TcpOptions::default(), &[]);
    let taken = world
        .fx
        .events
        .iter()
        .any(|e| matches!(e, Event::Accepted { listener, .. } if *listener == second));
    assert!(taken);
}

#[test]
fn a_listener_that_yields_serves_only_when_all_do() {
    let mut world = World::new(config());
    let shared = ListenOptions {
        reuse_port: true,
        backlog: 1000,
        ..Default::default()
    };
    let first = world.listen_with(shared.clone());
    let second = world.listen_with(shared);
    let served = |world: &mut World, base: u16| {
        let before = world.fx.events.len();
        assert!((0..20).all(|i| complete(world, base + i)));
        let events = world.fx.events[before..].iter();
        let accepted = events.filter_map(|e| match e {
            Event::Accepted { listener, .. } => Some(*listener),
            _ => None,
        });
        accepted.collect::<BTreeSet<_>>()
    };
    world.stack.tcp_set_yielding(first, true);
    assert_eq!(served(&mut world, 1000), BTreeSet::from([second]));
    world.stack.tcp_set_yielding(second, true);
    assert_eq!(served(&mut world, 2000), BTreeSet::from([first, second]));
    world.stack.tcp_set_yielding(first, false);
    assert_eq!(served(&mut world, 3000), BTreeSet::from([first]));
    world.stack.tcp_unlisten(first).unwrap();
    assert_eq!(served(&mut world, 4000), BTreeSet::from([second]));
}

#[test]
fn a_half_open_connection_ends_with_the_group_of_its_listener() {
    let mut world = World::new(config());
    let listener = world.listen();
    syn(&mut world, 1000);
    world.take_sent();
    world.stack.tcp_unlisten(listener).unwrap();
    world.sleep(4 * SECOND);
    world.none();
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 0));
}
