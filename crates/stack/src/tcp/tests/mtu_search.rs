//! The search for the path's MTU (RFC 4821 7.6), a probe and what befalls it.

use super::harness::*;
use crate::Counter;
use slipstack_wire::tcp_options::{SackBlocks, TcpOptions};

/// The base size, and what is half way from there to the link's.
const BASE: u32 = 1_024;
const PROBE: u32 = 1_242;

#[test]
fn a_probe_that_is_sent_again_in_pieces_proves_nothing() {
    // RFC 4821 7.6.4.
    let mut config = config();
    config.tcp.mtu_probing = crate::MtuProbing::Always;
    let mut world = World::new(config);
    world.listen();
    world.accept(TcpOptions {
        mss: Some(1460),
        sack_permitted: true,
        ..TcpOptions::default()
    });
    world.clear();
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
