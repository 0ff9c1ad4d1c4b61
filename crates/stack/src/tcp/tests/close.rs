//! RFC 9293 3.6 and 3.10.4: every way to end.

use super::harness::*;
use crate::{CloseMode, Counter, Event, Instant, ListenerId};
use alloc::vec::Vec;
use slipstack_wire::tcp_options::TcpOptions;

fn close(world: &mut World) {
    let conn = world.conn.unwrap();
    world
        .stack
        .tcp_close(world.now, conn, CloseMode::Orderly, false, &mut world.fx);
    world.flush();
}

fn fin_sent(world: &mut World) -> u32 {
    let fin = world.only();
    assert!(fin.is(FIN));
    fin.header.seq
}

#[test]
fn the_side_that_closes_first_waits() {
    // RFC 9293 3.10.8: TIME-WAIT ends.
    let mut world = established();
    close(&mut world);
    fin_sent(&mut world);
    world.acknowledge(1);
    assert!(!world.is_released());
    world.peer(FIN | ACK, &[]);
    assert!(world.is_released());
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 1));
    assert!(world.only().is(ACK));
    // The peer's FIN again (our ACK was lost): acknowledged again, and 2 MSL start again.
    world.now.0 += 30 * SECOND;
    world.seq = world.seq.wrapping_sub(1);
    world.peer(FIN | ACK, &[]);
    assert!(world.only().is(ACK));
    world.sleep(59 * SECOND);
    assert_eq!(world.stack.tcp_sizes().time_wait, 1);
    world.sleep(62 * SECOND);
    assert_eq!(world.stack.tcp_sizes().time_wait, 0);
}

#[test]
fn the_side_that_closes_second_is_gone_with_the_last_ack() {
    let mut world = established();
    world.peer(FIN | ACK, &[]);
    assert!(world.has(Event::Fin {
        conn: world.conn.unwrap()
    }));
    world.sleep(5 * MS);
    assert!(world.only().is(ACK));
    close(&mut world);
    fin_sent(&mut world);
    world.acknowledge(1);
    assert!(world.is_released());
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 0));
}

#[test]
fn both_sides_may_close_at_once() {
    let mut world = established();
    close(&mut world);
    fin_sent(&mut world);
    world.peer(FIN | ACK, &[]);
    assert!(!world.is_released());
    world.flush();
    assert!(world.only().is(ACK));
    world.acknowledge(1);
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 1));
    // RFC 9293 3.10.7.4: nothing is owed for the ACK of our FIN.
    world.flush();
    world.none();
}

#[test]
fn a_fin_follows_everything_that_was_written() {
    let mut world = established();
    let conn = world.conn.unwrap();
    world.stack.tcp_written(conn, 1500, false);
    world.stack.tcp_shutdown(world.now, conn, &mut world.fx);
    world.flush();
    let sent = world.take_sent();
    assert_eq!(
        sent.iter().map(|s| (s.data, s.is(FIN))).collect::<Vec<_>>(),
        [(Some((0, 1000)), false), (Some((1000, 500)), true)]
    );
    // Half-closed: the peer goes on.
    world.acknowledge(1501);
    world.peer(ACK, b"late");
    assert!(world.has(Event::Received { conn, upto: 4 }));
}

#[test]
fn data_for_a_closed_program_is_reset() {
    let mut world = established();
    close(&mut world);
    fin_sent(&mut world);
    world.acknowledge(1);
    world.peer(ACK, b"nobody reads this");
    assert!(world.only().is(RST));
    assert!(world.is_released());
    assert_eq!(world.failed(), None);
}

#[test]
fn closing_with_unread_data_resets() {
    // RFC 2525 2.17.
    let mut world = established();
    world.peer(ACK, b"unread");
    let conn = world.conn.unwrap();
    world
        .stack
        .tcp_close(world.now, conn, CloseMode::Orderly, true, &mut world.fx);
    assert!(world.only().is(RST));
    assert!(world.is_released());
}

#[test]
fn an_orphan_leaves_fin_wait_2_after_its_time() {
    let mut world = established();
    close(&mut world);
    world.acknowledge(1);
    world.take_sent();
    world.sleep(59 * SECOND);
    assert!(!world.is_released());
    world.sleep(2 * SECOND);
    assert!(world.is_released());
}

