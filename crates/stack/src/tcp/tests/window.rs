//! Flow control both ways, Nagle, zero windows.
//!
//! RFC 9293 3.7.4, 3.8.6, 3.8.6.1 and 3.8.6.2.1.

use super::harness::*;
use crate::{Counter, SocketOption};
use alloc::vec;
use alloc::vec::Vec;

fn lens(world: &mut World) -> Vec<u32> {
    world.take_sent().iter().map(Sent::len).collect()
}

#[test]
fn a_small_answer_carries_the_ack_of_its_question() {
    let mut world = established();
    world.peer(ACK, b"question");
    world.write(6);
    let answer = world.only();
    assert_eq!((answer.data, answer.header.ack), (Some((0, 6)), world.seq));
}

#[test]
fn nagle_holds_the_second_small_segment() {
    let mut world = established();
    world.write(10);
    world.write(20);
    assert_eq!(lens(&mut world), [10]);
    world.acknowledge(10);
    world.flush();
    assert_eq!(lens(&mut world), [10]);
    world
        .stack
        .tcp_set_option(
            world.now,
            world.conn.unwrap(),
            SocketOption::NoDelay(true),
            &mut world.fx,
        )
        .unwrap();
    world.write(25);
    world.write(30);
    assert_eq!(lens(&mut world), [5, 5]);
}

#[test]
fn minshall_lets_a_tail_follow_full_segments() {
    let mut world = established();
    world.write(2_010);
    assert_eq!(lens(&mut world), [1000, 1000, 10]);
}

#[test]
fn a_cork_holds_the_tail_for_a_timeout() {
    let mut world = established();
    let conn = world.conn.unwrap();
    world
        .stack
        .tcp_set_option(world.now, conn, SocketOption::Cork(true), &mut world.fx)
        .unwrap();
    world.write(1_500);
    assert_eq!(lens(&mut world), [1000]);
    world.acknowledge(1000);
    world.flush();
    world.sleep(150 * MS);
    world.none();
    world.sleep(60 * MS);
    assert_eq!(lens(&mut world), [500]);
}

#[test]
fn a_cork_does_not_hold_data_that_fills_a_small_window() {
    let mut world = World::new(config());
    world.window = 800;
    world.listen();
    let conn = world.accept(slipstack_wire::tcp_options::TcpOptions {
        mss: Some(1000),
        ..Default::default()
    });
    world.clear();
    world
        .stack
        .tcp_set_option(world.now, conn, SocketOption::Cork(true), &mut world.fx)
        .unwrap();
    world.write(799);
    world.none();
    world.write(800);
    assert_eq!(lens(&mut world), [800]);
    // The rest of the window is too small to be used on its own.
    world.window = 300;
    world.acknowledge(800);
    world.write(1_100);
    world.none();
}

#[test]
fn the_peers_window_is_never_exceeded() {
    let mut world = established();
    world.window = 2_500;
    world.peer(ACK, &[]);
    world.write(10_000);
    let total: u32 = lens(&mut world).iter().sum();
    assert!((2_000..=2_500).contains(&total), "{total}");
}

#[test]
fn a_zero_window_is_probed_with_back_off() {
    let mut world = established();
    world.window = 0;
    world.peer(ACK, &[]);
    world.write(100);
    world.none();
    world.sleep(20 * SECOND);
    let probes = world.take_sent();
    assert!((4..=7).contains(&probes.len()), "{}", probes.len());
    assert!(
        probes
            .iter()
            .all(|p| p.data.is_none() && p.header.seq == world.ack.wrapping_sub(1))
    );
    world.window = 5_000;
    world.peer(ACK, &[]);
    world.flush();
    assert_eq!(lens(&mut world), [100]);
    assert!(world.stack.counters().value(Counter::TxTcpWindowProbes) > 0);
}

#[test]
fn our_window_closes_and_reopens() {
    // RFC 9293 3.8.6.2.2.
    let mut world = World::new(config());
    world.listen_with(crate::ListenOptions {
        socket: crate::SocketOptions {
            rcvbuf: Some(4_000),
            ..Default::default()
        },
        ..Default::default()
    });
    let conn = world.accept(slipstack_wire::tcp_options::TcpOptions {
        mss: Some(1000),
        ..Default::default()
    });
    world.take_sent();
    for _ in 0..4 {
        world.peer(ACK, &[0; 1000]);
        world.flush();
    }
    world.sleep(5 * MS);
    assert_eq!(world.take_sent().last().unwrap().header.window, 0);
    // Data beyond the window is dropped; the answer carries the current state.
    world.peer_at(0, ACK, &[0; 100]);
    world.flush();
    assert_eq!(world.only().header.ack, world.seq);
    // A little room is not worth an update, half of the buffer is.
    world.stack.tcp_consumed(world.now, conn, 100);
    world.flush();
    world.none();
    world.stack.tcp_consumed(world.now, conn, 3_000);
    world.flush();
    assert!(world.only().header.window >= 2_000);
}

