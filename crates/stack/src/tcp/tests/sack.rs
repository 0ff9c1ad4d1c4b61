//! Out-of-order data, SACK both ways, fast recovery.
//!
//! RFC 2018 3, 4 and 5, RFC 2883 4, RFC 6675 4 and 5, RFC 8985 6.2.

use super::harness::*;
use crate::{Counter, Event};
use alloc::vec::Vec;
use slipstack_wire::tcp_options::{SackBlocks, TcpOptions};

fn sack(world: &mut World, blocks: &[(u32, u32)]) {
    let mut list = SackBlocks::EMPTY;
    for (left, right) in blocks {
        list.push(
            world.ack.wrapping_add(*left),
            world.ack.wrapping_add(*right),
        );
    }
    world.peer_with(
        0,
        ACK,
        &[],
        TcpOptions {
            sack: list,
            timestamps: world.stamps,
            ..TcpOptions::default()
        },
    );
}

fn offsets(sent: &[Sent]) -> Vec<u64> {
    sent.iter().filter_map(|s| s.data.map(|d| d.0)).collect()
}

#[test]
fn out_of_order_data_goes_to_its_offset_and_is_reported() {
    let mut world = established();
    world.peer_at(100, ACK, b"second");
    world.flush();
    let ack = world.only();
    assert_eq!(world.fx.stored[&100], b"second");
    assert_eq!(ack.header.ack, world.seq);
    assert_eq!(
        ack.options.sack.as_slice(),
        [(world.seq + 100, world.seq + 106)]
    );
    world.peer_at(0, ACK, &[0; 100]);
    assert!(world.has(Event::Received {
        conn: world.conn.unwrap(),
        upto: 106
    }));
    world.flush();
    let ack = world.only();
    assert_eq!(ack.header.ack, world.seq + 106);
    assert!(ack.options.sack.is_empty());
}

#[test]
fn a_hole_is_reported_while_data_goes_the_other_way() {
    // RFC 2018 4: every ACK that does not acknowledge all received data has SACK blocks.
    let mut world = established();
    world.write(100_000);
    world.take_sent();
    world.now.0 += 10 * MS;
    for n in 1..4 {
        world.ack = world.ack.wrapping_add(2_000);
        world.peer_at(1_000 * n, ACK, &[0; 1_000]);
        world.flush();
        let sent = world.take_sent();
        let reports = |s: &Sent| {
            s.options.sack.as_slice() == [(world.seq + 1_000, world.seq + 1_000 * (n + 1))]
        };
        assert!(sent.iter().any(reports), "{sent:?}");
        assert!(sent.iter().any(|s| s.len() > 0));
    }
}

#[test]
fn a_duplicate_is_reported_as_such() {
    let mut world = established();
    world.peer(ACK, b"hello");
    world.flush();
    world.sleep(SECOND);
    world.take_sent();
    world.seq -= 5;
    world.peer(ACK, b"hello");
    world.flush();
    let ack = world.only();
    assert_eq!(ack.options.sack.as_slice(), [(world.seq - 5, world.seq)]);
}

#[test]
fn three_sacked_segments_resend_the_hole_at_once() {
    let mut world = established();
    world.write(10_000);
    assert_eq!(world.take_sent().len(), 10);
    world.now.0 += 10 * MS;
    sack(&mut world, &[(1000, 2000)]);
    sack(&mut world, &[(1000, 3000)]);
    world.flush();
    world.none();
    sack(&mut world, &[(1000, 4000)]);
    world.flush();
    assert_eq!(offsets(&world.take_sent()), [0]);
    assert_eq!(world.stack.counters().value(Counter::TxTcpResentFast), 1);
    let cwnd = world
        .stack
        .tcp_info(world.now, world.conn.unwrap())
        .unwrap()
        .snd_cwnd;
    assert!(cwnd <= 7, "{cwnd}");
    world.acknowledge(10_000);
    world.flush();
    let info = world
        .stack
        .tcp_info(world.now, world.conn.unwrap())
        .unwrap();
    assert_eq!((info.ca_state, info.snd_cwnd, info.snd_ssthresh), (0, 7, 7));
}

