//! TCP_INFO counts losses, the FIN and D-SACKs as the kernel does.

use super::harness::*;
use slipstack_wire::tcp_options::{SackBlocks, TcpOptions};

fn sack(world: &mut World, left: i32, right: i32) {
    let mut sack = SackBlocks::EMPTY;
    let place = |at| world.ack.wrapping_add_signed(at);
    sack.push(place(left), place(right));
    let options = TcpOptions {
        sack,
        ..TcpOptions::default()
    };
    world.peer_with(0, ACK, &[], options);
    world.flush();
}

fn info(world: &World) -> crate::TcpInfo {
    let (now, conn) = (world.now, world.conn.unwrap());
    world.stack.tcp_info(now, conn).unwrap()
}

/// (unacked, lost, retrans)
fn counts(world: &World) -> (u32, u32, u32) {
    let info = info(world);
    (info.unacked, info.lost, info.retrans)
}

#[test]
fn a_lost_segment_stays_lost_until_it_is_acknowledged() {
    let mut world = established();
    world.write(10_000);
    world.take_sent();
    world.now.0 += 10 * MS;
    sack(&mut world, 1_000, 4_000);
    assert_eq!(world.take_sent().len(), 1);
    assert_eq!(counts(&world), (10, 1, 1));
    world.acknowledge(4_000);
    assert_eq!(counts(&world), (6, 0, 0));
}

#[test]
fn a_tail_loss_probe_is_no_loss() {
    let mut world = established();
    world.write(3_000);
    world.sleep(40 * MS);
    assert_eq!(counts(&world), (3, 0, 1));
}

#[test]
fn a_fin_of_its_own_is_a_segment() {
    let mut world = World::new(config());
    world.listen();
    world.accept(TcpOptions {
        mss: Some(1_000),
        ..TcpOptions::default()
    });
    world.write(3_000);
    let (now, conn) = (world.now, world.conn.unwrap());
    world.stack.tcp_shutdown(now, conn, &mut world.fx);
    world.flush();
    assert_eq!(counts(&world), (4, 0, 0));
    let sent = info(&world).bytes_sent;
    world.acknowledge(3_000);
    world.flush();
    world.take_sent();
    world.sleep(230 * MS);
    assert!(world.only().is(FIN));
    assert_eq!(counts(&world), (1, 1, 1));
    let traffic = info(&world);
    assert_eq!((traffic.bytes_sent, traffic.bytes_retrans), (sent, 0));
}

#[test]
fn a_dsack_counts_for_the_segments_that_it_covers() {
    let mut world = established();
    world.write(4_000);
    world.now.0 += 10 * MS;
    world.acknowledge(4_000);
    world.flush();
    let before = info(&world).delivered;
    world.write(5_000);
    sack(&mut world, -2_000, 0);
    // The network has doubled them: nothing was sent again.
    let traffic = info(&world);
    assert_eq!((traffic.dsack_dups, traffic.delivered), (2, before));
}

#[test]
fn counters_stay_valid_when_the_segment_size_shrinks() {
    let mut world = established();
    world.write(4_000);
    let conn = world.conn.unwrap();
    world.stack.tcp.conns.at_mut(conn.index).unwrap().snd.mss = 100;
    assert!(info(&world).delivered < 10);
}
