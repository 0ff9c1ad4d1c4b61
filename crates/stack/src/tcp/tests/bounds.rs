//! Bounds of timers and of hops that a program sets for its socket.

use alloc::vec::Vec;

use super::harness::*;
use super::moving::moved;
use crate::{Counter, Event, ListenOptions, SocketOption, SocketOptions};
use slipstack_wire::tcp_options::TcpOptions;

fn set(world: &mut World, option: SocketOption) {
    let (now, conn) = (world.now, world.conn.unwrap());
    let set = world.stack.tcp_set_option(now, conn, option, &mut world.fx);
    assert_eq!(set, Ok(()));
}

/// Returns a listener with these options that has received a SYN.
fn called(socket: SocketOptions) -> World {
    let mut world = World::new(config());
    world.listen_with(ListenOptions {
        socket,
        ..ListenOptions::default()
    });
    world.inject((PEER_PORT, PORT), ISS, 0, SYN, &TcpOptions::default(), &[]);
    world.flush();
    world
}

/// Returns after how many milliseconds the first segment is repeated, as often as asked.
fn pauses(world: &mut World, count: usize) -> Vec<u64> {
    let wait = |_| {
        let begin = world.now;
        while world.fx.sent.is_empty() {
            world.sleep(MS);
        }
        world.fx.sent.clear();
        world.now.nanos_since(begin) / MS
    };
    (0..count).map(wait).collect()
}

#[test]
fn a_shorter_timeout_of_a_connection_is_kept_when_it_moves() {
    for moves in [false, true] {
        let mut world = established();
        set(&mut world, SocketOption::RtoMin(5_000));
        set(&mut world, SocketOption::RtoMax(1_000));
        if moves {
            world = moved(world);
        }
        world.write(100);
        world.take_sent();
        let found = pauses(&mut world, 9);
        // Handshake round trip 10 ms, variance 5 ms: the timeout is 30 ms.
        assert!(found[0] <= 31, "{found:?}");
        assert!(
            found[7..].iter().all(|ms| (999..=1001).contains(ms)),
            "{found:?}"
        );
    }
}

#[test]
fn the_first_timeouts_of_a_thin_stream_may_be_equally_long() {
    for (segments, moves) in [(1, false), (1, true), (5, false)] {
        let mut world = established();
        set(&mut world, SocketOption::Linear(true));
        if moves {
            world = moved(world);
        }
        world.write(1_000 * segments);
        world.take_sent();
        let found = pauses(&mut world, 9);
        let is_linear = found[2..6].iter().all(|ms| ms.abs_diff(found[1]) <= 1);
        assert_eq!(is_linear, segments == 1, "{found:?}");
        assert!(found[8] >= 2 * found[7] - 2, "{found:?}");
    }
}

#[test]
fn syn_acks_and_connections_inherit_the_bounds_of_the_listener() {
    let mut world = called(SocketOptions {
        rto_max_ms: 1_000,
        ..SocketOptions::default()
    });
    world.take_sent();
    let found = pauses(&mut world, 3);
    assert!(
        found.iter().all(|ms| (999..=1001).contains(ms)),
        "{found:?}"
    );
}

#[test]
fn tcp_delack_max_us_bounds_the_delay_of_an_ack() {
    let mut world = established();
    set(&mut world, SocketOption::AckDelayMax(3_000));
    set(&mut world, SocketOption::QuickAck(false));
    for _ in 0..2 {
        world.peer(ACK, b"some");
        world.flush();
        world.sleep(4 * MS);
        assert_eq!(world.only().len(), 0);
    }
}

#[test]
fn ip_minttl_drops_packets_with_a_smaller_ttl() {
    let mut world = called(SocketOptions {
        hops_min: 255,
        ..SocketOptions::default()
    });
    world.none();
    world.ttl = 255;
    let conn = world.accept(TcpOptions::default());
    for ttl in [254, 255] {
        world.ttl = ttl;
        world.fx.events.clear();
        world.peer(ACK, b"data");
        let is_taken = world.has(Event::Received { conn, upto: 4 });
        assert_eq!(is_taken, ttl == 255);
        world.seq -= if is_taken { 0 } else { 4 };
    }
    assert_eq!(world.stack.counters().value(Counter::DropTcpHops), 2);
    world.conn = Some(conn);
    let mut world = moved(world);
    world.ttl = 254;
    world.peer(ACK, b"more");
    assert!(
        !world
            .fx
            .events
            .iter()
            .any(|it| matches!(it, Event::Received { .. }))
    );
}

#[test]
fn segments_of_a_train_are_checked_one_by_one() {
    let mut world = established();
    set(&mut world, SocketOption::HopsMin(100));
    let conn = world.conn.unwrap();
    world.ttl = 100;
    world.is_burst = true;
    for _ in 0..3 {
        world.peer(ACK, &[0; 1460]);
    }
    world.ttl = 99;
    world.peer(ACK, &[0; 1460]);
    world.end_burst();
    let upto = |upto| Event::Received { conn, upto };
    assert!(world.has(upto(3 * 1460)) && !world.has(upto(4 * 1460)));
}
