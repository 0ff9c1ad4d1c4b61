//! A connection whose engine was killed goes on in another, from the state of its rings.

use super::harness::*;
use super::moving;
use crate::options::SocketOption;
use crate::tcp::{ConnectionImage, HalfOpenRecord, Progress};
use crate::{CloseMode, ConnectionOrigin};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use slipstack_wire::tcp_options::{TcpOptions, Timestamps};

/// The connection in a new stack, closed there, after its engine was killed.
fn rebuilt(world: &World, progress: Progress) -> World {
    let conn = world.conn.unwrap();
    let origin = world.stack.tcp_origin(conn).unwrap();
    let (local, remote) = world.stack.tcp_endpoints(conn).unwrap();
    let image = ConnectionImage::rebuild(local, remote, &origin, &progress);
    let mut other = World::new(crate::StackConfig {
        seed: [9; 32],
        ..config()
    });
    other.now = world.now;
    (other.seq, other.ack, other.stamps) = (world.seq, world.ack, world.stamps);
    let conn = other
        .stack
        .tcp_adopt(other.now, &image, &mut other.fx)
        .unwrap();
    other.conn = Some(conn);
    other.stack.tcp_audit().unwrap();
    other
        .stack
        .tcp_close(other.now, conn, CloseMode::Orderly, false, &mut other.fx);
    other.flush();
    other
}

fn progress(acked: u64, written: u64, received: u64) -> Progress {
    Progress {
        acked,
        written,
        received,
        read: received,
        has_fin: false,
    }
}

/// Returns how much of the stream the peer has, and whether that is all, if it accepts the sent
/// data in order.
fn arrive(world: &mut World, mut have: u64) -> (u64, bool) {
    let mut is_over = false;
    let sent: Vec<Sent> = world.take_sent();
    for segment in sent {
        match segment.data {
            Some((offset, len)) if offset <= have => have = have.max(offset + u64::from(len)),
            _ => {}
        }
        let at = segment.header.seq.wrapping_sub(world.ack);
        is_over |= segment.header.flags.is_fin() && segment.data.is_none() && at == 0;
    }
    (have, is_over)
}

#[test]
fn a_silent_connection_ends_with_a_fin_at_once() {
    for mut world in [established(), established_with_stamps()] {
        world.peer(ACK, b"question");
        world.write(6);
        world.acknowledge(6);
        let mut world = rebuilt(&world, progress(6, 6, 8));
        let fin = world.take_sent().pop().unwrap();
        assert!(fin.header.flags.is_fin());
        assert_eq!((fin.header.seq, fin.header.ack), (world.ack, world.seq));
        world.acknowledge(1);
        world.peer(FIN | ACK, &[]);
        assert!(world.is_released());
        assert_eq!(world.failed(), None);
    }
}

#[test]
fn written_data_arrives_even_if_few_acknowledgements_were_reported() {
    let mut world = established_with_stamps();
    world.write(30_000);
    world.acknowledge(3_000);
    // 3,000 bytes are acknowledged; the killed program knew of 1,000.
    let mut world = rebuilt(&world, progress(1_000, 30_000, 0));
    let mut have = 3_000;
    for _ in 0..200 {
        let (now_have, is_over) = arrive(&mut world, have);
        world.acknowledge((now_have - have) as u32);
        have = now_have;
        if is_over {
            break;
        }
        world.sleep(50 * MS);
    }
    assert_eq!(have, 30_000);
    world.sleep(SECOND);
    world.acknowledge(1);
    world.peer(FIN | ACK, &[]);
    assert!(world.is_released());
}

#[test]
fn its_packets_have_df() {
    let mut world = established();
    world.write(3_000);
    let sent = rebuilt(&world, progress(0, 3_000, 0)).take_sent();
    assert!(!sent.is_empty());
    assert!(sent.iter().all(|it| it.dont_fragment));
}

#[test]
fn its_packets_go_the_way_that_the_program_had_chosen() {
    let mut world = established();
    let conn = world.conn.unwrap();
    let plain = world.stack.tcp_origin(conn).unwrap();
    assert_eq!(plain.way(), [0; 2]);
    // The type of service sets the priority back, so that it comes first.
    for option in [
        SocketOption::Tos(0x10),
        SocketOption::Priority(3),
        SocketOption::Ttl(255),
        SocketOption::Mark(0x8000_0001),
        SocketOption::Table(9),
        SocketOption::Link(1),
        SocketOption::ResetsAtEnd(true),
    ] {
        world
            .stack
            .tcp_set_option(world.now, conn, option, &mut world.fx)
            .unwrap();
    }
    let chosen = world.stack.tcp_origin(conn).unwrap();
    let choice = crate::Choice {
        mark: 0x8000_0001,
        table: 9,
        link: 1,
        input: 0,
        class: 3,
    };
    assert_eq!((chosen.choice, chosen.tos, chosen.ttl), (choice, 0x10, 255));
    assert!(chosen.resets_at_end);
    let again = ConnectionOrigin::of_words(chosen.words(), chosen.way());
    assert_eq!((again, again.words()), (chosen, plain.words()));
    world.write(3_000);
    let mut world = rebuilt(&world, progress(0, 3_000, 0));
    let heir = world.stack.tcp_origin(world.conn.unwrap()).unwrap();
    assert_eq!(heir.way(), chosen.way());
    assert!(world.stack.tcp_resets_at_end(world.conn.unwrap()));
    assert!(!world.take_sent().is_empty());
}