#[test]
fn with_too_many_orphans_a_close_resets() {
    // Linux: tcp_max_orphans.
    let mut config = config();
    config.tcp.orphans_max = 2;
    let mut world = World::new(config);
    world.listen();
    let mut conns = Vec::new();
    for n in 0..3 {
        let ports = (PEER_PORT + n, PORT);
        world.inject(ports, ISS, 0, SYN, &TcpOptions::default(), &[]);
        let ack = world.only().header.seq.wrapping_add(1);
        world.inject(ports, ISS + 1, ack, ACK, &TcpOptions::default(), &[]);
        conns.extend(world.fx.events.iter().find_map(|event| match event {
            Event::Accepted { conn, .. } => Some(*conn),
            _ => None,
        }));
        world.clear();
    }
    let answers: Vec<_> = conns
        .iter()
        .map(|&conn| {
            let now = world.now;
            world
                .stack
                .tcp_close(now, conn, CloseMode::Orderly, false, &mut world.fx);
            world.flush();
            let answer = world.only();
            (answer.is(FIN), answer.is(RST))
        })
        .collect();
    assert_eq!(answers, [(true, false), (true, false), (false, true)]);
    assert_eq!(world.stack.counters().value(Counter::TcpOrphansReset), 1);
    // Those that have ended make room.
    world.sleep(300 * SECOND);
    assert_eq!(world.stack.tcp_sizes().connections, 0);
}

#[test]
fn a_connection_that_is_not_closed_stays_in_fin_wait_2() {
    let mut world = established();
    let conn = world.conn.unwrap();
    world.stack.tcp_shutdown(world.now, conn, &mut world.fx);
    world.flush();
    world.acknowledge(1);
    world.sleep(3600 * SECOND);
    assert!(!world.is_released());
}

#[test]
fn time_wait_gives_way_to_a_newer_syn() {
    // RFC 9293 3.6.1.
    let mut world = established();
    close(&mut world);
    let fin = fin_sent(&mut world);
    world.acknowledge(1);
    world.peer(FIN | ACK, &[]);
    world.clear();
    // RFC 1337: a reset does not end it.
    world.peer_at(0, RST, &[]);
    assert_eq!(world.stack.tcp_sizes().time_wait, 1);
    // An old SYN is acknowledged, a newer one opens.
    world.inject((PEER_PORT, PORT), ISS, 0, SYN, &TcpOptions::default(), &[]);
    assert!(!world.only().is(SYN));
    world.inject(
        (PEER_PORT, PORT),
        world.seq.wrapping_add(10),
        0,
        SYN,
        &TcpOptions::default(),
        &[],
    );
    let answer = world.only();
    assert!(answer.is(SYN | ACK));
    assert!((answer.header.seq.wrapping_sub(fin) as i32) > 0);
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 1, 0));
}

#[test]
fn a_fin_before_missing_data_waits_for_it() {
    let mut world = established();
    let conn = world.conn.unwrap();
    world.peer_at(5, FIN | ACK, b"world");
    assert!(!world.has(Event::Fin { conn }));
    world.peer_at(0, ACK, b"hello");
    assert!(world.has(Event::Received { conn, upto: 10 }));
    assert!(world.has(Event::Fin { conn }));
}

#[test]
fn our_fin_acknowledges_the_peers() {
    let mut world = established();
    world.peer(FIN | ACK, &[]);
    world.flush();
    world.none();
    close(&mut world);
    let fin = world.only();
    assert_eq!((fin.is(FIN), fin.header.ack), (true, world.seq));
}

#[test]
fn connections_that_end_are_remembered_while_they_are_watched() {
    fn end(world: &mut World, listener: ListenerId) {
        world.accept(TcpOptions::default());
        world.peer(RST | ACK, &[]);
        assert!(world.is_released());
        world.stack.tcp_accepted(listener, 1);
        world.clear();
        world.now.0 += MS;
    }
    let numbers = |world: &World, at| -> Vec<u64> {
        let ended = world.stack.tcp_ended_since(at);
        ended.map(|it| it.number).collect()
    };
    let mut world = World::new(config());
    let listener = world.listen();
    let start = world.now;
    end(&mut world, listener);
    assert!(numbers(&world, start).is_empty());
    world.stack.tcp_watch_ended(Instant(world.now.0 + SECOND));
    end(&mut world, listener);
    let second = world.now;
    end(&mut world, listener);
    assert_eq!(numbers(&world, start), [1, 2]);
    assert_eq!(numbers(&world, second), [2]);
    let ended = world.stack.tcp_ended_since(second).next().unwrap();
    assert_eq!((ended.local.port(), ended.remote), (PORT, peer()));
    // Nobody has asked again.
    world.now.0 += 2 * SECOND;
    end(&mut world, listener);
    assert!(numbers(&world, start).is_empty());
}