#[test]
fn a_segment_that_arrives_before_its_retransmission_was_not_lost() {
    let mut world = established();
    world.write(10_000);
    world.take_sent();
    world.now.0 += 10 * MS;
    // Taken in one turn: nothing leaves between them.
    sack(&mut world, &[(1000, 4000)]);
    world.acknowledge(4_000);
    world.flush();
    world.none();
    let info = |world: &World| {
        let (now, conn) = (world.now, world.conn.unwrap());
        world.stack.tcp_info(now, conn).unwrap()
    };
    let after = info(&world);
    assert!(after.ca_state == 0 && after.snd_cwnd >= 10, "{after:?}");
    // A loss is still one when ACKs of later data come first.
    sack(&mut world, &[(1000, 5000)]);
    sack(&mut world, &[(1000, 6000)]);
    world.sleep(20 * MS);
    assert_eq!(offsets(&world.take_sent())[0], 4000);
    assert!(info(&world).snd_cwnd < 10);
}

#[test]
fn a_dsack_that_comes_when_all_is_acknowledged_undoes_the_reduction() {
    // RFC 2883 5, RFC 4015 3.4.
    let mut world = established();
    world.write(10_000);
    world.take_sent();
    world.now.0 += 10 * MS;
    sack(&mut world, &[(1000, 4000)]);
    world.flush();
    assert_eq!(offsets(&world.take_sent()), [0]);
    world.acknowledge(10_000);
    world.flush();
    let info = |world: &World| world.stack.tcp_info(world.now, world.conn.unwrap());
    assert_eq!(info(&world).unwrap().snd_cwnd, 7);
    sack(
        &mut world,
        &[(10_000_u32.wrapping_neg(), 9_000_u32.wrapping_neg())],
    );
    world.flush();
    let after = info(&world).unwrap();
    assert_eq!((after.snd_cwnd, after.dsack_dups), (10, 1));
}

#[test]
fn the_degree_of_reordering_is_remembered() {
    let reordering = |world: &World| {
        let (now, conn) = (world.now, world.conn.unwrap());
        let info = world.stack.tcp_info(now, conn).unwrap();
        (info.reordering, info.reord_seen)
    };
    let mut world = established();
    world.write(10_000);
    world.now.0 += 10 * MS;
    sack(&mut world, &[(5000, 6000)]);
    assert_eq!(reordering(&world), (3, 0));
    // The second arrives after the sixth: five segments, as Linux counts them.
    sack(&mut world, &[(1000, 2000), (5000, 6000)]);
    assert_eq!(reordering(&world), (5, 1));
    world.acknowledge(10_000);
    world.flush();
    // Nor is the first forgotten, whose ACK clears all SACK state.
    assert_eq!(reordering(&world), (6, 2));
    // It outlasts the data in flight.
    world.sleep(10 * SECOND);
    assert_eq!(reordering(&world).0, 6);
}

#[test]
fn two_holes_are_both_filled() {
    let mut world = established();
    world.write(10_000);
    world.take_sent();
    world.now.0 += 10 * MS;
    sack(&mut world, &[(1000, 2000), (3000, 9000)]);
    world.flush();
    sack(&mut world, &[(1000, 2000), (3000, 10_000)]);
    world.flush();
    let resent = offsets(&world.take_sent());
    assert!(resent.contains(&0) && resent.contains(&2000), "{resent:?}");
}

#[test]
fn without_sack_three_duplicates_resend() {
    // RFC 5681 2 and 3.2.
    let mut world = World::new(config());
    world.listen();
    world.accept(TcpOptions {
        mss: Some(1000),
        ..TcpOptions::default()
    });
    world.take_sent();
    world.write(10_000);
    world.take_sent();
    world.now.0 += 10 * MS;
    for _ in 0..3 {
        world.peer(ACK, &[]);
        world.flush();
    }
    assert!(offsets(&world.take_sent()).contains(&0));
    // RFC 6582 3.2: a partial ACK resends the next hole.
    world.acknowledge(2000);
    world.flush();
    assert!(offsets(&world.take_sent()).contains(&2000));
}

#[test]
fn a_sack_block_of_unsent_data_is_ignored() {
    let mut world = established();
    world.write(3_000);
    world.take_sent();
    sack(&mut world, &[(1000, 50_000)]);
    sack(&mut world, &[(2000, 1000)]);
    sack(&mut world, &[(u32::MAX - 5000, 100)]);
    world.flush();
    let info = world
        .stack
        .tcp_info(world.now, world.conn.unwrap())
        .unwrap();
    assert_eq!((info.sacked, info.lost), (0, 0));
}

