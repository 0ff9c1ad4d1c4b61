//! The tail loss probe: the time it leaves, and the effect of its answer.
//!
//! RFC 8985 7.2, 7.3 and 7.4.

use super::harness::*;
use alloc::vec::Vec;
use slipstack_wire::tcp_options::{SackBlocks, TcpOptions};

fn sack(world: &mut World, left: u32, right: u32) {
    let mut sack = SackBlocks::EMPTY;
    sack.push(world.ack.wrapping_add(left), world.ack.wrapping_add(right));
    let options = TcpOptions {
        sack,
        ..TcpOptions::default()
    };
    world.peer_with(0, ACK, &[], options);
    world.flush();
}

fn offsets(world: &mut World) -> Vec<u64> {
    let sent = world.take_sent();
    sent.iter().filter_map(|s| s.data.map(|d| d.0)).collect()
}

fn info(world: &World) -> crate::TcpInfo {
    let (now, conn) = (world.now, world.conn.unwrap());
    world.stack.tcp_info(now, conn).unwrap()
}

#[test]
fn a_loss_that_the_probe_has_shown_reduces_the_window_once() {
    let mut world = established();
    world.write(10_000);
    world.now.0 += 10 * MS;
    world.acknowledge(7_000);
    world.flush();
    world.take_sent();
    world.sleep(60 * MS);
    assert_eq!(offsets(&mut world), [9_000]);
    sack(&mut world, 2_000, 3_000);
    assert_eq!(offsets(&mut world), [7_000]);
    world.now.0 += 10 * MS;
    world.acknowledge(1_000);
    world.flush();
    assert_eq!(offsets(&mut world), [8_000]);
    world.now.0 += 10 * MS;
    // No further than the probe's end.
    world.acknowledge(2_000);
    world.flush();
    let after = info(&world);
    assert_eq!(after.ca_state, 0);
    world.write(11_000);
    world.now.0 += 10 * MS;
    world.acknowledge(1_000);
    world.flush();
    let later = info(&world);
    assert_eq!(later.snd_ssthresh, after.snd_ssthresh);
    assert!(later.snd_cwnd >= after.snd_cwnd, "{}", later.snd_cwnd);
}

#[test]
fn a_hole_that_has_filled_does_not_keep_the_probe_away() {
    let mut world = established();
    world.write(5_000);
    world.take_sent();
    world.now.0 += 10 * MS;
    // The second was quicker than the first.
    sack(&mut world, 1_000, 2_000);
    world.acknowledge(2_000);
    world.flush();
    world.sleep(60 * MS);
    assert_eq!(offsets(&mut world), [4_000]);
    let probes = world
        .stack
        .counters()
        .value(crate::Counter::TxTcpTailProbes);
    assert_eq!(probes, 1);
}

#[test]
fn a_bare_duplicate_when_nothing_is_outstanding_settles_the_probe() {
    // RFC 8985 7.4.2: the peer has SACK and reports no duplicates; original and probe have both
    // arrived.
    let mut world = established();
    world.write(500);
    world.take_sent();
    world.sleep(215 * MS);
    assert_eq!(offsets(&mut world), [0]);
    world.acknowledge(500);
    world.now.0 += MS;
    world.peer(ACK, &[]);
    world.write(1_000);
    world.now.0 += 10 * MS;
    world.acknowledge(500);
    assert_eq!(info(&world).snd_ssthresh, 0x7fff_ffff);
}

#[test]
fn a_link_that_has_become_narrower_leaves_nothing_to_probe_for() {
    // RFC 8985 7.2, RFC 9293 3.7.3.
    let mut world = established();
    world.write(20_000);
    world.take_sent();
    world.now.0 += 30 * MS;
    world.set_link_mtu(840);
    // The probe is due in the moment in which the link is found to be narrower.
    world.stack.on_timers(world.now, &mut world.fx);
    world.flush();
    let sent = world.take_sent();
    assert!(sent.iter().all(|s| s.len() <= 800), "{sent:?}");
    assert_eq!(sent[0].data.unwrap().0, 0);
    // None of the retransmitted data is lost when its first segments are acknowledged.
    world.now.0 += 4 * MS;
    world.acknowledge(800);
    sack(&mut world, 800, 1_600);
    assert!(offsets(&mut world).iter().all(|at| *at >= 8_000));
}

/// Time for which the answer to a flight of `segments` is waited for, in microseconds, when answers
/// have taken `trip_us`.
fn patience_us(trip_us: u64, segments: u64) -> u64 {
    let mut world = established();
    let mut written = 0;
    for _ in 0..100 {
        written += 1_000;
        world.write(written);
        world.now.0 += trip_us * 1_000;
        world.acknowledge(1_000);
        world.flush();
    }
    world.take_sent();
    world.write(written + segments * 1_000);
    assert_eq!(offsets(&mut world).len() as u64, segments);
    let begun = world.now.0;
    while world.fx.sent.is_empty() {
        world.sleep(MS / 10);
    }
    let probes = world.stack.counters();
    assert_eq!(probes.value(crate::Counter::TxTcpTailProbes), 1);
    (world.now.0 - begun) / 1_000
}

#[test]
fn a_probe_waits_for_two_round_trips_and_no_less_long_than_on_linux() {
    // Linux: tcp_schedule_loss_probe, TCP_TIMEOUT_MIN_US. Below 4 ms ours waits for longer.
    for (trip_us, flight, lone) in [
        (100, 10_000, 200_100),
        (1_000, 10_000, 201_000),
        (4_000, 10_000, 204_000),
        (6_000, 14_000, 206_000),
        (40_000, 82_000, 240_000),
        (150_000, 302_000, 350_000),
    ] {
        for (segments, expected) in [(3, flight), (1, lone)] {
            let waited = patience_us(trip_us, segments);
            // The timer's wheel and the steps of the test.
            let grain = expected..=expected + 1_300;
            assert!(grain.contains(&waited), "{trip_us} {segments}: {waited}");
        }
    }
}

#[test]
fn a_continuous_sender_probes_within_the_timeout_of_its_first_segment() {
    let mut world = established();
    let mut written = 0;
    for _ in 0..100 {
        written += 1_000;
        world.write(written);
        world.now.0 += 100 * MS;
        world.acknowledge(1_000);
        world.flush();
    }
    world.take_sent();
    // Nothing comes back; each segment leaves before the probe of the one before it is due.
    for _ in 0..8 {
        written += 1_000;
        world.write(written);
        world.sleep(45 * MS);
    }
    let probes = world.stack.counters();
    assert_eq!(probes.value(crate::Counter::TxTcpTailProbes), 1);
}
