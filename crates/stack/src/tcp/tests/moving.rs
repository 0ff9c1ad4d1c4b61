//! Detach and adopt: connections change their stack, and invalid images are refused.

use super::harness::*;
use crate::tcp::{ConnectionImage, HalfOpenImage};
use crate::{Event, SocketError};
use alloc::vec::Vec;
use proptest::prelude::*;
use slipstack_wire::RxMeta;
use slipstack_wire::tcp::TcpFlags;
use slipstack_wire::tcp_options::TcpOptions;

/// Carries the connection over to a new stack of the same address.
pub(super) fn moved(mut world: World) -> World {
    let image = world.stack.tcp_detach(world.conn.unwrap()).unwrap();
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 0));
    world.take_sent();
    let mut other = World::new(crate::StackConfig {
        seed: [9; 32],
        ..config()
    });
    other.now = world.now;
    (other.seq, other.ack, other.stamps) = (world.seq, world.ack, world.stamps);
    let image = ConnectionImage::from_bytes(&image.to_bytes());
    other.conn = Some(
        other
            .stack
            .tcp_adopt(other.now, &image, &mut other.fx)
            .unwrap(),
    );
    other.flush();
    other.take_sent();
    other
}

#[test]
fn a_moved_connection_goes_on_both_ways() {
    let mut world = established_with_stamps();
    world.peer(ACK, b"hello");
    world.write(100);
    world.acknowledge(100);
    let mut world = moved(world);
    let conn = world.conn.unwrap();
    world.peer(ACK, b"world");
    assert!(world.has(Event::Received { conn, upto: 10 }));
    world.write(150);
    assert_eq!(world.only().data, Some((100, 50)));
    world.acknowledge(50);
    assert!(world.has(Event::Acked { conn, upto: 150 }));
}

#[test]
fn a_moved_connection_keeps_its_limit_of_the_pacing_rate() {
    let mut world = established();
    let option = crate::SocketOption::MaxPacingRate(100_000);
    let (now, conn) = (world.now, world.conn.unwrap());
    let set = world.stack.tcp_set_option(now, conn, option, &mut world.fx);
    assert_eq!(set, Ok(()));
    let mut world = moved(world);
    world.write(9_000);
    let sent: u32 = world.take_sent().iter().map(|sent| sent.len()).sum();
    assert!(sent < 4_000, "{sent}");
}

#[test]
fn data_in_flight_before_the_move_is_sent_again_if_lost() {
    let mut world = established();
    world.write(3000);
    let mut world = moved(world);
    world.sleep(300 * MS);
    assert_eq!(world.take_sent()[0].data.unwrap().0, 0);
}

#[test]
fn out_of_order_ranges_move_along() {
    let mut world = established();
    world.peer_at(100, ACK, b"second");
    let mut world = moved(world);
    world.peer_at(0, ACK, &[0; 100]);
    assert!(world.has(Event::Received {
        conn: world.conn.unwrap(),
        upto: 106
    }));
}

#[test]
fn a_closing_connection_finishes_elsewhere() {
    let mut world = established();
    let conn = world.conn.unwrap();
    world.stack.tcp_shutdown(world.now, conn, &mut world.fx);
    let mut world = moved(world);
    world.sleep(SECOND);
    world.take_sent();
    world.acknowledge(1);
    world.peer(FIN | ACK, &[]);
    assert!(world.is_released());
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 1));
}

#[test]
fn an_image_is_adopted_once() {
    let mut world = established();
    let image = world.stack.tcp_detach(world.conn.unwrap()).unwrap();
    world
        .stack
        .tcp_adopt(world.now, &image, &mut world.fx)
        .unwrap();
    assert_eq!(
        world.stack.tcp_adopt(world.now, &image, &mut world.fx),
        Err(SocketError::FlowExists)
    );
}

/// A connection that we have closed first: it is in TIME-WAIT.
fn in_time_wait(mut world: World) -> World {
    let conn = world.conn.unwrap();
    let (now, mode) = (world.now, crate::CloseMode::Orderly);
    world.stack.tcp_close(now, conn, mode, false, &mut world.fx);
    world.flush();
    world.acknowledge(1);
    world.peer(FIN | ACK, &[]);
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 1));
    world.clear();
    world
}