#[test]
fn a_retransmission_restarts_the_retransmission_timer() {
    // RFC 6675 6.
    let mut world = established();
    world.write(10_000);
    world.take_sent();
    world.sleep(100 * MS);
    world.take_sent();
    world.write(15_000);
    sack(&mut world, &[(1000, 9000)]);
    world.flush();
    assert!(offsets(&world.take_sent()).contains(&0), "the first repair");
    world.sleep(200 * MS);
    sack(&mut world, &[(1000, 15_000)]);
    world.sleep(60 * MS);
    assert!(
        offsets(&world.take_sent()).contains(&0),
        "the second repair"
    );
    world.sleep(180 * MS);
    assert_eq!(world.stack.counters().value(Counter::TcpTimeouts), 0);
    world.sleep(SECOND);
    assert_ne!(world.stack.counters().value(Counter::TcpTimeouts), 0);
}

#[test]
fn after_a_timeout_only_unsacked_data_is_retransmitted() {
    // RFC 6675 5.1.
    let mut world = established();
    world.write(10_000);
    world.take_sent();
    world.now.0 += 10 * MS;
    sack(&mut world, &[(4000, 6000), (8000, 9000)]);
    world.sleep(2 * SECOND);
    assert_ne!(world.stack.counters().value(Counter::TcpTimeouts), 0);
    let mut again = offsets(&world.take_sent());
    for acked in [1_000, 3_000, 2_000, 2_000] {
        world.now.0 += 10 * MS;
        world.acknowledge(acked);
        world.flush();
        again.extend(offsets(&world.take_sent()));
    }
    for sacked in [4_000, 5_000, 8_000] {
        assert!(!again.contains(&sacked), "{again:?}");
    }
    for lost in [0, 1_000, 6_000, 7_000] {
        assert!(again.contains(&lost), "{lost}: {again:?}");
    }
}

#[test]
fn consecutive_losses_are_detected_by_one_ack() {
    let mut world = World::new(config());
    world.listen();
    world.accept(TcpOptions {
        mss: Some(1000),
        sack_permitted: true,
        window_scale: Some(4),
        ..TcpOptions::default()
    });
    world.clear();
    world.write(1_000_000);
    let mut outstanding = world.take_sent().len() as u32;
    while outstanding < 150 {
        world.now.0 += 10 * MS;
        for _ in 0..outstanding {
            world.acknowledge(1_000);
            world.flush();
        }
        outstanding = world.take_sent().len() as u32;
    }
    world.now.0 += 10 * MS;
    sack(
        &mut world,
        &[((outstanding - 3) * 1_000, outstanding * 1_000)],
    );
    world.sleep(5 * MS);
    let info = world.stack.tcp_info(world.now, world.conn.unwrap());
    let info = info.unwrap();
    assert_eq!(info.lost, outstanding - 3);
}

#[test]
fn a_tail_loss_probe_that_was_needless_is_settled_when_nothing_is_outstanding() {
    // RFC 8985 7.4.2: the D-SACK may come after the last byte is acknowledged.
    let mut world = established();
    world.write(500);
    world.take_sent();
    world.sleep(215 * MS);
    assert_eq!(world.only().data, Some((0, 500)));
    world.acknowledge(500);
    world.now.0 += MS;
    sack(&mut world, &[(0u32.wrapping_sub(500), 0)]);
    world.write(1_000);
    world.now.0 += 10 * MS;
    world.acknowledge(500);
    let info = world.stack.tcp_info(world.now, world.conn.unwrap());
    assert_eq!(info.unwrap().snd_ssthresh, 0x7fff_ffff);
}

#[test]
fn a_lost_tail_is_probed_before_the_timeout() {
    // RFC 8985 7.2 and 7.3.
    let mut world = established();
    world.write(5_000);
    world.take_sent();
    world.now.0 += 10 * MS;
    world.acknowledge(2_000);
    world.sleep(60 * MS);
    assert_eq!(offsets(&world.take_sent()), [4000]);
    assert_eq!(world.stack.counters().value(Counter::TxTcpTailProbes), 1);
    // The SACK of the probe reveals the hole.
    sack(&mut world, &[(2000, 3000)]);
    world.sleep(30 * MS);
    assert!(offsets(&world.take_sent()).contains(&2000));
    assert_eq!(world.stack.counters().value(Counter::TcpTimeouts), 0);
}

/// Segments of 100 bytes that begin at these places behind the edge, all taken in one turn; the
/// blocks of each ACK, as such places.
fn told_of(world: &mut World, starts: &[i32]) -> Vec<Vec<(i32, i32)>> {
    let edge = world.seq;
    for &start in starts {
        world.seq = edge.wrapping_add_signed(start);
        world.peer(ACK, &[0; 100]);
    }
    world.seq = edge;
    world.flush();
    let place = |seq: u32| seq.wrapping_sub(edge) as i32;
    let blocks = |frame: &Sent| -> Vec<_> {
        let list = frame.options.sack.as_slice();
        list.iter().map(|&(l, r)| (place(l), place(r))).collect()
    };
    world.take_sent().iter().map(blocks).collect()
}