#[test]
fn a_peer_that_has_closed_receives_our_fin() {
    let mut world = established();
    world.peer(FIN | ACK, b"bye");
    let ended = Progress {
        has_fin: true,
        ..progress(0, 0, 3)
    };
    let mut world = rebuilt(&world, ended);
    let fin = world.take_sent().pop().unwrap();
    assert!(fin.header.flags.is_fin());
    assert_eq!(fin.header.ack, world.seq);
    world.acknowledge(1);
    assert!(world.is_released());
}

#[test]
fn a_peer_that_goes_on_sending_is_reset() {
    let mut world = established();
    world.peer(ACK, b"question");
    let mut world = rebuilt(&world, progress(0, 0, 8));
    world.take_sent();
    world.peer(ACK, b"more");
    assert!(world.take_sent().iter().any(|sent| sent.is(RST)));
}

/// The records of a stack's half-open connections, as they are after these changes.
fn note(world: &mut World, records: &mut BTreeMap<u32, HalfOpenRecord>) {
    world
        .stack
        .tcp_half_open_changes(|place, record| match record {
            Some(record) => drop(records.insert(place, record)),
            None => drop(records.remove(&place)),
        });
}

#[test]
fn a_half_open_connection_goes_on_from_its_record() {
    for offer in [
        TcpOptions::default(),
        TcpOptions {
            mss: Some(1000),
            window_scale: Some(9),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 7, echo: 0 }),
            ..TcpOptions::default()
        },
    ] {
        let (mut world, mut records) = (World::new(config()), BTreeMap::new());
        world.stack.tcp_note_half_open();
        world.listen();
        world.inject((1000, PORT), ISS, 0, SYN, &offer, &[]);
        note(&mut world, &mut records);
        let first = world.only();
        let record = records.values().next().unwrap();
        let (image, link) = record.rebuild(world.now).unwrap();
        assert_eq!((records.len(), link), (1, 0));
        let mut other = moving::other_with_listener(&world);
        other.stack.tcp_adopt_half_open(other.now, &image).unwrap();
        other.flush();
        // The peer's ACK may have been lost with the engine.
        let again = other.only();
        assert_eq!((again.header, again.options), (first.header, first.options));
        let ack = first.header.seq.wrapping_add(1);
        let stamps = first.options.timestamps.map(|ours| Timestamps {
            value: 8,
            echo: ours.value,
        });
        let options = TcpOptions {
            timestamps: stamps,
            ..TcpOptions::default()
        };
        other.inject((1000, PORT), ISS + 1, ack, ACK, &options, b"hello");
        assert_eq!(other.stack.tcp_sizes(), sizes(1, 0, 0));
        other.stack.tcp_audit().unwrap();
    }
}

#[test]
fn the_peer_of_a_half_open_connection_without_a_listener_is_reset() {
    let (mut world, mut records) = (World::new(config()), BTreeMap::new());
    world.stack.tcp_note_half_open();
    world.listen();
    world.inject((1000, PORT), ISS, 0, SYN, &TcpOptions::default(), &[]);
    note(&mut world, &mut records);
    let answer = world.only();
    let record = records.values().next().unwrap();
    let (image, link) = record.rebuild(world.now).unwrap();
    let refuse = |world: &mut World| {
        let (now, fx) = (world.now, &mut world.fx);
        world.stack.tcp_refuse_half_open(now, &image, link, fx);
        world.take_sent()
    };
    assert!(refuse(&mut world).is_empty(), "it is here");
    let mut other = World::new(config());
    let sent = refuse(&mut other);
    assert_eq!(sent.len(), 1);
    assert!(sent[0].is(RST | ACK));
    let numbers = (sent[0].header.seq, sent[0].header.ack);
    assert_eq!(numbers, (answer.header.seq.wrapping_add(1), ISS + 1));
}

#[test]
fn a_half_open_connection_has_a_record_until_it_opens_or_ends() {
    let (mut world, mut records) = (World::new(config()), BTreeMap::new());
    world.listen();
    world.inject((1, PORT), ISS, 0, SYN, &TcpOptions::default(), &[]);
    note(&mut world, &mut records);
    assert!(records.is_empty(), "nobody has asked");
    world.take_sent();
    world.stack.tcp_note_half_open();
    let mut acks = Vec::new();
    for port in [2, 3, 4] {
        world.inject((port, PORT), ISS, 0, SYN, &TcpOptions::default(), &[]);
        acks.push(world.only().header.seq.wrapping_add(1));
    }
    note(&mut world, &mut records);
    assert_eq!(records.len(), 3);
    world.inject(
        (2, PORT),
        ISS + 1,
        acks[0],
        ACK,
        &TcpOptions::default(),
        &[],
    );
    world.inject((3, PORT), ISS + 1, 0, RST, &TcpOptions::default(), &[]);
    note(&mut world, &mut records);
    assert_eq!(records.len(), 1);
    world.sleep(300 * SECOND);
    note(&mut world, &mut records);
    assert!(records.is_empty());
}
