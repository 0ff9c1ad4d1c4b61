//! Times of ACKs: delayed, soon, quick, and adaptation of the delay.
//!
//! RFC 9293 3.8.6.3, RFC 5681 4.2. The series of estimates are those of Linux's `tcpi_ato` for the
//! same segments, except for the clock's resolution.

use super::harness::*;
use crate::SocketOption;
use alloc::vec::Vec;

const FULL: [u8; 1000] = [0; 1000];

fn ato_ms(world: &World) -> u32 {
    world
        .stack
        .tcp_info(world.now, world.conn.unwrap())
        .unwrap()
        .ato_us
        / 1_000
}

fn set_quick_ack(world: &mut World, on: bool) {
    let (now, conn) = (world.now, world.conn.unwrap());
    let option = SocketOption::QuickAck(on);
    world
        .stack
        .tcp_set_option(now, conn, option, &mut world.fx)
        .unwrap();
    world.flush();
}

/// Returns when the next ACK without data leaves, in milliseconds from now; any other segment is an
/// error.
fn ack_after(world: &mut World) -> u64 {
    let start = world.now;
    for _ in 0..1_000 {
        world.sleep(MS);
        if !world.fx.sent.is_empty() {
            let ack = world.only();
            assert_eq!((ack.len(), ack.header.ack), (0, world.seq));
            return world.now.nanos_since(start) / MS;
        }
    }
    panic!("no ACK");
}

/// One request, its answer `after_ms` later, and the peer's ACK; returns the segments sent in
/// between.
fn exchange(world: &mut World, after_ms: u64, upto: &mut u64) -> Vec<Sent> {
    world.peer(ACK, b"question");
    world.sleep(after_ms * MS);
    let between = world.take_sent();
    *upto += 6;
    world.write(*upto);
    assert_eq!(world.only().header.ack, world.seq);
    world.acknowledge(6);
    between
}

#[test]
fn every_second_full_segment_is_acknowledged() {
    let mut world = established();
    set_quick_ack(&mut world, false);
    world.take_sent();
    // The receiver learns the size of a full segment first.
    world.peer(ACK, &[0; 1000]);
    world.flush();
    for _ in 0..3 {
        world.peer(ACK, &[0; 1000]);
        world.flush();
    }
    assert_eq!(world.take_sent().len(), 2);
}

#[test]
fn two_joined_segments_with_timestamps_are_acknowledged_at_once() {
    let mut world = established_with_stamps();
    set_quick_ack(&mut world, false);
    world.take_sent();
    world.meta.gso = true;
    // 1460 bytes are announced, and the timestamps are a part of them.
    for _ in 0..3 {
        world.peer(ACK, &[0; 2 * 1448]);
        world.flush();
        assert_eq!(world.take_sent().len(), 1);
        world.now = world.now.plus_nanos(MS);
    }
}

#[test]
fn a_single_segment_is_acknowledged_within_the_delay() {
    let mut world = established();
    world.peer(ACK, b"x");
    world.flush();
    world.none();
    world.sleep(50 * MS);
    assert_eq!(world.only().header.ack, world.seq);
}

#[test]
fn small_segments_that_nothing_answers_are_acknowledged_soon() {
    let mut world = established();
    for _ in 0..40 {
        world.peer(ACK, b"x");
        assert!(ack_after(&mut world) <= 2);
        world.sleep(10 * MS);
    }
    assert_eq!(ato_ms(&world), 40);
}

#[test]
fn an_ack_is_delayed_for_a_program_that_has_unread_data() {
    let mut world = established();
    world.fx.has_unread = true;
    for _ in 0..3 {
        world.peer(ACK, b"x");
        let wait = ack_after(&mut world);
        assert!((3..=4).contains(&wait), "{wait}");
    }
    // However many come meanwhile.
    world.peer(ACK, b"x");
    world.flush();
    for ms in 0..3 {
        assert!(world.take_sent().is_empty(), "after {ms} ms");
        world.peer(ACK, b"x");
        world.flush();
        world.sleep(MS);
    }
    world.sleep(MS);
    assert_eq!(world.only().header.ack, world.seq);
    // The end of the stream is nothing to read.
    world.fx.has_unread = false;
    world.peer(ACK.union(FIN), b"");
    assert!(ack_after(&mut world) <= 2);
}

#[test]
fn no_delayed_ack_estimate_is_reported_before_the_first_data() {
    let world = established();
    assert_eq!(ato_ms(&world), 0);
}

