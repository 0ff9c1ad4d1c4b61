//! Segments and calls in random order: nothing panics, and all numbers stay in their ranges.

use super::harness::*;
use crate::{CloseMode, ConnId, Counter, Event, SocketOption};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use slipstack_wire::tcp::TcpFlags;
use slipstack_wire::tcp_options::{TcpOptions, Timestamps};

#[derive(Clone, Debug)]
enum Step {
    Segment {
        flags: u8,
        seq: i32,
        ack: i32,
        window: u16,
        len: u16,
        sacks: Vec<(i32, i32)>,
        stamp: Option<i32>,
    },
    Write(u16),
    Read(u16),
    Sleep(u32),
    Refuse(bool),
    Cork(bool),
    Shutdown,
    Close(bool),
    Move,
}

/// Distances that matter: near the edges, and anywhere.
fn distance() -> impl Strategy<Value = i32> {
    prop_oneof![
        4 => -3i32..3,
        4 => -3000i32..20_000,
        1 => any::<i32>(),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let segment = (
        prop_oneof![6 => Just(0x10u8), 2 => Just(0x18), 1 => Just(0x11), 1 => any::<u8>()],
        distance(),
        distance(),
        prop_oneof![3 => Just(65_535u16), 1 => 0u16..3, 1 => any::<u16>()],
        prop_oneof![2 => Just(0u16), 2 => 1u16..3000, 1 => 0u16..40_000],
        prop::collection::vec((distance(), distance()), 0..4),
        prop::option::of(-2000i32..2000),
    )
        .prop_map(
            |(flags, seq, ack, window, len, sacks, stamp)| Step::Segment {
                flags,
                seq,
                ack,
                window,
                len,
                sacks,
                stamp,
            },
        );
    let step = prop_oneof![
        12 => segment,
        4 => any::<u16>().prop_map(Step::Write),
        3 => any::<u16>().prop_map(Step::Read),
        4 => prop_oneof![0u32..50, 0u32..5000].prop_map(Step::Sleep),
        1 => any::<bool>().prop_map(Step::Refuse),
        1 => any::<bool>().prop_map(Step::Cork),
        1 => Just(Step::Shutdown),
        1 => any::<bool>().prop_map(Step::Close),
        1 => Just(Step::Move),
    ];
    prop::collection::vec(step, 1..120)
}

struct Play {
    world: World,
    conn: ConnId,
    written: u64,
    read: u64,
    highest: u32,
}

impl Play {
    fn step(&mut self, step: Step) {
        let (now, conn) = (self.world.now, self.conn);
        let world = &mut self.world;
        match step {
            Step::Segment {
                flags,
                seq,
                ack,
                window,
                len,
                sacks,
                stamp,
            } => {
                self.segment(flags, (seq, ack), window, len, &sacks, stamp);
            }
            Step::Write(bytes) => {
                self.written += u64::from(bytes);
                world.stack.tcp_written(conn, self.written, bytes % 5 == 0);
            }
            Step::Read(bytes) => {
                self.read += u64::from(bytes);
                world.stack.tcp_consumed(now, conn, self.read);
            }
            Step::Sleep(ms) => world.sleep(u64::from(ms) * MS),
            Step::Refuse(refuses) => world.fx.refuses = refuses,
            Step::Cork(on) => drop(world.stack.tcp_set_option(
                now,
                conn,
                SocketOption::Cork(on),
                &mut world.fx,
            )),
            Step::Shutdown => world.stack.tcp_shutdown(now, conn, &mut world.fx),
            Step::Close(unread) => {
                world
                    .stack
                    .tcp_close(now, conn, CloseMode::Orderly, unread, &mut world.fx)
            }
            Step::Move => {
                if let Some(image) = world.stack.tcp_detach(conn) {
                    self.conn = world
                        .stack
                        .tcp_adopt(now, &image, &mut world.fx)
                        .expect("our own image");
                }
            }
        }
        self.look();
    }

    fn segment(
        &mut self,
        flags: u8,
        (seq, ack): (i32, i32),
        window: u16,
        len: u16,
        sacks: &[(i32, i32)],
        stamp: Option<i32>,
    ) {
        let world = &mut self.world;
        world.window = window;
        let mut options = TcpOptions::default();
        for &(left, right) in sacks {
            let at = |d: i32| world.ack.wrapping_add_signed(d);
            options.sack.push(at(left), at(right));
        }
        if let Some(stamps) = world.stamps {
            let value = stamps.value.wrapping_add_signed(stamp.unwrap_or(0));
            options.timestamps = Some(Timestamps {
                value,
                echo: stamps.echo,
            });
        }
        if options.timestamps.is_some() {
            options.sack.truncate(3);
        }
        let payload = vec![0; usize::from(len)];
        let seq = world.seq.wrapping_add_signed(seq);
        let ack = self.highest.wrapping_add_signed(ack);
        world.inject(
            (PEER_PORT, PORT),
            seq,
            ack,
            TcpFlags(flags),
            &options,
            &payload,
        );
    }

    /// Follows the stack's segments: its ACKs move the peer on, its data the highest number seen.
    fn look(&mut self) {
        self.world.flush();
        for sent in self.world.take_sent() {
            if sent.is(SYN) || sent.is(RST) {
                continue;
            }
            self.world.seq = sent.header.ack;
            let end = sent.header.seq.wrapping_add(sent.len());
            if (end.wrapping_sub(self.highest) as i32) > 0 {
                self.highest = end;
            }
            if let Some((offset, len)) = sent.data {
                assert!(
                    offset + u64::from(len) <= self.written,
                    "sent what was never written"
                );
            }
        }
    }
}

fn play(world: World, steps: Vec<Step>) {
    let (conn, highest) = (world.conn.unwrap(), world.ack);
    let mut play = Play {
        world,
        conn,
        written: 0,
        read: 0,
        highest,
    };
    for step in steps {
        play.step(step);
    }
    // In any case it ends.
    let (now, conn) = (play.world.now, play.conn);
    play.world
        .stack
        .tcp_close(now, conn, CloseMode::Orderly, false, &mut play.world.fx);
    // A SYN among the segments may have opened another one.
    for other in accepted(&play.world) {
        play.world
            .stack
            .tcp_close(now, other, CloseMode::Abort, false, &mut play.world.fx);
    }
    play.world.sleep(4000 * SECOND);
    assert_eq!(play.world.stack.tcp_sizes(), sizes(0, 0, 0));
    assert!(play.world.stack.counters().value(Counter::RxTcp) > 0);
}

fn accepted(world: &World) -> Vec<ConnId> {
    let events = world.fx.events.iter();
    events
        .filter_map(|event| match event {
            Event::Accepted { conn, .. } => Some(*conn),
            _ => None,
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    })]

    #[test]
    fn random_segments_do_no_harm_with_sack(steps in steps()) {
        play(established(), steps);
    }

    #[test]
    fn random_segments_do_no_harm_with_timestamps(steps in steps()) {
        play(established_with_stamps(), steps);
    }
}