#[test]
fn an_end_that_overtakes_an_older_ack_is_acknowledged_once() {
    // While a connection moves, its frames arrive by two paths; a second ACK would reach a peer
    // that has closed.
    let mut world = established();
    let conn = world.conn.unwrap();
    let (now, mode) = (world.now, crate::CloseMode::Orderly);
    world.stack.tcp_close(now, conn, mode, false, &mut world.fx);
    world.flush();
    world.clear();
    let (seq, ack) = (world.seq, world.ack);
    let mut deliver = |seq, ack, flags| {
        world.deliver((PEER_PORT, PORT), (seq, ack), flags, &[], &[]);
    };
    deliver(seq, ack.wrapping_add(1), FIN | ACK);
    deliver(seq, ack, ACK);
    world.flush();
    let end = world.only();
    assert_eq!(end.header.ack, seq.wrapping_add(1));
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 1));
    // Passed on by another engine, it may come turns later; from the wire it is answered.
    for (meta, answers) in [(RxMeta::LOCAL, 0), (RxMeta::VERIFIED, 1)] {
        world.meta = meta;
        world.deliver((PEER_PORT, PORT), (seq, ack), ACK, &[], &[]);
        world.flush();
        assert_eq!(world.take_sent().len(), answers, "{meta:?}");
    }
}

#[test]
fn time_wait_leaves_segments_of_a_later_connection_to_its_engine() {
    for mut world in [established(), established_with_stamps()].map(in_time_wait) {
        world.fx.others = Some(0);
        // The peer has opened again elsewhere: request, end, reset.
        let mut left = 0;
        for flags in [ACK, FIN | ACK, RST] {
            world.peer_at(50_000, flags, b"");
            left += 1;
            assert_eq!(world.fx.others, Some(left), "{flags:?}");
        }
        // Wrapped numbers of the peer: its acknowledgement is beyond ours.
        world.ack = world.ack.wrapping_add(70_000);
        world.peer_at(0u32.wrapping_sub(90_000), ACK, b"GET /");
        assert_eq!(world.fx.others, Some(left + 1));
        world.none();
        // Without ACK and RST it is no connection's, and answered as on Linux.
        world.peer_at(50_000, TcpFlags(0), b"x");
        assert_eq!(world.fx.others, Some(left + 1));
        assert!(world.only().is(ACK));
        assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 1));
    }
}

#[test]
fn a_listener_forwards_segments_that_may_belong_to_a_connection_elsewhere() {
    // RFC 9293 3.10.7.2 (fourth): a segment without ACK, SYN and RST is dropped in every state.
    let mut world = World::new(config());
    world.listen();
    world.fx.others = Some(0);
    let none = TcpFlags(0);
    for (flags, left) in [(none, 0), (FIN, 0), (SYN | FIN, 0), (ACK, 1), (RST, 2)] {
        let ends = (PEER_PORT, PORT);
        world.inject(ends, 5000, 0, flags, &TcpOptions::default(), b"x");
        assert_eq!(world.fx.others, Some(left), "{flags:?}");
        world.none();
    }
}

#[test]
fn time_wait_keeps_its_own_segments() {
    let mut world = in_time_wait(established());
    world.fx.others = Some(0);
    // The end once more, an old byte, a reset (RFC 1337).
    world.peer_at(0u32.wrapping_sub(1), FIN | ACK, &[]);
    assert!(world.only().is(ACK));
    world.peer_at(0u32.wrapping_sub(2), ACK, b"x");
    assert!(world.only().is(ACK));
    world.peer_at(0, RST, &[]);
    world.none();
    assert_eq!(world.fx.others, Some(0));
    // If no other engine can have it, it is answered as usual.
    world.fx.others = None;
    world.peer_at(50_000, ACK, b"x");
    assert!(world.only().is(ACK));
}

#[test]
fn the_largest_numbers_in_an_image_are_refused_or_harmless() {
    for is_half_closed in [false, true] {
        let image = {
            let mut world = established();
            world.write(100);
            if is_half_closed {
                world.peer(FIN | ACK, &[]);
            }
            let image = world.stack.tcp_detach(world.conn.unwrap());
            image.unwrap().to_bytes()
        };
        for at in 0..image.len() - 8 {
            let mut bytes = image;
            bytes[at..at + 8].fill(0xff);
            let mut world = established();
            let conn = world.conn.unwrap();
            let _ = world.stack.tcp_detach(conn);
            let image = ConnectionImage::from_bytes(&bytes);
            if let Ok(conn) = world.stack.tcp_adopt(world.now, &image, &mut world.fx) {
                world.conn = Some(conn);
                world.sleep(SECOND);
            }
        }
    }
}

