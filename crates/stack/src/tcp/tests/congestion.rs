//! Congestion window: the first window, its validation, and its reduction by a loss.
//!
//! RFC 6928 2, RFC 2861 3, RFC 7661 4.4 and 4.5.3, RFC 3042 2, RFC 6937 3 and 3.1.

use super::harness::*;
use crate::TcpInfo;
use alloc::vec::Vec;
use slipstack_wire::tcp_options::{SackBlocks, TcpOptions};

const FULL: u32 = 1_000;

fn accepted(mss: u16, has_sack: bool) -> World {
    let mut world = World::new(config());
    world.listen();
    world.accept(TcpOptions {
        mss: Some(mss),
        sack_permitted: has_sack,
        ..TcpOptions::default()
    });
    world.clear();
    world
}

fn info(world: &World) -> TcpInfo {
    world
        .stack
        .tcp_info(world.now, world.conn.unwrap())
        .unwrap()
}

/// The peer reports `segments` beyond the first hole, counted from what it has acknowledged.
fn report(world: &mut World, segments: core::ops::Range<u32>) -> Vec<(u64, u32)> {
    world.now.0 += MS;
    let mut sack = SackBlocks::EMPTY;
    let at = |n| world.ack.wrapping_add(n * FULL);
    sack.push(at(segments.start), at(segments.end));
    let options = TcpOptions {
        sack,
        ..TcpOptions::default()
    };
    world.peer_with(0, ACK, &[], options);
    world.flush();
    data(world)
}

fn data(world: &mut World) -> Vec<(u64, u32)> {
    world.take_sent().iter().filter_map(|s| s.data).collect()
}

fn total(sent: &[(u64, u32)]) -> u32 {
    sent.iter().map(|(_, len)| len).sum()
}

#[test]
fn the_first_window_is_ten_segments_and_no_more_than_14600_bytes_but_for_two_segments() {
    // RFC 6928 2: min(10 * MSS, max(2 * MSS, 14600)).
    for (mss, most) in [(536, 5_360), (1_000, 10_000), (1_460, 14_600)] {
        let mut world = accepted(mss, true);
        world.write(100_000);
        assert_eq!(total(&data(&mut world)), most, "{mss}");
    }
}

#[test]
fn a_lost_syn_ack_makes_the_first_window_no_smaller_than_one_segment() {
    // RFC 6928 2: only the handshake's own retransmission may shrink it.
    let mut world = World::new(config());
    world.listen();
    let offer = TcpOptions {
        mss: Some(1_000),
        ..TcpOptions::default()
    };
    world.inject((PEER_PORT, PORT), world.seq, 0, SYN, &offer, &[]);
    world.seq += 1;
    world.sleep(1_500 * MS);
    let syn_acks = world.take_sent();
    assert_eq!(syn_acks.len(), 2);
    world.ack = syn_acks[0].header.seq.wrapping_add(1);
    world.peer(ACK, &[]);
    world.conn = world.fx.events.iter().find_map(|event| match event {
        crate::Event::Accepted { conn, .. } => Some(*conn),
        _ => None,
    });
    world.write(100_000);
    assert!((FULL..=10 * FULL).contains(&total(&data(&mut world))));
}

#[test]
fn an_application_limited_window_does_not_grow() {
    // RFC 2861 3, RFC 7661 4.4 and 4.5.3: a single segment per round trip validates a single
    // segment.
    let mut world = accepted(1_000, true);
    for n in 1..=100 {
        world.write(n * 1_000);
        world.take_sent();
        world.sleep(10 * MS);
        world.acknowledge(FULL);
    }
    assert_eq!(info(&world).snd_cwnd, 10);
    // One that is used does.
    world.write(120_000);
    assert_eq!(total(&data(&mut world)), 10 * FULL);
    world.sleep(10 * MS);
    world.acknowledge(10 * FULL);
    // RFC 9406 4.3: by eight segments an ACK.
    assert_eq!(info(&world).snd_cwnd, 18);
}