#[test]
fn the_delayed_ack_estimate_follows_the_gaps_between_requests() {
    // Gap, and the estimate after the question that it precedes.
    let steps = [
        (0, 40),
        (30, 50),
        (30, 55),
        (30, 57),
        (30, 58),
        (10, 49),
        (10, 44),
        (45, 44),
        (43, 65),
        (150, 65),
        (20, 52),
    ];
    let (mut world, mut upto) = (established(), 0);
    for (gap, estimate) in steps {
        world.sleep(gap * MS);
        exchange(&mut world, 0, &mut upto);
        let told = ato_ms(&world);
        assert!(
            told.abs_diff(estimate) <= 2,
            "{told} after {gap} ms, not {estimate}"
        );
    }
}

#[test]
fn a_program_that_answers_late_gets_its_acks_with_its_answers() {
    let (mut world, mut upto) = (established(), 0);
    assert_eq!(exchange(&mut world, 60, &mut upto).len(), 1);
    assert_eq!(ato_ms(&world), 80);
    for _ in 0..20 {
        world.sleep(100 * MS);
        assert!(exchange(&mut world, 60, &mut upto).is_empty());
    }
    // Later still: after one wait without an answer it is longer.
    world.sleep(100 * MS);
    assert_eq!(exchange(&mut world, 120, &mut upto).len(), 1);
    world.sleep(100 * MS);
    assert!(exchange(&mut world, 120, &mut upto).is_empty());
    assert_eq!(ato_ms(&world), 160);
}

#[test]
fn after_one_unanswered_request_acks_are_no_longer_delayed_for_answers() {
    let (mut world, mut upto) = (established(), 0);
    exchange(&mut world, 60, &mut upto);
    exchange(&mut world, 60, &mut upto);
    world.peer(ACK, b"unanswered");
    let wait = ack_after(&mut world);
    assert!((79..=115).contains(&wait), "{wait}");
    assert_eq!(ato_ms(&world), 40);
    world.peer(ACK, b"unanswered");
    assert!(ack_after(&mut world) <= 2);
}

#[test]
fn data_long_after_a_segment_is_no_answer_to_it() {
    let (mut world, mut upto) = (established(), 0);
    for _ in 0..3 {
        assert_eq!(exchange(&mut world, 200, &mut upto).len(), 1);
        assert_eq!(ato_ms(&world), 40);
    }
    // Nor is the program's second write.
    exchange(&mut world, 0, &mut upto);
    world.sleep(100 * MS);
    world.write(upto + 6);
    world.only();
    assert_eq!(ato_ms(&world), 40);
}

#[test]
fn the_ack_of_a_single_full_segment_of_a_bulk_transfer_waits_for_a_round_trip_at_most() {
    let mut world = established();
    world.peer(ACK, &FULL);
    let mut estimates = Vec::new();
    let mut waits = Vec::new();
    for _ in 0..24 {
        world.sleep(150 * MS);
        world.take_sent();
        world.peer(ACK, &FULL);
        waits.push(ack_after(&mut world));
        estimates.push(ato_ms(&world));
    }
    // Sixteen quick ones (RFC 5681 4.2 of a beginning), then the timer doubles the estimate and not
    // the wait.
    assert!(waits[..15].iter().all(|&ms| ms <= 2), "{waits:?}");
    assert!(
        waits[15..].iter().all(|&ms| (40..=42).contains(&ms)),
        "{waits:?}"
    );
    assert_eq!(estimates[14..17], [40, 80, 160]);
    assert!(estimates.iter().all(|&ms| ms <= 220), "{estimates:?}");
}

#[test]
fn a_peer_that_was_silent_for_a_timeout_is_acknowledged_quickly_again() {
    let mut world = established();
    for _ in 0..20 {
        world.peer(ACK, &FULL);
        world.sleep(100 * MS);
    }
    world.take_sent();
    world.peer(ACK, &FULL);
    assert!(ack_after(&mut world) >= 40);
    world.sleep(SECOND);
    for _ in 0..16 {
        world.peer(ACK, &FULL);
        assert!(ack_after(&mut world) <= 2);
    }
}

#[test]
fn segments_that_make_the_buffer_grow_are_acknowledged_one_by_one() {
    let mut world = established();
    let (now, conn) = (world.now, world.conn.unwrap());
    let before = world.stack.tcp_rcvbuf(conn);
    let mut read = 0;
    let mut acks_of = |world: &mut World, segments: u64| {
        for _ in 0..segments {
            world.peer(ACK, &FULL);
            read += FULL.len() as u64;
            world.stack.tcp_consumed(now, conn, read);
            world.flush();
        }
        world.take_sent().len() as u64
    };
    // But for those between the beginning's sixteen and the first growth.
    let acks = acks_of(&mut world, 200);
    assert!(acks >= 190, "{acks}");
    // The largest window, with the growth's reserve used up.
    acks_of(&mut world, 8_000);
    assert!(world.stack.tcp_rcvbuf(conn) > 4 * before);
    assert_eq!(acks_of(&mut world, 200), 100);
}