proptest! {
    #[test]
    fn a_damaged_image_is_refused_or_harmless(
        changes in prop::collection::vec((0usize..ConnectionImage::LEN, any::<u8>()), 1..12),
        seed: u8,
    ) {
        let mut world = established();
        world.write(5000);
        world.peer_at(100, ACK, b"second");
        let mut bytes = world.stack.tcp_detach(world.conn.unwrap()).unwrap().to_bytes();
        for (at, value) in changes {
            bytes[at] = value;
        }
        let image = ConnectionImage::from_bytes(&bytes);
        let adopted = world.stack.tcp_adopt(world.now, &image, &mut world.fx);
        if let Ok(conn) = adopted {
            world.conn = Some(conn);
            world.flush();
            world.peer(ACK, &[seed; 200]);
            world.flush();
            world.stack.tcp_written(conn, 20_000, false);
            world.sleep(5 * SECOND);
        }
    }
}

/// A stack of the same address that listens, at the same time.
pub fn other_with_listener(world: &World) -> World {
    let mut other = World::new(crate::StackConfig {
        seed: [9; 32],
        ..config()
    });
    other.now = world.now;
    other.listen();
    other
}

fn half_open(world: &mut World) -> (Vec<HalfOpenImage>, u32) {
    let listener = world.listen();
    world.inject((1000, PORT), ISS, 0, SYN, &TcpOptions::default(), &[]);
    let ack = world.only().header.seq.wrapping_add(1);
    (world.stack.tcp_detach_half_open(listener), ack)
}

#[test]
fn a_handshake_is_completed_by_the_stack_that_it_moved_to() {
    let mut world = World::new(config());
    let (images, ack) = half_open(&mut world);
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 0));
    let mut other = other_with_listener(&world);
    for image in &images {
        let image = HalfOpenImage::from_bytes(&image.to_bytes());
        other.stack.tcp_adopt_half_open(other.now, &image).unwrap();
        let again = other.stack.tcp_adopt_half_open(other.now, &image);
        assert_eq!(again, Err(SocketError::FlowExists));
    }
    assert_eq!(other.stack.tcp_sizes(), sizes(0, 1, 0));
    other.inject(
        (1000, PORT),
        ISS + 1,
        ack,
        ACK,
        &TcpOptions::default(),
        b"hello",
    );
    let accepted = |e: &Event| matches!(e, Event::Accepted { .. });
    assert!(other.fx.events.iter().any(accepted));
    assert!(
        other
            .fx
            .events
            .iter()
            .any(|e| matches!(e, Event::Received { upto: 5, .. }))
    );
}

#[test]
fn a_handshake_moves_with_any_window_scale() {
    // RFC 7323 2.3: more than 14 is 14, and no reason to refuse anything.
    for shift in [7, 14, 15, 254, 255] {
        let mut world = World::new(config());
        let listener = world.listen();
        let offer = TcpOptions {
            window_scale: Some(shift),
            ..TcpOptions::default()
        };
        world.inject((1000, PORT), ISS, 0, SYN, &offer, &[]);
        assert!(world.only().options.window_scale.is_some());
        let images = world.stack.tcp_detach_half_open(listener);
        let mut other = other_with_listener(&world);
        let adopted = other.stack.tcp_adopt_half_open(other.now, &images[0]);
        assert_eq!(adopted, Ok(()), "{shift}");
    }
}

#[test]
fn a_moved_handshake_is_answered_again_when_the_last_ack_is_lost() {
    let mut world = World::new(config());
    let (images, ack) = half_open(&mut world);
    let mut other = other_with_listener(&world);
    other
        .stack
        .tcp_adopt_half_open(other.now, &images[0])
        .unwrap();
    other.sleep(1_100 * MS);
    let answer = other.only();
    assert!(answer.is(SYN | ACK) && answer.header.seq.wrapping_add(1) == ack);
}