#[test]
fn after_an_idle_time_the_first_window_leaves_and_slow_start_goes_on() {
    let mut world = accepted(1_000, true);
    world.write(10_000);
    for upto in [28_000, 54_000] {
        world.sleep(10 * MS);
        let sent = total(&data(&mut world));
        world.acknowledge(sent);
        world.write(upto);
    }
    world.sleep(10 * MS);
    let sent = total(&data(&mut world));
    world.acknowledge(sent);
    let before = info(&world).snd_cwnd;
    assert!(before >= 30, "{before}");
    // Less than a timeout: the window stands (RFC 5681 4.1).
    world.sleep(100 * MS);
    world.write(54_000 + 1_000);
    assert_eq!(info(&world).snd_cwnd, before);
    world.take_sent();
    world.acknowledge(FULL);
    world.sleep(2 * SECOND);
    world.write(155_000);
    assert_eq!(total(&data(&mut world)), 10 * FULL);
    // RFC 2861 3: ssthresh falls no lower for it; without one yet, slow start goes on to where the
    // window was.
    let after = info(&world);
    assert_eq!((after.snd_cwnd, after.snd_ssthresh), (10, 0x7fff_ffff));
}

#[test]
fn the_first_two_duplicate_acks_release_new_segments() {
    // RFC 3042 2, with SACK and without.
    let mut world = accepted(1_000, true);
    world.write(20_000);
    assert_eq!(total(&data(&mut world)), 10 * FULL);
    world.now.0 += 10 * MS;
    assert_eq!(report(&mut world, 1..2), [(10_000, FULL)]);
    assert_eq!(report(&mut world, 1..3), [(11_000, FULL)]);
    assert_eq!(report(&mut world, 1..4)[0], (0, FULL));

    let mut world = accepted(1_000, false);
    world.write(20_000);
    world.take_sent();
    world.now.0 += 10 * MS;
    for expected in [10_000, 11_000, 0] {
        world.peer(ACK, &[]);
        world.flush();
        assert_eq!(data(&mut world)[0], (expected, FULL));
    }
}

#[test]
fn segments_released_by_duplicate_acks_stay_within_the_peers_window() {
    // RFC 3042 2: only if the receiver's advertised window allows.
    let mut world = accepted(1_000, true);
    world.window = 11_000;
    world.peer(ACK, &[]);
    world.write(20_000);
    assert_eq!(total(&data(&mut world)), 10 * FULL);
    world.now.0 += 10 * MS;
    assert_eq!(report(&mut world, 1..2), [(10_000, FULL)]);
    assert_eq!(report(&mut world, 1..3), []);
}

/// Ten segments are outstanding, and more than can be sent is written.
fn full_flight() -> World {
    let mut world = accepted(1_000, true);
    world.write(60_000);
    assert_eq!(total(&data(&mut world)), 10 * FULL);
    world.now.0 += 10 * MS;
    world
}

#[test]
fn one_loss_reduces_the_window_gradually() {
    // RFC 6937 3: while more is in flight than ssthresh, sending goes in the proportion of ssthresh
    // to the flight.
    let mut world = full_flight();
    report(&mut world, 1..2);
    report(&mut world, 1..3);
    let mut sent = report(&mut world, 1..4);
    assert_eq!(sent[0], (0, FULL));
    let ssthresh = info(&world).snd_ssthresh;
    assert!((5..=9).contains(&ssthresh), "{ssthresh}");
    let mut pauses = 0;
    // Two more have left before the third duplicate: twelve were outstanding, one is lost.
    for n in 5..=12 {
        let now = report(&mut world, 1..n);
        assert!(now.len() <= 1, "no burst: {now:?}");
        pauses = if now.is_empty() { pauses + 1 } else { 0 };
        // Rate halving of old is silent for half of a window.
        assert!(pauses <= 2, "no silence");
        sent.extend(now);
    }
    // RFC 6937 3: delivered * ssthresh / RecoverFS, rounded up.
    let allowed = (9 * ssthresh).div_ceil(10) + 1;
    assert!(sent.len() as u32 <= allowed, "{} of {allowed}", sent.len());
    assert!(
        sent.len() as u32 + 2 >= allowed,
        "{} of {allowed}",
        sent.len()
    );
    world.acknowledge(12 * FULL);
    world.flush();
    let after = info(&world);
    assert_eq!((after.ca_state, after.snd_cwnd), (0, ssthresh));
}

