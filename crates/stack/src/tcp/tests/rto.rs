//! RFC 6298 and giving up.
//!
//! RFC 6298 2 and 5, RFC 9293 3.8.1 and 3.8.3.

use super::harness::*;
use crate::{Counter, Reason, SocketOption};
use core::time::Duration;
use slipstack_wire::tcp_options::{SackBlocks, TcpOptions, Timestamps};

#[test]
fn a_lost_segment_is_probed_for_and_comes_again_with_doubling_pauses() {
    let mut world = established();
    world.write(100);
    world.take_sent();
    // Handshake round trip 10 ms: RTO 210 ms, taken once more by the probe before it, then 420.
    for (quiet, due) in [(205, 10), (200, 15), (405, 20)] {
        world.sleep(quiet * MS);
        world.none();
        world.sleep(due * MS);
        assert_eq!(world.only().data, Some((0, 100)));
    }
    world.acknowledge(100);
    world.sleep(10 * SECOND);
    world.none();
}

/// Sends `count` segments, loses them all; returns the segments after the first retransmission's
/// ACK.
fn after_all_are_lost(count: u64) -> alloc::vec::Vec<u64> {
    let mut world = World::new(config());
    world.listen();
    world.accept(TcpOptions {
        mss: Some(1000),
        ..TcpOptions::default()
    });
    world.take_sent();
    world.write(1000 * count);
    world.take_sent();
    world.sleep(220 * MS);
    assert_eq!(world.only().data, Some((0, 1000)));
    world.acknowledge(1000);
    world.flush();
    assert_eq!(world.stack.counters().value(Counter::TcpTimeouts), 1);
    let sent = world.take_sent();
    sent.iter().map(|s| s.data.unwrap().0).collect()
}

#[test]
fn after_a_timeout_everything_is_sent_again_in_slow_start() {
    assert_eq!(after_all_are_lost(5), [1000, 2000]);
}

#[test]
fn slow_start_goes_on_though_the_lost_data_had_not_filled_the_window() {
    assert_eq!(after_all_are_lost(4), [1000, 2000]);
}

#[test]
fn a_timeout_after_progress_lowers_the_threshold_again() {
    let mut world = World::new(config());
    world.listen();
    world.accept(TcpOptions {
        mss: Some(1000),
        ..TcpOptions::default()
    });
    world.write(10_000);
    let threshold = |world: &World| {
        let info = world.stack.tcp_info(world.now, world.conn.unwrap());
        info.unwrap().snd_ssthresh
    };
    world.sleep(220 * MS);
    assert_eq!(threshold(&world), 7);
    // RFC 5681 3.1: held constant for a segment that the timer has sent again before.
    world.sleep(5 * SECOND);
    assert_eq!(threshold(&world), 7);
    // Another segment: two were in flight.
    world.acknowledge(1000);
    world.flush();
    world.sleep(10 * SECOND);
    assert_eq!(threshold(&world), 2);
}

#[test]
fn a_spurious_timeout_is_taken_back() {
    // RFC 3522 3.2, RFC 4015 3.4.
    let mut world = established_with_stamps();
    world.write(10_000);
    let first = world.take_sent();
    let before = world
        .stack
        .tcp_info(world.now, world.conn.unwrap())
        .unwrap();
    world.sleep(2 * SECOND);
    assert!(!world.take_sent().is_empty());
    let stamps = world.stamps.as_mut().unwrap();
    stamps.value += 2000;
    stamps.echo = first[0].options.timestamps.unwrap().value;
    world.acknowledge(1000);
    let after = world
        .stack
        .tcp_info(world.now, world.conn.unwrap())
        .unwrap();
    assert!(after.snd_cwnd >= before.snd_cwnd);
    assert_eq!((after.lost, after.ca_state), (0, 0));
}

#[test]
fn a_spurious_recovery_and_its_timeout_are_taken_back_together() {
    // RFC 3522 3.2, RFC 4015 3.4.
    let mut world = established_with_stamps();
    world.write(10_000);
    let first = world.take_sent();
    let window = |world: &World| {
        let conn = world.conn.unwrap();
        world.stack.tcp_info(world.now, conn).unwrap()
    };
    let before = window(&world);
    world.sleep(20 * MS);
    // The last three were quicker than all the others.
    let mut sack = SackBlocks::EMPTY;
    let place = |at: u32| world.ack.wrapping_add(at);
    sack.push(place(7_000), place(10_000));
    let options = TcpOptions {
        sack,
        timestamps: world.stamps,
        ..TcpOptions::default()
    };
    world.peer_with(0, ACK, &[], options);
    world.flush();
    assert_eq!(window(&world).ca_state, 3);
    world.sleep(2 * SECOND);
    assert_eq!(window(&world).ca_state, 4);
    let stamps = world.stamps.as_mut().unwrap();
    stamps.value += 2000;
    stamps.echo = first[0].options.timestamps.unwrap().value;
    world.acknowledge(1000);
    let after = window(&world);
    assert!(after.snd_cwnd >= before.snd_cwnd, "{}", after.snd_cwnd);
    assert_eq!((after.lost, after.ca_state), (0, 0));
}

