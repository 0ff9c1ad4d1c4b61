//! RFC 5682: detection of spurious timeouts by ACKs alone, without timestamps.
//!
//! RFC 5682 3.1.

use super::harness::*;
use alloc::vec::Vec;
use slipstack_wire::tcp_options::{SackBlocks, TcpOptions};

fn world(has_sack: bool) -> World {
    let mut world = World::new(config());
    world.listen();
    world.accept(TcpOptions {
        mss: Some(1000),
        sack_permitted: has_sack,
        ..TcpOptions::default()
    });
    world.clear();
    world
}

/// Ten segments in flight, no answer, the timeout has fired.
fn timed_out(has_sack: bool) -> World {
    let mut world = world(has_sack);
    world.write(30_000);
    assert_eq!(world.take_sent().len(), 10);
    // The tail loss probe of a peer with SACK delays the timeout.
    while info(&world).ca_state != 4 {
        world.sleep(20 * MS);
    }
    world.take_sent();
    world
}

fn info(world: &World) -> crate::TcpInfo {
    world
        .stack
        .tcp_info(world.now, world.conn.unwrap())
        .unwrap()
}

fn offsets(sent: &[Sent]) -> Vec<u64> {
    sent.iter().filter_map(|s| s.data.map(|d| d.0)).collect()
}

#[test]
fn originals_that_arrive_late_undo_the_timeout_without_sack() {
    // RFC 5682 2.1.
    let mut world = timed_out(false);
    // Step 2: the late ACK of the first original; two new segments follow instead of
    // retransmissions.
    world.acknowledge(1_000);
    world.flush();
    assert_eq!(offsets(&world.take_sent()), [10_000, 11_000]);
    // Step 3.b: the second ACK advances too: everything had been delivered.
    world.acknowledge(1_000);
    world.flush();
    let after = info(&world);
    assert_eq!((after.ca_state, after.lost), (0, 0));
    assert!(after.snd_cwnd >= 10, "{}", after.snd_cwnd);
    assert!(offsets(&world.take_sent()).iter().all(|at| *at >= 12_000));
}

#[test]
fn a_duplicate_after_the_new_data_means_that_the_loss_was_real() {
    // RFC 5682 2.1.
    let mut world = timed_out(false);
    world.acknowledge(1_000);
    world.flush();
    world.take_sent();
    world.peer(ACK, &[]);
    world.flush();
    assert_eq!(info(&world).ca_state, 4);
    assert!(offsets(&world.take_sent()).contains(&1_000));
}

#[test]
fn an_ack_that_fills_a_hole_proves_nothing_without_sack() {
    // RFC 5682 2.1.
    let mut world = timed_out(false);
    // Only the first was lost: its retransmission acknowledges the rest.
    world.acknowledge(10_000);
    world.flush();
    let after = info(&world);
    assert_eq!(after.ca_state, 0);
    assert!(after.snd_cwnd <= 3, "{}", after.snd_cwnd);
}

#[test]
fn a_sacked_original_undoes_the_timeout() {
    let mut world = timed_out(true);
    let mut list = SackBlocks::EMPTY;
    list.push(world.ack.wrapping_add(3_000), world.ack.wrapping_add(4_000));
    let options = TcpOptions {
        sack: list,
        ..TcpOptions::default()
    };
    world.ack = world.ack.wrapping_add(1_000);
    let list = options.sack;
    world.peer_with(
        0,
        ACK,
        &[],
        TcpOptions {
            sack: list,
            ..TcpOptions::default()
        },
    );
    world.flush();
    assert_eq!(info(&world).ca_state, 0);
    assert!(info(&world).snd_cwnd >= 10);
}

#[test]
fn a_second_timeout_after_progress_is_genuine() {
    let mut world = timed_out(false);
    world.acknowledge(1_000);
    world.flush();
    while world.stack.counters().value(crate::Counter::TcpTimeouts) < 2 {
        world.sleep(20 * MS);
    }
    world.take_sent();
    world.acknowledge(1_000);
    world.flush();
    assert!(offsets(&world.take_sent()).contains(&2_000));
    assert_eq!(info(&world).ca_state, 4);
}

#[test]
fn repeated_timeouts_of_one_segment_may_be_spurious_all_together() {
    let mut world = timed_out(false);
    world.sleep(3 * SECOND);
    assert!(offsets(&world.take_sent()).iter().all(|at| *at == 0));
    world.acknowledge(1_000);
    world.flush();
    assert_eq!(offsets(&world.take_sent()), [10_000, 11_000]);
    world.acknowledge(1_000);
    world.flush();
    let after = info(&world);
    assert_eq!((after.ca_state, after.lost), (0, 0));
    assert!(after.snd_cwnd >= 10, "{}", after.snd_cwnd);
}

#[test]
fn new_data_held_by_nagle_or_cork_is_sent_to_detect_a_spurious_timeout() {
    // The last segment in flight is small, and so is the program's next write.
    for (is_corked, window, len) in [(false, 60_000, 50), (true, 60_000, 50), (false, 2_520, 20)] {
        let mut world = world(false);
        world.write(3_500);
        assert_eq!(world.take_sent().len(), 4);
        while info(&world).ca_state != 4 {
            world.sleep(20 * MS);
        }
        world.take_sent();
        let (now, conn) = (world.now, world.conn.unwrap());
        let option = crate::SocketOption::Cork(is_corked);
        let set = world.stack.tcp_set_option(now, conn, option, &mut world.fx);
        assert!(set.is_ok());
        world.write(3_550);
        world.none();
        world.window = window;
        world.acknowledge(1_000);
        world.flush();
        assert_eq!(world.only().data, Some((3_500, len)));
        world.acknowledge(1_000);
        world.flush();
        let after = info(&world);
        assert_eq!((after.ca_state, after.lost), (0, 0));
    }
}