#[test]
fn sacked_bytes_belong_to_the_flight_that_a_loss_halves() {
    // RFC 5681 equation 4: half of the data outstanding when the loss was detected, however much of
    // it one ACK reports.
    let mut config = config();
    config.tcp.congestion = crate::Congestion::NewReno;
    let mut world = World::new(config);
    world.listen();
    world.accept(TcpOptions {
        mss: Some(1_000),
        sack_permitted: true,
        ..TcpOptions::default()
    });
    world.clear();
    world.write(60_000);
    assert_eq!(total(&data(&mut world)), 10 * FULL);
    world.now.0 += 10 * MS;
    report(&mut world, 1..9);
    let info = info(&world);
    assert_eq!((info.ca_state, info.snd_ssthresh), (3, 5));
}

#[test]
fn after_heavy_loss_no_more_leaves_than_was_delivered_and_one_segment() {
    // RFC 6937 3.1 (PRR-SSRB): the flight is below ssthresh at once, and grows as slow start does.
    let mut world = full_flight();
    let mut sent = report(&mut world, 7..10);
    // Three were delivered by one ACK; it shows new loss, so nothing is added.
    assert!(total(&sent) <= 3 * FULL, "{sent:?}");
    for _ in 0..3 {
        let progress = 1;
        world.acknowledge(progress * FULL);
        world.flush();
        let now = data(&mut world);
        assert!(total(&now) <= (progress + 1) * FULL, "{now:?}");
        assert!(!now.is_empty());
        sent.extend(now);
    }
    assert!(
        sent[..7].iter().all(|&(at, _)| at < 7_000),
        "what is lost goes first: {sent:?}"
    );
}

/// Open for longer than its slow start, on a path of 10 ms, with a full window in flight.
fn after_a_loss() -> (World, u32) {
    let mut world = accepted(1_000, true);
    world.window = 60_000;
    world.peer(ACK, &[]);
    world.write(10_000_000);
    for _ in 0..6 {
        world.sleep(10 * MS);
        let sent = total(&data(&mut world));
        world.acknowledge(sent);
    }
    world.sleep(10 * MS);
    let outstanding = total(&data(&mut world));
    report(&mut world, 1..4);
    world.acknowledge(outstanding);
    for _ in 0..2 {
        world.sleep(10 * MS);
        let sent = total(&data(&mut world));
        world.acknowledge(sent);
    }
    let info = info(&world);
    assert!(info.snd_cwnd >= 25 && info.snd_ssthresh < 60, "{info:?}");
    world.sleep(20 * MS);
    world.take_sent();
    (world, info.snd_cwnd)
}

#[test]
fn a_burst_of_late_acks_does_not_release_a_burst_of_segments() {
    let (mut world, cwnd) = after_a_loss();
    let half = cwnd / 2 * FULL;
    world.acknowledge(half);
    world.flush();
    // A millisecond's worth at 1.2 windows a round trip of 10 ms, and a segment's rounding.
    let at_once = total(&data(&mut world));
    assert!(at_once <= half / 3, "{at_once} of {half}");
    world.sleep(10 * MS);
    let later = total(&data(&mut world));
    assert!(at_once + later >= half, "{at_once} and {later} of {half}");
}

