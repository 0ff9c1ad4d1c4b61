//! A pair of ends that is used again while the old connection is in TIME-WAIT.
//!
//! RFC 6191 2, RFC 1122 4.2.2.13, RFC 1337 3, RFC 7323 5.3.

use super::harness::*;
use slipstack_wire::tcp_options::{TcpOptions, Timestamps};

/// The stamp of the peer's last segment.
const LAST: u32 = 50_010;

/// A connection in TIME-WAIT; with timestamps if `has_stamps`.
fn waiting(has_stamps: bool) -> World {
    let mut world = if has_stamps {
        established_with_stamps()
    } else {
        established()
    };
    let conn = world.conn.unwrap();
    let World { stack, fx, now, .. } = &mut world;
    stack.tcp_close(*now, conn, crate::CloseMode::Orderly, false, fx);
    world.flush();
    assert!(world.only().is(FIN));
    world.acknowledge(1);
    world.peer(FIN | ACK, &[]);
    world.clear();
    assert_eq!(world.stack.tcp_sizes().time_wait, 1);
    world
}

/// A SYN `ahead` of the old connection's numbers. Returns whether it opens a new one.
fn opens(world: &mut World, ahead: u32, stamp: Option<u32>) -> bool {
    let options = TcpOptions {
        mss: Some(1_000),
        timestamps: stamp.map(|value| Timestamps { value, echo: 0 }),
        ..TcpOptions::default()
    };
    let seq = world.seq.wrapping_add(ahead);
    world.inject((PEER_PORT, PORT), seq, 0, SYN, &options, &[]);
    let answer = world.only();
    if !answer.is(SYN) {
        // The old connection answers with its state, and stays.
        assert_eq!(
            (answer.header.ack, world.stack.tcp_sizes().time_wait),
            (world.seq, 1)
        );
        return false;
    }
    assert_eq!(answer.header.ack, seq.wrapping_add(1));
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 1, 0));
    true
}

#[test]
fn a_syn_opens_again_by_its_timestamp_or_by_its_number() {
    const BACK: u32 = 0u32.wrapping_sub(5_000);
    // RFC 6191 2, case by case: stamps on the old connection, the SYN's number and stamp, whether
    // it opens.
    let table = [
        // A later timestamp: whatever the number.
        (true, 5_000, Some(LAST + 1), true),
        (true, BACK, Some(LAST + 1), true),
        (true, BACK, Some(LAST + 1_000_000), true),
        // With an equal timestamp only a greater sequence number is accepted.
        (true, 5_000, Some(LAST), true),
        (true, BACK, Some(LAST), false),
        // An earlier timestamp: an old duplicate, whatever the number (RFC 7323 5.3).
        (true, 5_000, Some(LAST - 1), false),
        (true, BACK, Some(LAST - 1), false),
        // The SYN has none: by the number.
        (true, 5_000, None, true),
        (true, BACK, None, false),
        // The old connection had none: by the number.
        (false, 5_000, Some(LAST + 1), true),
        (false, BACK, Some(LAST + 1), false),
        (false, BACK, None, false),
    ];
    for row @ (has_stamps, ahead, stamp, expected) in table {
        let mut world = waiting(has_stamps);
        assert_eq!(opens(&mut world, ahead, stamp), expected, "{row:?}");
    }
}

#[test]
fn the_number_of_a_reopened_connection_is_beyond_the_old_ones() {
    let mut world = waiting(true);
    let old = world.ack;
    let seq = world.seq.wrapping_add(5_000);
    let options = TcpOptions {
        timestamps: Some(Timestamps {
            value: LAST + 1,
            echo: 0,
        }),
        ..TcpOptions::default()
    };
    world.inject((PEER_PORT, PORT), seq, 0, SYN, &options, &[]);
    let iss = world.only().header.seq;
    // RFC 6191 2 rests on RFC 1122 4.2.2.13: larger than the largest number of the old connection.
    assert!((iss.wrapping_sub(old) as i32) > 0, "{iss} after {old}");
}

#[test]
fn without_timestamps_an_active_open_leaves_time_wait_alone() {
    // RFC 6191 2 seen from the other side: only timestamps make sure that the peer takes the SYN,
    // and only later ones.
    for (has_stamps, wait, expected) in [
        (true, 2 * SECOND, true),
        (true, MS, false),
        (false, 2 * SECOND, false),
    ] {
        let mut world = waiting(has_stamps);
        world.sleep(wait);
        world.clear();
        let local = core::net::SocketAddr::from((OURS, PORT));
        let options = crate::SocketOptions::default();
        let now = world.now;
        let opened = world
            .stack
            .tcp_connect(now, Some(local), peer(), &options, &mut world.fx);
        assert_eq!(opened.is_ok(), expected, "{has_stamps} {wait}");
    }
}

#[test]
fn a_syn_to_a_port_without_a_listener_leaves_time_wait_unchanged() {
    let mut world = waiting(false);
    let listener = world.listener.expect("a listener");
    world.stack.tcp_unlisten(listener).unwrap();
    let options = TcpOptions::default();
    let seq = world.seq.wrapping_add(5_000);
    world.inject((PEER_PORT, PORT), seq, 0, SYN, &options, &[]);
    let answer = world.only();
    assert_eq!(
        (
            answer.header.ack,
            answer.is(RST),
            world.stack.tcp_sizes().time_wait
        ),
        (world.seq, false, 1)
    );
}
