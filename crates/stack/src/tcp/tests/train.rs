//! Segments of one burst that are processed as one: only the number of steps may differ from
//! processing them one by one.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::harness::*;
use crate::{Counter, Event};
use slipstack_wire::tcp::TcpFlags;

const PSH: TcpFlags = TcpFlags::PSH;
const FULL: usize = 1000;

type Burst = fn(&mut World);

fn data(world: &mut World, len: usize) {
    pushed(world, ACK, len);
}

fn pushed(world: &mut World, flags: TcpFlags, len: usize) {
    let bytes: Vec<u8> = (0..len).map(|at| (world.seq as usize + at) as u8).collect();
    world.peer(flags, &bytes);
}

fn many(world: &mut World, count: usize) {
    for _ in 0..count {
        data(world, FULL);
    }
}

fn skip(world: &mut World, len: u32) {
    world.seq = world.seq.wrapping_add(len);
}

/// Bursts of segments, and how many of each are joined.
const BURSTS: &[(&str, Burst, u64)] = &[
    ("one full segment", |w| many(w, 1), 0),
    ("two: the second promises more", |w| many(w, 2), 0),
    ("eight full ones", |w| many(w, 8), 6),
    (
        "a short one ends it",
        |w| {
            many(w, 4);
            data(w, 100);
            many(w, 4)
        },
        3 + 3,
    ),
    (
        "a push ends it",
        |w| {
            many(w, 3);
            pushed(w, ACK | PSH, FULL);
            many(w, 4)
        },
        2 + 3,
    ),
    (
        "pushed requests",
        |w| (0..4).for_each(|_| pushed(w, ACK | PSH, 100)),
        0,
    ),
    (
        "a push on each",
        |w| (0..4).for_each(|_| pushed(w, ACK | PSH, FULL)),
        0,
    ),
    (
        "an end of the stream",
        |w| {
            many(w, 4);
            pushed(w, ACK | FIN, FULL)
        },
        2,
    ),
    (
        "a gap",
        |w| {
            many(w, 4);
            skip(w, 1000);
            many(w, 4)
        },
        2,
    ),
    (
        "a duplicate",
        |w| {
            many(w, 4);
            w.seq -= 1000;
            many(w, 3)
        },
        2,
    ),
    (
        "an overlap",
        |w| {
            many(w, 4);
            w.seq -= 500;
            many(w, 4)
        },
        2,
    ),
    (
        "another window",
        |w| {
            many(w, 4);
            w.window -= 10;
            many(w, 4)
        },
        2 + 3,
    ),
    (
        "a mark of congestion",
        |w| {
            many(w, 4);
            w.tos = 3;
            many(w, 1);
            w.tos = 2;
            many(w, 4)
        },
        2 + 2,
    ),
    (
        "an empty segment",
        |w| {
            many(w, 4);
            data(w, 0);
            many(w, 4)
        },
        2 + 2,
    ),
    (
        "an urgent byte",
        |w| {
            many(w, 4);
            pushed(w, ACK | TcpFlags::URG, FULL);
            many(w, 4)
        },
        2 + 2,
    ),
    (
        "a reset",
        |w| {
            many(w, 4);
            pushed(w, RST, 0)
        },
        2,
    ),
    (
        "larger ones",
        |w| {
            many(w, 4);
            (0..4).for_each(|_| data(w, 1200))
        },
        2 + 3,
    ),
    (
        "no room",
        |w| {
            many(w, 4);
            w.fx.refuses = true;
            many(w, 2);
            w.fx.refuses = false
        },
        2,
    ),
    ("more than the window", |w| many(w, 80), 63),
];

/// Returns the connection's final state, and how many segments were joined.
fn outcome(mut world: World, burst: Burst, is_burst: bool) -> (String, u64) {
    world.tos = 2;
    world.is_burst = is_burst;
    burst(&mut world);
    if is_burst {
        world.end_burst();
    }
    world.is_burst = false;
    world.flush();
    let counters = world.stack.counters().clone();
    let merged = counters.value(Counter::RxTcpMerged);
    let counts: Vec<u64> = Counter::ALL
        .iter()
        .filter(|counter| **counter != Counter::RxTcpMerged)
        .map(|counter| counters.value(*counter))
        .collect();
    let read = world.fx.events.iter().filter_map(|event| match event {
        Event::Received { upto, .. } => Some(*upto),
        _ => None,
    });
    let read = read.max();
    let others: Vec<Event> = world
        .fx
        .events
        .iter()
        .copied()
        .filter(|event| !matches!(event, Event::Received { .. }))
        .collect();
    let conn = world.conn.unwrap();
    let info = world.stack.tcp_info(world.now, conn);
    let sent = world.take_sent();
    // The connection's next steps show the rest of its state.
    world.sleep(SECOND);
    let later = world.take_sent();
    let text = format!(
        "{read:?} {others:?} {:?} {info:?} {sent:?} {later:?} {counts:?}",
        world.fx.stored
    );
    (text, merged)
}

fn compare(make: impl Fn() -> World) {
    for (what, burst, joined) in BURSTS {
        let (alone, none) = outcome(make(), *burst, false);
        let (together, merged) = outcome(make(), *burst, true);
        assert_eq!(none, 0, "{what}");
        assert_eq!(merged, *joined, "{what}");
        assert_eq!(alone, together, "{what}");
    }
}

#[test]
fn a_train_has_the_effect_of_its_segments() {
    compare(established);
}

#[test]
fn a_train_with_timestamps_has_the_effect_of_its_segments() {
    compare(established_with_stamps);
}

#[test]
fn a_later_timestamp_begins_another_train() {
    let mut world = established_with_stamps();
    world.is_burst = true;
    many(&mut world, 4);
    if let Some(stamps) = &mut world.stamps {
        stamps.value += 1;
    }
    many(&mut world, 4);
    world.end_burst();
    assert_eq!(world.stack.counters().value(Counter::RxTcpMerged), 2 + 3);
    world.flush();
    let stamps = world.only().options.timestamps;
    assert_eq!(stamps.map(|stamps| stamps.echo), Some(50_010));
}