#[test]
fn sends_that_the_engine_was_late_for_are_caught_up() {
    let (mut world, cwnd) = after_a_loss();
    let half = cwnd / 2 * FULL;
    world.acknowledge(half);
    world.flush();
    let at_once = total(&data(&mut world));
    // The program was away when the rest was due.
    world.now.0 += 8 * MS;
    world.sleep(0);
    let later = total(&data(&mut world));
    assert!(at_once + later >= half, "{at_once} and {later} of {half}");
}

#[test]
fn three_duplicate_acks_retransmit_a_small_segment_too() {
    // RFC 5681 3.2 counts duplicates, whatever the size of the outstanding data.
    let mut world = accepted(1_000, false);
    let (now, conn) = (world.now, world.conn.unwrap());
    let option = crate::SocketOption::NoDelay(true);
    let set = world.stack.tcp_set_option(now, conn, option, &mut world.fx);
    assert!(set.is_ok());
    for n in 1..=10 {
        world.write(n * 100);
    }
    assert_eq!(data(&mut world).len(), 10);
    world.now.0 += 10 * MS;
    for expected in [&[][..], &[], &[(0, 100)]] {
        world.peer(ACK, &[]);
        world.flush();
        assert_eq!(data(&mut world), expected);
    }
    world.now.0 += 10 * MS;
    world.acknowledge(1_000);
    world.flush();
    assert_eq!(info(&world).ca_state, 0);
    assert_eq!(world.stack.counters().value(crate::Counter::TcpTimeouts), 0);
}

#[test]
fn duplicate_acks_beyond_the_segments_in_flight_do_not_count() {
    let mut world = accepted(1_000, false);
    world.write(3_000);
    world.take_sent();
    world.now.0 += 10 * MS;
    for _ in 0..20 {
        world.peer(ACK, &[]);
    }
    world.flush();
    assert_eq!(data(&mut world), []);
    assert_eq!(info(&world).ca_state, 0);
}

#[test]
fn a_threshold_that_was_never_set_makes_no_window() {
    let mut config = config();
    config.tcp.congestion = crate::Congestion::Bbr;
    let mut world = World::new(config);
    world.listen();
    world.accept(TcpOptions {
        mss: Some(1_000),
        sack_permitted: true,
        ..TcpOptions::default()
    });
    world.clear();
    world.write(10_000);
    world.sleep(8 * MS);
    assert_eq!(total(&data(&mut world)), 10 * FULL);
    report(&mut world, 1..4);
    assert_eq!(info(&world).ca_state, 3);
    let (now, conn) = (world.now, world.conn.unwrap());
    let option = crate::SocketOption::Congestion(crate::Congestion::Cubic);
    let set = world.stack.tcp_set_option(now, conn, option, &mut world.fx);
    assert!(set.is_ok());
    world.now.0 += 10 * MS;
    world.acknowledge(10 * FULL);
    world.flush();
    let after = info(&world);
    assert_eq!(after.ca_state, 0);
    assert!(after.snd_cwnd <= 20, "{}", after.snd_cwnd);
}

#[test]
fn a_limited_pacing_rate_spaces_segments_until_it_is_lifted() {
    // SO_MAX_PACING_RATE: a segment each 10 ms, of which one may be early.
    let mut world = accepted(1_000, true);
    limit_rate(&mut world, 100_000);
    world.write(9_000);
    assert_eq!(total(&data(&mut world)), 1_000);
    assert_eq!(info(&world).pacing_rate, 100_000);
    world.acknowledge(1_000);
    world.sleep(8 * MS);
    world.none();
    world.sleep(3 * MS);
    assert_eq!(total(&data(&mut world)), 1_000);
    limit_rate(&mut world, 0);
    world.acknowledge(1_000);
    world.sleep(15 * MS);
    assert_eq!(total(&data(&mut world)), 7_000);
}

fn limit_rate(world: &mut World, bytes: u32) {
    let option = crate::SocketOption::MaxPacingRate(bytes);
    let (now, conn) = (world.now, world.conn.unwrap());
    let set = world.stack.tcp_set_option(now, conn, option, &mut world.fx);
    assert_eq!(set, Ok(()));
}
