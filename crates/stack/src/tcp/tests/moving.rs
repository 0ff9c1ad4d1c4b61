//! Detach and adopt: a connection changes its stack, and images that nobody wrote.

use super::harness::*;
use crate::tcp::ConnectionImage;
use crate::{Event, SocketError};
use proptest::prelude::*;

/// Carries the connection over to a new stack of the same address.
fn moved(mut world: World) -> World {
    let image = world.stack.tcp_detach(world.conn.unwrap()).unwrap();
    assert_eq!(world.stack.tcp_sizes(), (0, 0, 0));
    world.take_sent();
    let mut other = World::new(crate::StackConfig {
        seed: [9; 32],
        ..config()
    });
    other.now = world.now;
    (other.seq, other.ack, other.stamps) = (world.seq, world.ack, world.stamps);
    let image = ConnectionImage::from_bytes(&image.to_bytes());
    other.conn = Some(other.stack.tcp_adopt(other.now, &image).unwrap());
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
fn what_was_in_flight_is_sent_again_if_lost() {
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
    assert_eq!(world.stack.tcp_sizes(), (0, 0, 1));
}

#[test]
fn an_image_is_adopted_once() {
    let mut world = established();
    let image = world.stack.tcp_detach(world.conn.unwrap()).unwrap();
    world.stack.tcp_adopt(world.now, &image).unwrap();
    assert_eq!(
        world.stack.tcp_adopt(world.now, &image),
        Err(SocketError::FlowExists)
    );
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
            if let Ok(conn) = world.stack.tcp_adopt(world.now, &image) {
                world.conn = Some(conn);
                world.sleep(SECOND);
            }
        }
    }
}

proptest! {
    #[test]
    fn a_damaged_image_is_refused_or_harmless(changes in prop::collection::vec((0usize..ConnectionImage::LEN, any::<u8>()), 1..12), seed: u8) {
        let mut world = established();
        world.write(5000);
        world.peer_at(100, ACK, b"second");
        let mut bytes = world.stack.tcp_detach(world.conn.unwrap()).unwrap().to_bytes();
        for (at, value) in changes {
            bytes[at] = value;
        }
        let adopted = world.stack.tcp_adopt(world.now, &ConnectionImage::from_bytes(&bytes));
        if let Ok(conn) = adopted {
            world.conn = Some(conn);
            world.flush();
            world.peer(ACK, &[seed; 200]);
            world.flush();
            world.stack.tcp_written(world.now, conn, 20_000, false);
            world.sleep(5 * SECOND);
        }
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
        .tcp_adopt(other.now, &image.presume_sent())
        .unwrap();
    other.conn = Some(conn);
    other.flush();
    other.take_sent();
    other.acknowledge(2001);
    other.peer(FIN | ACK, &[]);
    assert!(other.is_released());
}

#[test]
fn an_image_older_than_the_last_segments_sends_what_was_lost_again() {
    let mut world = established();
    let conn = world.conn.unwrap();
    let image = {
        world.stack.tcp_written(world.now, conn, 2000, false);
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
            .tcp_adopt(other.now, &image.presume_sent())
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