#[test]
fn data_without_room_is_not_acknowledged() {
    let mut world = established();
    world.fx.refuses = true;
    world.peer_at(0, ACK, b"lost");
    world.flush();
    world.sleep(SECOND);
    world.none();
    world.fx.refuses = false;
    world.peer(ACK, b"lost");
    world.sleep(SECOND);
    assert_eq!(world.only().header.ack, world.seq);
}

#[test]
fn a_super_frame_is_one_frame_with_a_segment_size() {
    let mut world = World::new(crate::StackConfig {
        tso_max: 65_000,
        ..config()
    });
    world.listen();
    world.accept(slipstack_wire::tcp_options::TcpOptions {
        mss: Some(1000),
        ..Default::default()
    });
    world.take_sent();
    world.write(50_000);
    let sent = world.only();
    assert_eq!(sent.len(), 10_000);
    assert_eq!(sent.offload.gso.unwrap().mss, 1000);
    assert!(sent.offload.checksum.is_some());
}

#[test]
fn a_received_super_frame_counts_as_its_segments() {
    let mut world = established();
    world.peer(ACK, &vec![7; 20_000]);
    world.flush();
    assert_eq!(world.only().header.ack, world.seq);
}

#[test]
fn the_window_grows_with_a_fast_reader() {
    let mut world = established();
    let conn = world.conn.unwrap();
    let before = world.stack.tcp_rcvbuf(conn);
    let mut upto = 0;
    for _ in 0..100 {
        world.peer(ACK, &vec![7; 40_000]);
        upto += 40_000;
        world.stack.tcp_consumed(world.now, conn, upto);
        world.flush();
        world.now.0 += MS;
    }
    assert!(world.stack.tcp_rcvbuf(conn) > 2 * before);
}

#[test]
fn a_locked_buffer_does_not_grow_until_it_is_unlocked() {
    let mut world = established();
    let conn = world.conn.unwrap();
    let before = world.stack.tcp_rcvbuf(conn);
    let mut upto = 0;
    for locks in [2, 0] {
        let option = SocketOption::BufLock(locks);
        let World { stack, fx, now, .. } = &mut world;
        stack.tcp_set_option(*now, conn, option, fx).unwrap();
        for _ in 0..100 {
            world.peer(ACK, &vec![7; 40_000]);
            upto += 40_000;
            world.stack.tcp_consumed(world.now, conn, upto);
            world.flush();
            world.now.0 += MS;
        }
        assert_eq!(world.stack.tcp_rcvbuf(conn) == before, locks != 0);
    }
}

#[test]
fn a_buffer_that_is_read_empty_within_a_round_trip_grows_before_its_end() {
    let mut world = established();
    let conn = world.conn.unwrap();
    let before = world.stack.tcp_rcvbuf(conn);
    for part in 1..=4 {
        world.peer(ACK, &vec![7; 40_000]);
        world.stack.tcp_consumed(world.now, conn, part * 40_000);
        world.flush();
    }
    let grown = world.stack.tcp_rcvbuf(conn);
    assert!(grown >= 4 * 160_000 && grown > before, "{before} {grown}");
    // A slower one afterwards needs no more.
    for part in 1..=100 {
        world.now.0 += MS;
        world.peer(ACK, &[7; 1_000]);
        let upto = 160_000 + part * 1_000;
        world.stack.tcp_consumed(world.now, conn, upto);
        world.flush();
    }
    assert!(world.stack.tcp_rcvbuf(conn) < grown * 5 / 4);
}

/// Returns the largest buffer for a program that always keeps up, when answers have taken `trip`
/// nanoseconds.
fn largest_buffer(trip: u64) -> u32 {
    let mut world = established();
    let conn = world.conn.unwrap();
    for upto in 1..=60 {
        world.write(upto * 100);
        world.flush();
        world.now.0 += trip;
        world.acknowledge(100);
    }
    for part in 1..=300 {
        world.peer(ACK, &vec![7; 40_000]);
        world.stack.tcp_consumed(world.now, conn, part * 40_000);
        world.flush();
    }
    world.stack.tcp_rcvbuf(conn)
}