#[test]
fn a_syn_that_was_not_answered_before_it_moved_is_answered_where_it_arrives() {
    let mut world = World::new(config());
    let listener = world.listen();
    world.deliver((1000, PORT), (ISS, 0), SYN, &[], &[]);
    let images = world.stack.tcp_detach_half_open(listener);
    world.flush();
    world.none();
    let mut other = other_with_listener(&world);
    let adopted = other.stack.tcp_adopt_half_open(other.now, &images[0]);
    assert_eq!(adopted, Ok(()));
    other.flush();
    assert!(other.only().is(SYN | ACK));
}

#[test]
fn a_handshake_finds_no_stack_without_a_listener() {
    let mut world = World::new(config());
    let (images, _) = half_open(&mut world);
    let mut other = World::new(config());
    let outcome = other.stack.tcp_adopt_half_open(other.now, &images[0]);
    assert_eq!(outcome, Err(SocketError::UnknownId));
}

proptest! {
    #[test]
    fn a_half_open_image_of_any_bytes_is_refused_or_harmless(
        at in 0..HalfOpenImage::LEN,
        with in proptest::collection::vec(any::<u8>(), 1..20),
    ) {
        let mut world = World::new(config());
        let (images, ack) = half_open(&mut world);
        let mut bytes = images[0].to_bytes();
        for (byte, new) in bytes[at..].iter_mut().zip(&with) {
            *byte = *new;
        }
        let mut other = other_with_listener(&world);
        let _ = other.stack.tcp_adopt_half_open(other.now, &HalfOpenImage::from_bytes(&bytes));
        other.inject((1000, PORT), ISS + 1, ack, ACK, &TcpOptions::default(), b"hello");
        other.sleep(5_000 * MS);
    }
}

#[test]
fn an_image_older_than_the_last_segments_takes_their_acknowledgements() {
    let mut world = established();
    let conn = world.conn.unwrap();
    world.write(2000);
    world.take_sent();
    world.stack.tcp_close(
        world.now,
        conn,
        crate::CloseMode::Orderly,
        false,
        &mut world.fx,
    );
    let image = world.stack.tcp_image(conn).unwrap();
    // FIN leaves after the image was taken; then the stack is killed.
    world.flush();
    assert!(world.only().is(FIN));
    let mut other = World::new(crate::StackConfig {
        seed: [9; 32],
        ..config()
    });
    other.now = world.now;
    (other.seq, other.ack, other.stamps) = (world.seq, world.ack, world.stamps);
    let conn = other
        .stack
        .tcp_adopt(other.now, &image.presume_sent(), &mut other.fx)
        .unwrap();
    other.conn = Some(conn);
    other.flush();
    other.take_sent();
    other.acknowledge(2001);
    other.peer(FIN | ACK, &[]);
    assert!(other.is_released());
}

#[test]
fn an_image_older_than_the_last_segments_retransmits_lost_data() {
    let mut world = established();
    let conn = world.conn.unwrap();
    let image = {
        world.stack.tcp_written(conn, 2000, false);
        world.stack.tcp_image(conn).unwrap()
    };
    assert_eq!(image.presume_sent().send_offsets(), Some((0, 2000)));
    let mut other = World::new(crate::StackConfig {
        seed: [9; 32],
        ..config()
    });
    other.now = world.now;
    (other.seq, other.ack, other.stamps) = (world.seq, world.ack, world.stamps);
    other.conn = Some(
        other
            .stack
            .tcp_adopt(other.now, &image.presume_sent(), &mut other.fx)
            .unwrap(),
    );
    other.flush();
    other.take_sent();
    other.sleep(SECOND);
    assert_eq!(other.take_sent()[0].data.unwrap().0, 0);
    other.acknowledge(2000);
    assert!(other.has(Event::Acked {
        conn: other.conn.unwrap(),
        upto: 2000
    }));
}

