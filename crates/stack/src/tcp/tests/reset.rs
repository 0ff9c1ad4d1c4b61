//! RFC 5961: blind resets, SYNs and data.

use super::harness::*;
use crate::{Counter, Event, Reason};
use slipstack_wire::tcp_options::TcpOptions;

#[test]
fn a_reset_needs_the_exact_sequence_number() {
    // RFC 5961 3.2.
    let mut world = established();
    world.peer_at(100, RST, &[]);
    world.flush();
    let challenge = world.only();
    assert_eq!(
        (challenge.header.ack, challenge.is(RST)),
        (world.seq, false)
    );
    assert_eq!(world.failed(), None);
    world.peer_at(0, RST, &[]);
    assert_eq!(world.failed(), Some(Reason::Reset));
    assert!(world.is_released());
}

#[test]
fn a_reset_outside_of_the_window_is_ignored() {
    // RFC 5961 3.2.
    let mut world = established();
    world.peer_at(1 << 20, RST, &[]);
    world.flush();
    world.none();
    assert_eq!(world.stack.counters().value(Counter::DropTcpOutOfWindow), 1);
}

#[test]
fn a_syn_on_an_open_connection_is_challenged() {
    // RFC 5961 4.2.
    let mut world = established();
    world.peer_at(0, SYN, &[]);
    world.flush();
    assert!(!world.only().is(RST));
    assert_eq!(world.failed(), None);
}

#[test]
fn challenge_acks_are_rate_limited() {
    // RFC 5961 7.
    let mut world = established();
    for i in 0..1000 {
        world.peer_at(100 + i, RST, &[]);
    }
    world.flush();
    assert_eq!(world.take_sent().len(), 1);
    assert_eq!(world.stack.counters().value(Counter::TxTcpChallenges), 1);
    world.now.0 += SECOND;
    world.peer_at(100, RST, &[]);
    world.flush();
    assert_eq!(world.take_sent().len(), 1);
}

#[test]
fn acks_of_unsent_and_of_much_older_data_get_challenge_acks() {
    // RFC 5961 5.2.
    let mut world = established();
    let ack = world.ack;
    world.ack = ack.wrapping_add(1000);
    world.peer_at(0, ACK, b"blind");
    world.ack = ack.wrapping_sub(1 << 20);
    world.peer_at(0, ACK, b"blind");
    world.flush();
    assert_eq!(world.stack.counters().value(Counter::DropTcpAck), 2);
    assert!(world.fx.stored.is_empty());
}

#[test]
fn a_segment_without_ack_is_dropped() {
    let mut world = established();
    world.inject(
        (PEER_PORT, PORT),
        world.seq,
        0,
        FIN,
        &TcpOptions::default(),
        b"x",
    );
    assert!(!world.has(Event::Fin {
        conn: world.conn.unwrap()
    }));
    assert_eq!(world.stack.counters().value(Counter::DropTcpNoAck), 1);
}

#[test]
fn a_reset_ends_a_half_open_connection_only_with_the_exact_number() {
    let mut world = World::new(config());
    world.listen();
    world.inject((PEER_PORT, PORT), ISS, 0, SYN, &TcpOptions::default(), &[]);
    world.inject(
        (PEER_PORT, PORT),
        ISS + 50,
        0,
        RST,
        &TcpOptions::default(),
        &[],
    );
    assert_eq!(world.stack.tcp_sizes().half_open, 1);
    world.inject(
        (PEER_PORT, PORT),
        ISS + 1,
        0,
        RST,
        &TcpOptions::default(),
        &[],
    );
    assert_eq!(world.stack.tcp_sizes().half_open, 0);
}

#[test]
fn two_sides_that_disagree_do_not_acknowledge_each_other_for_ever() {
    let mut world = established();
    for _ in 0..1000 {
        // An ACK of long ago, without data.
        world.peer_at(0u32.wrapping_sub(500_000), ACK, &[]);
        world.sleep(MS);
    }
    // At most one each half second.
    assert!(world.take_sent().len() <= 3);
    assert!(world.stack.counters().value(Counter::TcpAcksHeld) >= 997);
    // Data that comes twice is acknowledged each time: the peer waits for it.
    world.peer(ACK, b"hello");
    world.sleep(50 * MS);
    world.take_sent();
    for _ in 0..3 {
        world.peer_at(0u32.wrapping_sub(5), ACK, b"hello");
        world.flush();
        assert_eq!(world.take_sent().len(), 1);
    }
}

#[test]
fn a_peer_without_the_connection_resets_segments_after_a_gap() {
    let mut world = established();
    world.peer_at(100, ACK, &[0; 100]);
    world.peer_at(150, RST, &[]);
    assert_eq!(world.failed(), None);
    world.peer_at(200, RST, &[]);
    assert_eq!(world.failed(), Some(Reason::Reset));
}

#[test]
fn a_reset_after_both_sides_have_closed_is_reported() {
    let mut world = established();
    world.peer(FIN | ACK, &[]);
    let (now, conn) = (world.now, world.conn.unwrap());
    world.stack.tcp_shutdown(now, conn, &mut world.fx);
    world.flush();
    world.peer(RST, &[]);
    assert_eq!(world.failed(), Some(Reason::Reset));
}