#[test]
fn every_gap_of_a_turn_is_reported_by_sack() {
    let mut world = established();
    let acks = told_of(&mut world, &[200, 400, 600, 800, 1000, 1200, 1400]);
    for start in [200, 400, 600, 800, 1000, 1200, 1400] {
        let block = (start, start + 100);
        assert!(acks.iter().any(|told| told.contains(&block)), "{acks:?}");
    }
    assert_eq!(acks.len(), 3);
    // Data that continues the newest range is reported once, also when other ranges follow.
    assert_eq!(told_of(&mut world, &[1500, 1600, 1700, 1800]).len(), 1);
    let acks = told_of(&mut world, &[1900, 2100, 2300, 2500]);
    assert!(
        acks.iter().flatten().any(|&block| block == (1400, 2000)),
        "{acks:?}"
    );
}

#[test]
fn every_duplicate_segment_of_a_turn_is_reported_by_dsack() {
    let mut world = established();
    world.peer(ACK, &[0; 400]);
    world.flush();
    world.take_sent();
    let acks = told_of(&mut world, &[-400, -200, -100, 300]);
    assert_eq!(acks[..3], [[(-400, -300)], [(-200, -100)], [(-100, 0)]]);
    assert_eq!(acks[3], [(300, 400)]);
    let acks = told_of(&mut world, &[300, 300]);
    assert!(
        acks.len() == 2 && acks.iter().all(|told| told[0] == (300, 400)),
        "{acks:?}"
    );
}

#[test]
fn a_fin_behind_missing_data_is_sacked_as_one_byte() {
    let mut world = established();
    let blocks = |world: &mut World| {
        world.flush();
        let ack = world.only();
        let from = world.seq;
        let relative = |it: &(u32, u32)| (it.0.wrapping_sub(from), it.1.wrapping_sub(from));
        let sack = ack.options.sack;
        sack.as_slice().iter().map(relative).collect::<Vec<_>>()
    };
    // A FIN alone; text before it; text that reaches it.
    world.peer_at(300, FIN | ACK, &[]);
    assert_eq!(blocks(&mut world), [(300, 301)]);
    world.peer_at(100, ACK, &[0; 100]);
    assert_eq!(blocks(&mut world), [(100, 200), (300, 301)]);
    world.peer_at(200, ACK, &[0; 100]);
    assert_eq!(blocks(&mut world), [(100, 301)]);
    world.peer(ACK, &[0; 100]);
    world.flush();
    let ack = world.only();
    assert_eq!(ack.header.ack, world.seq.wrapping_add(201));
    assert!(ack.options.sack.is_empty());
}

#[test]
fn sack_blocks_leave_before_data_of_the_same_turn() {
    let mut world = established();
    world.peer_at(1_000, ACK, &[0; 1_000]);
    world.write(100);
    let sent = world.take_sent();
    let lens: Vec<u32> = sent.iter().map(Sent::len).collect();
    assert_eq!(lens, [0, 100]);
    let block = (world.seq + 1_000, world.seq + 2_000);
    assert_eq!(sent[0].options.sack.as_slice(), [block]);
}

#[test]
fn a_partly_overlapping_segment_is_reported_as_a_duplicate() {
    // Ranges held, the segment that arrives, and the blocks: RFC 2883 4.2, and in the order of
    // Linux.
    let table = [
        ((151, 100), (151, 201), (101, 251)),
        ((51, 300), (101, 201), (51, 351)),
    ];
    for ((at, len), duplicate, held) in table {
        let mut world = established();
        world.peer_at(101, ACK, &[0; 100]);
        world.flush();
        world.take_sent();
        world.peer_at(at, ACK, &alloc::vec![0; len]);
        world.flush();
        let from = world.seq;
        let sack = world.only().options.sack;
        let wire = |(start, end)| (from + start, from + end);
        assert_eq!(sack.as_slice(), [wire(duplicate), wire(held)]);
    }
    let mut world = established();
    world.peer_at(101, ACK, &[0; 100]);
    world.flush();
    world.take_sent();
    let from = world.seq;
    world.peer(ACK, &[0; 200]);
    world.flush();
    assert_eq!(
        world.only().options.sack.as_slice(),
        [(from + 101, from + 200)]
    );
}