#[test]
fn on_a_short_path_a_buffer_does_not_outgrow_the_cache() {
    assert_eq!(largest_buffer(MS / 10), 1 << 20);
    assert_eq!(largest_buffer(40 * MS), config().tcp.rcvbuf_max);
}

/// A connection with a buffer of 8,000 bytes, the first half of which is full and acknowledged.
fn half_filled(config: crate::StackConfig) -> (World, crate::ConnId) {
    let mut world = World::new(config);
    world.listen_with(crate::ListenOptions {
        socket: crate::SocketOptions {
            rcvbuf: Some(8_000),
            ..Default::default()
        },
        ..Default::default()
    });
    let conn = world.accept(slipstack_wire::tcp_options::TcpOptions {
        mss: Some(1000),
        ..Default::default()
    });
    for _ in 0..4 {
        world.peer(ACK, &[0; 1000]);
        world.flush();
    }
    assert!(world.take_sent().last().unwrap().header.window >= 3_000);
    (world, conn)
}

#[test]
fn a_burst_as_long_as_the_window_is_acknowledged_when_the_program_reads() {
    let (mut world, conn) = half_filled(config());
    for _ in 0..4 {
        world.peer(ACK, &[0; 1000]);
    }
    world.flush();
    world.none();
    world.stack.tcp_consumed(world.now, conn, 5_000);
    world.flush();
    let sent = world.only();
    assert_eq!((sent.header.ack, sent.header.window), (world.seq, 5_000));
    world.sleep(50 * MS);
    world.none();
}

#[test]
fn a_zero_window_is_announced_when_the_program_does_not_read() {
    let (mut world, _) = half_filled(config());
    for _ in 0..4 {
        world.peer(ACK, &[0; 1000]);
        world.flush();
    }
    world.take_sent();
    world.sleep(5 * MS);
    let sent = world.only();
    assert_eq!((sent.header.ack, sent.header.window), (world.seq, 0));
}

#[test]
fn a_gap_is_acknowledged_at_once_for_any_window() {
    let (mut world, _) = half_filled(config());
    for _ in 0..3 {
        world.peer(ACK, &[0; 1000]);
    }
    let hole = world.seq;
    world.peer_at(500, ACK, &[0; 500]);
    world.flush();
    assert_eq!(world.take_sent().last().unwrap().header.ack, hole);
}

#[test]
fn the_ack_of_a_burst_leaves_at_once_without_delayed_acks() {
    let mut config = config();
    config.tcp.delayed_ack = core::time::Duration::ZERO;
    let (mut world, _) = half_filled(config);
    for _ in 0..4 {
        world.peer(ACK, &[0; 1000]);
    }
    world.flush();
    assert_eq!(world.take_sent().last().unwrap().header.window, 0);
}

/// Data for a peer whose window is closed, before it leaves or while it is in flight, and which
/// answers every probe; returns how long until the connection fails.
fn answered_probes(user_timeout: Option<u64>, is_in_flight: bool) -> Option<u64> {
    let mut world = established();
    let conn = world.conn.unwrap();
    let timeout = user_timeout.map(core::time::Duration::from_secs);
    let option = crate::SocketOption::UserTimeout(timeout);
    let set = world
        .stack
        .tcp_set_option(world.now, conn, option, &mut world.fx);
    assert!(set.is_ok());
    if is_in_flight {
        world.write(10);
        world.take_sent();
    }
    world.window = 0;
    world.peer(ACK, &[]);
    world.write(10);
    for second in 0..2000 {
        world.sleep(SECOND);
        for _ in world.take_sent() {
            world.peer(ACK, &[]);
        }
        if world.failed().is_some() {
            return Some(second);
        }
    }
    None
}

#[test]
fn a_peer_that_answers_no_probe_is_given_up() {
    // RFC 9293 3.8.6.1 lets probes continue for as long as they are answered; R2 of 3.8.3 ends it
    // when they are not.
    for (is_orphan, least, most) in [(false, 900, 1_000), (true, 20, 120)] {
        let mut world = established();
        world.window = 0;
        world.peer(ACK, &[]);
        world.write(10);
        if is_orphan {
            let (now, conn) = (world.now, world.conn.unwrap());
            let mode = crate::CloseMode::Orderly;
            world.stack.tcp_close(now, conn, mode, false, &mut world.fx);
        }
        let start = world.now;
        while !world.is_released() && world.now.nanos_since(start) < 2_000 * SECOND {
            world.sleep(SECOND);
        }
        let seconds = world.now.nanos_since(start) / SECOND;
        assert!((least..most).contains(&seconds), "{is_orphan} {seconds}");
        // The pauses double up to two minutes: not many are sent.
        let probes = world.stack.counters().value(Counter::TxTcpWindowProbes);
        assert!((6..=16).contains(&probes), "{is_orphan} {probes}");
    }
}

