//! RFC 7323: timestamps and protection against wrapped sequence numbers.
//!
//! RFC 7323 3.2, 4.3, 5.2 and 5.3.

use super::harness::*;
use crate::{Counter, Event};
use slipstack_wire::tcp_options::{SackBlocks, TcpOptions};

#[test]
fn an_older_timestamp_is_acknowledged_and_dropped() {
    let mut world = established_with_stamps();
    world.peer(ACK, b"a");
    world.stamps.as_mut().unwrap().value -= 5;
    world.peer_at(0, ACK, b"old");
    assert_eq!(world.stack.counters().value(Counter::DropTcpPaws), 1);
    world.flush();
    assert_eq!(world.only().header.ack, world.seq);
    assert!(!world.has(Event::Received {
        conn: world.conn.unwrap(),
        upto: 4
    }));
}

#[test]
fn a_segment_with_an_unknown_acknowledgment_leaves_no_timestamp() {
    let mut world = established_with_stamps();
    let (ack, stamps) = (world.ack, world.stamps);
    world.ack = ack.wrapping_add(1 << 30);
    world.stamps.as_mut().unwrap().value += 1 << 30;
    world.peer_at(0, ACK, b"forged");
    assert_eq!(world.stack.counters().value(Counter::DropTcpAck), 1);
    (world.ack, world.stamps) = (ack, stamps);
    world.peer(ACK, b"a");
    assert_eq!(world.stack.counters().value(Counter::DropTcpPaws), 0);
    assert!(world.has(Event::Received {
        conn: world.conn.unwrap(),
        upto: 1
    }));
}

#[test]
fn a_segment_overtaken_within_a_timestamp_tick_is_accepted() {
    let mut world = established_with_stamps();
    world.stamps.as_mut().unwrap().value += 1;
    world.peer(ACK, b"a");
    world.stamps.as_mut().unwrap().value -= 1;
    world.peer(ACK, b"b");
    assert!(world.has(Event::Received {
        conn: world.conn.unwrap(),
        upto: 2
    }));
    assert_eq!(world.stack.counters().value(Counter::DropTcpPaws), 0);
}

#[test]
fn a_reset_needs_no_timestamp() {
    let mut world = established_with_stamps();
    world.peer_with(0, RST, &[], TcpOptions::default());
    assert!(world.failed().is_some());
}

#[test]
fn the_newest_in_order_timestamp_is_echoed() {
    let mut world = established_with_stamps();
    let stamps = world.stamps.as_mut().unwrap();
    stamps.value += 100;
    let wanted = stamps.value;
    world.peer(ACK, b"a");
    // Ahead of a gap: not echoed.
    world.stamps.as_mut().unwrap().value += 100;
    world.peer_at(50, ACK, b"b");
    world.flush();
    assert_eq!(world.only().options.timestamps.unwrap().echo, wanted);
}

#[test]
fn a_timestamp_older_than_24_days_is_not_compared() {
    // RFC 7323 5.5.
    let mut world = established_with_stamps();
    world.now.0 += 25 * 24 * 3600 * SECOND;
    world.stamps.as_mut().unwrap().value = 1;
    world.peer(ACK, b"a");
    assert!(world.has(Event::Received {
        conn: world.conn.unwrap(),
        upto: 1
    }));
    // From then on it is the one that counts.
    world.peer(ACK, b"b");
    assert!(world.has(Event::Received {
        conn: world.conn.unwrap(),
        upto: 2
    }));
}

#[test]
fn a_segment_with_a_stripped_timestamp_is_accepted() {
    let mut world = established_with_stamps();
    world.stamps = None;
    world.peer(ACK, b"a");
    assert!(world.has(Event::Received {
        conn: world.conn.unwrap(),
        upto: 1
    }));
}

/// Five segments are on their way, the first was acknowledged by a timestamp that is `newer` ms
/// after those of the peer's next ACKs.
fn with_a_flight(newer: u32) -> World {
    let mut world = established_with_stamps();
    world.write(5_000);
    let stamps = world.stamps.as_mut().unwrap();
    stamps.value += newer;
    world.window = 60_000;
    world.acknowledge(1_000);
    world.stamps.as_mut().unwrap().value -= newer;
    world.clear();
    world
}

fn dropped(world: &World) -> u64 {
    world.stack.counters().value(Counter::DropTcpPaws)
}

#[test]
fn a_duplicate_ack_that_was_overtaken_still_counts() {
    let mut world = with_a_flight(150);
    for behind in [2_000, 3_000, 4_000] {
        let mut list = SackBlocks::EMPTY;
        list.push(
            world.ack.wrapping_add(1_000),
            world.ack.wrapping_add(behind),
        );
        let options = TcpOptions {
            sack: list,
            timestamps: world.stamps,
            ..TcpOptions::default()
        };
        world.peer_with(0, ACK, &[], options);
    }
    assert_eq!(dropped(&world), 0);
    world.sleep(30 * MS);
    assert!(world.take_sent().iter().any(|sent| sent.data.is_some()));
    // It does not set the clock back.
    world.stamps.as_mut().unwrap().value += 100;
    world.peer(ACK, b"x");
    assert_eq!(dropped(&world), 1);
}

#[test]
fn an_overtaken_ack_that_says_more_or_is_too_old_is_dropped() {
    // Older than 1.2 retransmission timeouts.
    let mut world = with_a_flight(5_000);
    world.peer(ACK, &[]);
    assert_eq!(dropped(&world), 1);
    // It acknowledges more.
    let mut world = with_a_flight(150);
    world.acknowledge(1_000);
    assert_eq!(dropped(&world), 1);
    // It carries data, or a FIN.
    let mut world = with_a_flight(150);
    world.peer_at(0, ACK, b"x");
    world.peer_at(0, ACK | FIN, &[]);
    assert_eq!(dropped(&world), 2);
    // It opens the window, or closes it.
    for window in [world.window + 1, 0] {
        let mut world = with_a_flight(150);
        world.window = window;
        world.peer(ACK, &[]);
        assert_eq!(dropped(&world), 1);
    }
}

#[test]
fn an_ack_that_data_has_overtaken_is_dropped_silently() {
    let mut world = with_a_flight(150);
    world.stamps.as_mut().unwrap().value += 150;
    world.peer(ACK, b"data");
    world.flush();
    world.sleep(SECOND / 10);
    world.clear();
    world.stamps.as_mut().unwrap().value -= 150;
    world.seq = world.seq.wrapping_sub(4);
    world.peer(ACK, &[]);
    world.flush();
    world.none();
    assert_eq!(dropped(&world), 1);
}