#[test]
fn a_dead_peer_is_given_up() {
    // RFC 1122 4.2.3.5.
    let mut world = established();
    world.write(100);
    world.sleep(1000 * SECOND);
    assert_eq!(world.failed(), Some(Reason::TimedOut));
    let sent = world.take_sent();
    assert!((12..=18).contains(&sent.len()), "{}", sent.len());
    assert!(sent.last().unwrap().is(RST));
}

#[test]
fn a_user_timeout_ends_a_connection_before_the_retransmissions_do() {
    // RFC 9293 3.10.8.
    let mut world = established();
    let option = SocketOption::UserTimeout(Some(Duration::from_secs(3)));
    world
        .stack
        .tcp_set_option(world.now, world.conn.unwrap(), option, &mut world.fx)
        .unwrap();
    world.write(100);
    world.sleep(2 * SECOND);
    assert_eq!(world.failed(), None);
    world.sleep(6 * SECOND);
    assert_eq!(world.failed(), Some(Reason::TimedOut));
}

/// Segments of 1000 bytes vanish silently; the sizes that were tried.
fn sizes_into_a_black_hole(mtu_probing: bool) -> alloc::vec::Vec<u32> {
    let mut config = config();
    if mtu_probing {
        config.tcp.mtu_probing = crate::MtuProbing::BlackHole;
    }
    let mut world = World::new(config);
    world.listen();
    world.accept(TcpOptions {
        mss: Some(1460),
        sack_permitted: true,
        ..TcpOptions::default()
    });
    world.write(3 * 1460);
    world.take_sent();
    world.sleep(60 * SECOND);
    world.take_sent().iter().map(Sent::len).collect()
}

#[test]
fn a_black_hole_is_tried_with_smaller_packets() {
    // RFC 4821 7.7, RFC 8899 4.3.
    assert!(
        sizes_into_a_black_hole(false)
            .iter()
            .all(|&len| len == 1460)
    );
    let sizes = sizes_into_a_black_hole(true);
    let smaller = |limit| sizes.iter().position(|&len| len <= limit);
    // Three timeouts at full size, one at the base, then the floor.
    assert!(
        smaller(1024) >= Some(3) && smaller(1024) < smaller(512),
        "{sizes:?}"
    );
    assert!(sizes.iter().all(|&len| len >= 512), "{sizes:?}");
}

#[test]
fn an_outage_is_not_sampled_as_a_round_trip() {
    // RFC 6298 3 (Karn): the ACK covers retransmitted data, and waited for it.
    for has_sack in [true, false] {
        let mut world = World::new(config());
        world.listen();
        world.accept(TcpOptions {
            mss: Some(1000),
            sack_permitted: has_sack,
            ..TcpOptions::default()
        });
        let times = |world: &World| {
            let info = world.stack.tcp_info(world.now, world.conn.unwrap());
            let info = info.unwrap();
            (info.rtt_us, info.rttvar_us, info.min_rtt_us)
        };
        world.write(3_000);
        let before = times(&world);
        world.sleep(60 * SECOND);
        world.acknowledge(3_000);
        assert_eq!(times(&world), before, "{has_sack}");
        // Data sent after it is measured again.
        world.write(4_000);
        world.now.0 += 20 * MS;
        world.acknowledge(1_000);
        assert_ne!(times(&world), before);
    }
}

#[test]
fn an_echo_measures_only_where_it_comes_with_new_data_acknowledged() {
    // RFC 7323 4.1.
    let mut world = established_with_stamps();
    let trip = |world: &World| {
        let info = world.stack.tcp_info(world.now, world.conn.unwrap());
        info.unwrap().rtt_us
    };
    let before = trip(&world);
    world.write(500);
    let began = world.now;
    let first = world.only().options.timestamps.unwrap();
    world.sleep(SECOND);
    let again = world.take_sent();
    let last = again.last().unwrap().options.timestamps.unwrap();
    assert!(last.value > first.value + 200);
    // An old echo that acknowledges nothing new.
    let echo = |world: &mut World, echo: u32| {
        let value = world.stamps.unwrap().value + 1;
        world.stamps = Some(Timestamps { value, echo });
    };
    echo(&mut world, first.value);
    world.peer(ACK, &[]);
    assert_eq!(trip(&world), before);
    // The echo identifies the acknowledged transmission, though the segment was sent again.
    echo(&mut world, last.value);
    world.now.0 += 100 * MS;
    world.acknowledge(500);
    let sent_ms = u64::from(last.value - first.value);
    let want_ms = world.now.nanos_since(began) / MS - sent_ms;
    let measured_ms = (8 * u64::from(trip(&world)) - 7 * u64::from(before)) / 1_000;
    assert!(
        measured_ms.abs_diff(want_ms) <= 1,
        "{measured_ms} {want_ms}"
    );
}
