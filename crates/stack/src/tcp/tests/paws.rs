//! RFC 7323: timestamps and protection against wrapped sequence numbers.
//!
//! RFC 7323 3.2, 4.3, 5.2 and 5.3.

use super::harness::*;
use crate::{Counter, Event};
use slipstack_wire::tcp_options::TcpOptions;

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
fn a_segment_overtaken_within_a_tick_is_taken() {
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
fn a_stamp_of_24_days_ago_does_not_count() {
    let mut world = established_with_stamps();
    world.now.0 += 25 * 24 * 3600 * SECOND;
    world.stamps.as_mut().unwrap().value = 1;
    world.peer(ACK, b"a");
    assert!(world.has(Event::Received {
        conn: world.conn.unwrap(),
        upto: 1
    }));
}