#[test]
fn segments_sent_by_another_engine_give_no_round_trip_sample() {
    for congestion in [crate::Congestion::Cubic, crate::Congestion::Bbr] {
        let mut first = config();
        first.tcp.congestion = congestion;
        let mut world = World::new(first);
        world.listen();
        world.accept(TcpOptions {
            mss: Some(1000),
            sack_permitted: true,
            ..TcpOptions::default()
        });
        world.write(10_000);
        let mut world = moved(world);
        let info = |world: &World| {
            let (now, conn) = (world.now, world.conn.unwrap());
            world.stack.tcp_info(now, conn).unwrap()
        };
        let before = info(&world);
        // The ACK was under way.
        world.now.0 += 20_000;
        world.acknowledge(10_000);
        world.flush();
        let after = info(&world);
        assert_eq!(
            (after.rtt_us, after.min_rtt_us),
            (before.rtt_us, before.min_rtt_us)
        );
        assert_eq!(after.delivery_rate, 0);
        // A round trip here does.
        world.write(12_000);
        world.sleep(15 * MS);
        world.acknowledge(2_000);
        let later = info(&world);
        assert!(
            later.rtt_us > before.rtt_us && later.delivery_rate <= 200_000,
            "{later:?}"
        );
        assert_ne!(later.delivery_rate, 0);
    }
}

#[test]
fn bytes_that_were_read_can_be_made_unread_in_an_image() {
    let mut world = established();
    world.peer(ACK, b"read already");
    let conn = world.conn.unwrap();
    world.stack.tcp_consumed(world.now, conn, 12);
    let image = world.stack.tcp_image(conn).unwrap();
    let before = image.with_unread(5).unwrap();
    assert_eq!(before.with_unread(7), image.with_unread(12));
    assert_ne!(image.with_unread(12), None);
    assert_eq!(image.with_unread(13), None, "more than there were");
}

#[test]
fn a_renumbered_connection_begins_at_offset_zero_and_sends_the_same_numbers() {
    let mut world = established();
    world.write(2000);
    world.take_sent();
    world.acknowledge(2000);
    world.peer(ACK, b"read already");
    let conn = world.conn.unwrap();
    world.stack.tcp_consumed(world.now, conn, 12);
    world.flush();
    world.take_sent();
    let image = world.stack.tcp_image(conn).unwrap();
    assert_eq!(image.send_offsets(), Some((2000, 2000)));
    let renumbered = image.renumbered(0).unwrap();
    assert_eq!(renumbered.send_offsets(), Some((0, 0)));
    assert_eq!(renumbered.renumbered(0).as_ref(), Some(&renumbered));
    let mut other = World::new(crate::StackConfig {
        seed: [9; 32],
        ..config()
    });
    other.now = world.now;
    (other.seq, other.ack, other.stamps) = (world.seq, world.ack, world.stamps);
    let adopted = other.stack.tcp_adopt(other.now, &renumbered, &mut other.fx);
    other.conn = Some(adopted.unwrap());
    other.flush();
    other.take_sent();
    other.write(100);
    let sent = other.take_sent();
    let first = sent[0].header.seq;
    world.write(2100);
    assert_eq!(first, world.take_sent()[0].header.seq);
    // Bytes that are not acknowledged begin the new stream.
    let image = world.stack.tcp_image(conn).unwrap();
    assert_eq!(image.renumbered(99), None);
    let offsets = |image: Option<ConnectionImage>| image.and_then(|image| image.send_offsets());
    assert_eq!(offsets(image.renumbered(100)), Some((0, 100)));
    assert_eq!(offsets(image.renumbered(150)), Some((50, 150)));
}

#[test]
fn a_renumbered_connection_keeps_its_bytes_in_flight_and_its_end() {
    let mut world = established();
    world.write(1500);
    world.acknowledge(500);
    let (now, conn) = (world.now, world.conn.unwrap());
    world.stack.tcp_shutdown(now, conn, &mut world.fx);
    world.flush();
    world.take_sent();
    let image = world.stack.tcp_detach(conn).unwrap();
    let image = image.renumbered(1200).unwrap();
    assert_eq!(image.send_offsets(), Some((200, 1200)));
    let mut other = World::new(crate::StackConfig {
        seed: [9; 32],
        ..config()
    });
    other.now = world.now;
    (other.seq, other.ack, other.stamps) = (world.seq, world.ack, world.stamps);
    let adopted = other.stack.tcp_adopt(other.now, &image, &mut other.fx);
    let conn = adopted.unwrap();
    other.conn = Some(conn);
    other.flush();
    other.take_sent();
    other.acknowledge(600);
    assert!(other.has(Event::Acked { conn, upto: 800 }));
    // The rest, and the FIN.
    other.acknowledge(401);
    assert!(other.has(Event::Acked { conn, upto: 1200 }));
    assert!(other.take_sent().is_empty(), "nothing is sent again");
}
