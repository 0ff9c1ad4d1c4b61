//! The search for the path's MTU (RFC 4821 7.6): the outcomes of a probe.

use super::harness::*;
use crate::{Counter, MtuDiscovery, SocketOption};
use slipstack_wire::tcp_options::{SackBlocks, TcpOptions};

/// The base size, and the size halfway from there to the link's.
const BASE: u32 = 1_024;
const PROBE: u32 = 1_242;

fn searching(has_sack: bool) -> World {
    let mut config = config();
    config.tcp.mtu_probing = crate::MtuProbing::Always;
    let mut world = World::new(config);
    world.listen();
    world.accept(TcpOptions {
        mss: Some(1460),
        sack_permitted: has_sack,
        ..TcpOptions::default()
    });
    world.clear();
    world
}

/// Returns the largest segment sent after the first window has been acknowledged.
fn largest_after(mut world: World, written: u64) -> u32 {
    world.write(written);
    world.take_sent();
    world.now.0 += 10 * MS;
    world.acknowledge(10 * BASE);
    world.flush();
    let sent = world.take_sent();
    sent.iter().map(Sent::len).max().unwrap()
}

#[test]
fn mtu_probes_are_sent_only_on_connections_with_sack() {
    // RFC 4821 6.1.
    assert_eq!(largest_after(searching(true), 200_000), PROBE);
    assert_eq!(largest_after(searching(false), 200_000), BASE);
}

#[test]
fn a_connection_whose_packets_may_be_cut_is_probed() {
    let mut world = searching(true);
    let (now, conn) = (world.now, world.conn.unwrap());
    let option = SocketOption::MtuDiscovery(MtuDiscovery::Dont);
    let set = world.stack.tcp_set_option(now, conn, option, &mut world.fx);
    assert_eq!(set, Ok(()));
    assert_eq!(largest_after(world, 200_000), PROBE);
}

#[test]
fn a_probe_waits_for_data_that_shows_its_loss() {
    // RFC 4821 7.4: four more segments.
    let enough = u64::from(10 * BASE + PROBE + 4 * BASE);
    assert_eq!(largest_after(searching(true), enough), PROBE);
    assert_eq!(largest_after(searching(true), enough - 600), BASE);
}

#[test]
fn a_timeout_whose_first_lost_segment_is_the_probe_is_its_failure() {
    // RFC 4821 7.6.3.
    let mut world = searching(true);
    world.write(400_000);
    world.take_sent();
    world.now.0 += 10 * MS;
    world.acknowledge(10 * BASE);
    world.flush();
    let mut end = 0;
    let mut lens = alloc::vec![];
    let mut look = |world: &mut World| {
        for sent in world.take_sent() {
            let (offset, len) = sent.data.unwrap();
            end = end.max(offset + u64::from(len));
            lens.push(len);
        }
        end
    };
    look(&mut world);
    // Nothing comes back until one timeout is over, and then everything does.
    world.sleep(400 * MS);
    assert_eq!(world.stack.counters().value(Counter::TcpTimeouts), 1);
    let mut acked = u64::from(10 * BASE);
    for _ in 0..40 {
        let sent = look(&mut world);
        world.now.0 += 10 * MS;
        world.acknowledge((sent - acked) as u32);
        acked = sent;
        world.flush();
    }
    let probes: alloc::vec::Vec<u32> = lens.into_iter().filter(|len| *len > BASE).collect();
    // Halfway to the failed one again.
    assert_eq!(probes[..2], [PROBE, (BASE + PROBE) / 2]);
}

#[test]
fn connections_follow_a_link_that_takes_more_or_less_than_it_did() {
    // RFC 9293 3.7.3.
    let mut world = World::new(config());
    world.listen();
    world.accept(TcpOptions {
        mss: Some(1460),
        sack_permitted: true,
        ..TcpOptions::default()
    });
    world.clear();
    let mut written = 0;
    for (mtu, len) in [
        (1_500, 1_460),
        (1_300, 1_260),
        (1_400, 1_360),
        (9_000, 1_460),
    ] {
        world.set_link_mtu(mtu);
        written += 2_000;
        world.write(written);
        assert_eq!(world.take_sent()[0].len(), len, "{mtu}");
        world.now.0 += 10 * MS;
        world.acknowledge(2_000);
        world.flush();
        world.take_sent();
    }
}

#[test]
fn a_probe_retransmitted_in_smaller_segments_does_not_raise_the_mtu() {
    // RFC 4821 7.6.4.
    let mut world = searching(true);
    world.write(200_000);
    world.take_sent();
    world.now.0 += 10 * MS;
    // One segment is left before the probe.
    world.acknowledge(9 * BASE);
    world.flush();
    let sent = world.take_sent();
    assert_eq!(sent[0].data, Some((10 * u64::from(BASE), PROBE)));
    let end: u32 = sent.iter().map(Sent::len).sum();
    // Both are lost.
    world.now.0 += 10 * MS;
    let mut sack = SackBlocks::EMPTY;
    let behind = world.ack.wrapping_add(BASE + PROBE);
    sack.push(behind, behind.wrapping_add(5 * BASE));
    let options = TcpOptions {
        sack,
        ..TcpOptions::default()
    };
    world.peer_with(0, ACK, &[], options);
    world.flush();
    let again = world.take_sent();
    assert_eq!(again[0].data.unwrap().0, 9 * u64::from(BASE));
    world.now.0 += 10 * MS;
    world.acknowledge(BASE + end);
    world.flush();
    world.sleep(5 * MS);
    let info = world.stack.tcp_info(world.now, world.conn.unwrap());
    assert_eq!(info.unwrap().pmtu, BASE + 40);
    let counters = world.stack.counters();
    assert_eq!(counters.value(Counter::TcpMtuRaised), 0);
}