#[test]
fn a_closed_window_lasts_for_ever_but_with_a_user_timeout() {
    for is_in_flight in [false, true] {
        assert_eq!(answered_probes(None, is_in_flight), None);
        let seconds = answered_probes(Some(20), is_in_flight).expect("an end");
        // No back-off outlasts it (Linux: tcp_clamp_probe0_to_user_timeout).
        assert!((19..22).contains(&seconds), "{is_in_flight} {seconds}");
    }
}

#[test]
fn an_ack_does_not_wait_for_an_absent_program() {
    let mut world = established();
    let conn = world.conn.unwrap();
    // The connection is known to answer: the ACK of new data waits for its answer.
    world.peer(ACK, &[1; 100]);
    world.stack.tcp_written(conn, 100, false);
    world.flush();
    world.take_sent();
    world.ack = world.ack.wrapping_add(100);
    world.peer(ACK, &[2; 100]);
    world.sleep(5 * MS);
    world.none();
    assert!(world.stack.leave_unattended(world.now));
    world.flush();
    assert_eq!(world.only().header.ack, world.seq);
    assert!(!world.stack.leave_unattended(world.now));
    world.peer(ACK, &[3; 100]);
    world.flush();
    assert_eq!(world.only().header.ack, world.seq);
    world.stack.attend();
    world.peer(ACK, &[4; 100]);
    world.sleep(5 * MS);
    world.none();
    world.sleep(40 * MS);
    assert_eq!(world.only().header.ack, world.seq);
}

/// Without SACK, so that nothing probes for the tail.
fn plain_world() -> World {
    let mut world = World::new(config());
    world.listen();
    world.accept(slipstack_wire::tcp_options::TcpOptions {
        mss: Some(1000),
        ..Default::default()
    });
    world.clear();
    world
}

fn places(world: &mut World) -> Vec<(u64, u32)> {
    world.take_sent().iter().filter_map(|s| s.data).collect()
}

#[test]
fn nothing_is_sent_again_beyond_a_window_that_has_shrunk() {
    let mut world = plain_world();
    world.write(10_000);
    assert_eq!(places(&mut world).len(), 10);
    world.sleep(220 * MS);
    assert_eq!(places(&mut world), [(0, 1_000)]);
    // Room for one and a half.
    world.window = 1_500;
    world.acknowledge(1_000);
    world.flush();
    assert_eq!(places(&mut world), [(1_000, 1_000), (2_000, 500)]);
    world.window = 0;
    world.acknowledge(1_000);
    world.flush();
    assert_eq!(places(&mut world), []);
    // Data that the peer waits for probes the window.
    world.sleep(SECOND);
    let probes = places(&mut world);
    assert!(
        !probes.is_empty() && probes.iter().all(|place| place.0 == 2_000),
        "{probes:?}"
    );
    world.window = 20_000;
    world.acknowledge(1_000);
    world.flush();
    assert!(places(&mut world).contains(&(3_000, 1_000)));
}

#[test]
fn the_tail_is_not_probed_for_beyond_a_window_that_has_shrunk() {
    let mut world = established();
    world.write(3_000);
    world.take_sent();
    world.window = 1_000;
    world.peer(ACK, &[]);
    world.sleep(2 * SECOND);
    let sent = places(&mut world);
    assert!(
        !sent.is_empty() && sent.iter().all(|place| *place == (0, 1_000)),
        "{sent:?}"
    );
}

#[test]
fn a_window_that_opens_late_restarts_the_user_timeout() {
    for has_data in [false, true] {
        let mut world = plain_world();
        world.write(3_000);
        world.take_sent();
        world.window = 0;
        world.peer(ACK, &[]);
        for _ in 0..1_100 {
            world.sleep(SECOND);
            for _ in world.take_sent() {
                world.peer(ACK, &[]);
            }
        }
        world.window = 20_000;
        let payload: &[u8] = if has_data { b"go on" } else { b"" };
        world.peer(ACK, payload);
        world.flush();
        // Data that the peer waits for leaves at once, not after two minutes.
        assert_eq!(places(&mut world), [(0, 1_000)]);
        world.sleep(130 * SECOND);
        assert_eq!(world.failed(), None);
        world.acknowledge(1_000);
        world.flush();
        assert!(places(&mut world).contains(&(1_000, 1_000)));
    }
}
