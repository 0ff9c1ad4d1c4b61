//! RFC 9293 3.5: passive, active and simultaneous open.

use super::harness::*;
use crate::options::SocketOptions;
use crate::{Event, ListenOptions, Reason, StackConfig};
use alloc::vec::Vec;
use core::net::SocketAddr;
use slipstack_wire::tcp_options::{TcpOptions, Timestamps};

fn offer() -> TcpOptions {
    TcpOptions {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 77, echo: 0 }),
        ..TcpOptions::default()
    }
}

fn connecting() -> World {
    let mut world = World::new(config());
    let local = SocketAddr::from((OURS, PORT));
    let conn = world.stack.tcp_connect(
        world.now,
        Some(local),
        peer(),
        &SocketOptions::default(),
        &mut world.fx,
    );
    world.conn = Some(conn.unwrap());
    world
}

#[test]
fn a_syn_ack_carries_exactly_the_offered_options() {
    // RFC 7323 1.3.
    let mut world = World::new(config());
    world.listen();
    world.inject((PEER_PORT, PORT), ISS, 0, SYN, &offer(), &[]);
    let answer = world.only();
    assert!(answer.is(SYN | ACK));
    assert_eq!(answer.header.ack, ISS + 1);
    assert_eq!(answer.options.mss, Some(1460));
    assert!(answer.options.sack_permitted && answer.options.window_scale.is_some());
    assert_eq!(answer.options.timestamps.unwrap().echo, 77);

    world.inject(
        (PEER_PORT + 1, PORT),
        ISS,
        0,
        SYN,
        &TcpOptions::default(),
        &[],
    );
    let plain = world.only().options;
    assert!(!plain.sack_permitted && plain.window_scale.is_none() && plain.timestamps.is_none());
}

#[test]
fn a_turn_answers_a_syn_once_and_a_withdrawn_one_not_at_all() {
    let mut world = World::new(config());
    world.listen();
    let ports = |more: u16| (PEER_PORT + more, PORT);
    world.deliver(ports(0), (ISS, 0), SYN, &[], &[]);
    world.deliver(ports(1), (ISS, 0), SYN, &[], &[]);
    world.deliver(ports(1), (ISS, 0), SYN, &[], &[]);
    world.deliver(ports(2), (ISS, 0), SYN, &[], &[]);
    world.deliver(ports(2), (ISS + 1, 0), RST, &[], &[]);
    world.flush();
    let sent = world.take_sent();
    let mut to: Vec<u16> = sent.iter().map(|s| s.header.dst_port).collect();
    to.sort_unstable();
    assert_eq!(to, [PEER_PORT, PEER_PORT + 1]);
    assert!(sent.iter().all(|s| s.is(SYN | ACK)));
    world.flush();
    world.none();
}

#[test]
fn a_challenge_before_the_handshake_is_done_scales_its_window_only_where_both_sides_do() {
    for (window_scale, is_scaled) in [(None, false), (Some(7), true)] {
        let mut world = World::new(config());
        world.listen();
        let offer = TcpOptions {
            window_scale,
            ..TcpOptions::default()
        };
        world.inject((PEER_PORT, PORT), ISS, 0, SYN, &offer, &[]);
        let first = world.only().header.window;
        world.deliver((PEER_PORT, PORT), (ISS + 100, 0), RST, &[], &[]);
        let challenge = world.only();
        assert!(challenge.is(ACK) && !challenge.is(SYN));
        assert_eq!(challenge.header.window < first, is_scaled);
    }
}

#[test]
fn the_last_ack_may_carry_data() {
    let mut world = World::new(config());
    world.listen();
    world.inject((PEER_PORT, PORT), ISS, 0, SYN, &TcpOptions::default(), &[]);
    world.ack = world.only().header.seq.wrapping_add(1);
    world.seq += 1;
    world.peer(ACK, b"hello");
    let conn = crate::ConnId {
        index: 0,
        generation: 2,
    };
    let names: Vec<_> = world
        .fx
        .events
        .iter()
        .filter(|e| !matches!(e, Event::FlowOpened { .. }))
        .collect();
    assert!(matches!(names[0], Event::Accepted { .. }));
    assert_eq!(*names[1], Event::Received { conn, upto: 5 });
    assert_eq!(world.fx.stored[&0], b"hello");
}

/// A half-open connection whose peer has acknowledged, at a listener that waits for data.
fn deferred(defer_accept: u8) -> World {
    let mut world = World::new(config());
    world.listen_with(ListenOptions {
        socket: SocketOptions {
            defer_accept,
            ..SocketOptions::default()
        },
        ..ListenOptions::default()
    });
    world.inject((PEER_PORT, PORT), ISS, 0, SYN, &TcpOptions::default(), &[]);
    world.ack = world.only().header.seq.wrapping_add(1);
    world.seq += 1;
    world.peer(ACK, &[]);
    world
}

fn is_accepted(world: &World) -> bool {
    let mut events = world.fx.events.iter();
    events.any(|event| matches!(event, Event::Accepted { .. }))
}

#[test]
fn a_listener_that_defers_takes_a_connection_with_its_data_or_its_end() {
    for (flags, text) in [(ACK, &b"hello"[..]), (ACK | FIN, &b""[..])] {
        let mut world = deferred(2);
        world.none();
        assert!(!is_accepted(&world));
        world.peer(flags, text);
        assert!(is_accepted(&world));
    }
}

#[test]
fn a_silent_client_gets_another_syn_ack_when_the_deferral_ends() {
    let mut world = deferred(2);
    // The first timeout passes in silence.
    world.sleep(1_500 * MS);
    world.none();
    world.peer(ACK, &[]);
    assert!(!is_accepted(&world));
    world.sleep(2_000 * MS);
    assert!(world.only().is(SYN | ACK));
    world.peer(ACK, &[]);
    assert!(is_accepted(&world));
}

#[test]
fn an_active_open_takes_the_peers_options() {
    let mut world = connecting();
    let syn = world.only();
    assert!(syn.is(SYN) && !syn.is(ACK));
    assert_eq!(syn.options.mss, Some(1460));
    world.ack = syn.header.seq.wrapping_add(1);
    world.now.0 += 20 * MS;
    let mut options = offer();
    options.timestamps = Some(Timestamps {
        value: 5,
        echo: syn.options.timestamps.unwrap().value,
    });
    world.inject((PEER_PORT, PORT), ISS, world.ack, SYN | ACK, &options, &[]);
    assert!(world.has(Event::Connected {
        conn: world.conn.unwrap()
    }));
    world.flush();
    let ack = world.only();
    assert_eq!((ack.header.seq, ack.header.ack), (world.ack, ISS + 1));
    let info = world
        .stack
        .tcp_info(world.now, world.conn.unwrap())
        .unwrap();
    assert_eq!(
        (info.snd_mss, info.rtt_us, info.snd_wscale),
        (1448, 20_000, 7)
    );
}

#[test]
fn the_last_ack_of_an_active_open_carries_data_that_waits() {
    // RFC 9293 3.10.2: data written in SYN-SENT is queued.
    let mut world = connecting();
    let syn = world.only();
    world.ack = syn.header.seq.wrapping_add(1);
    world.write(10);
    world.none();
    world.inject(
        (PEER_PORT, PORT),
        ISS,
        world.ack,
        SYN | ACK,
        &TcpOptions::default(),
        &[],
    );
    world.flush();
    assert_eq!(world.only().data, Some((0, 10)));
}

#[test]
fn a_refused_open_fails() {
    let mut world = connecting();
    let syn = world.only();
    // A RST that does not acknowledge our SYN is ignored.
    world.inject((PEER_PORT, PORT), 0, 0, RST, &TcpOptions::default(), &[]);
    world.inject(
        (PEER_PORT, PORT),
        0,
        syn.header.seq,
        RST | ACK,
        &TcpOptions::default(),
        &[],
    );
    assert_eq!(world.failed(), None);
    world.inject(
        (PEER_PORT, PORT),
        0,
        syn.header.seq.wrapping_add(1),
        RST | ACK,
        &TcpOptions::default(),
        &[],
    );
    assert_eq!(world.failed(), Some(Reason::Refused));
    assert!(world.is_released());
}

#[test]
fn a_silent_peer_gets_six_more_syns() {
    let mut world = connecting();
    world.take_sent();
    world.sleep(126 * SECOND);
    assert_eq!(world.take_sent().len(), 6);
    world.sleep(10 * SECOND);
    assert_eq!(world.failed(), Some(Reason::TimedOut));
}

#[test]
fn a_wrong_ack_in_syn_sent_is_reset() {
    // RFC 9293 3.5.1 and 3.10.7.3.
    let mut world = connecting();
    let syn = world.only();
    let wrong = syn.header.seq.wrapping_add(100);
    world.inject(
        (PEER_PORT, PORT),
        ISS,
        wrong,
        SYN | ACK,
        &TcpOptions::default(),
        &[],
    );
    let reset = world.only();
    assert!(reset.is(RST));
    assert_eq!(reset.header.seq, wrong);
    assert_eq!(world.failed(), None);
}

#[test]
fn both_sides_may_open_at_once() {
    let mut world = connecting();
    let syn = world.only();
    world.inject((PEER_PORT, PORT), ISS, 0, SYN, &offer(), &[]);
    let answer = world.only();
    assert!(answer.is(SYN | ACK));
    assert_eq!(
        (answer.header.seq, answer.header.ack),
        (syn.header.seq, ISS + 1)
    );
    world.seq = ISS + 1;
    world.ack = syn.header.seq.wrapping_add(1);
    world.stamps = Some(Timestamps { value: 78, echo: 0 });
    world.peer(ACK, &[]);
    assert!(world.has(Event::Connected {
        conn: world.conn.unwrap()
    }));
    world.write(3);
    assert_eq!(world.only().data, Some((0, 3)));
}

#[test]
fn a_lost_syn_ack_comes_again() {
    let mut world = World::new(config());
    world.listen();
    world.inject((PEER_PORT, PORT), ISS, 0, SYN, &offer(), &[]);
    let first = world.only();
    world.sleep(1100 * MS);
    let second = world.only();
    assert_eq!(first.header.seq, second.header.seq);
    world.sleep(70 * SECOND);
    assert_eq!(world.take_sent().len(), 4);
    assert_eq!(world.stack.tcp_sizes().half_open, 0);
}

#[test]
fn a_port_without_listener_resets() {
    let mut world = World::new(config());
    world.inject((PEER_PORT, 81), ISS, 0, SYN, &offer(), &[]);
    let reset = world.only();
    assert!(reset.is(RST | ACK));
    assert_eq!((reset.header.seq, reset.header.ack), (0, ISS + 1));
    world.inject(
        (PEER_PORT, 81),
        ISS,
        4711,
        ACK,
        &TcpOptions::default(),
        b"x",
    );
    let reset = world.only();
    assert_eq!((reset.header.seq, reset.is(ACK)), (4711, false));
}

#[test]
fn initial_numbers_differ_between_flows_and_grow_with_time() {
    // RFC 9293 3.4.1, RFC 6528 3.
    let mut world = World::new(config());
    world.listen();
    let mut numbers = Vec::new();
    for port in [1000, 1001, 1002] {
        world.inject((port, PORT), ISS, 0, SYN, &offer(), &[]);
        numbers.push(world.only().header.seq);
    }
    numbers.dedup();
    assert_eq!(numbers.len(), 3);
}

#[test]
fn stacks_with_one_key_number_the_connections_of_two_ends_as_one_stack_would() {
    // RFC 6528 3: M counts 4 µs; RFC 7323 5.4: the timestamps of a flow go on.
    let answer = |seed: u8, sequence_key, second| {
        let mut world = World::new(StackConfig {
            seed: [seed; 32],
            sequence_key,
            ..config()
        });
        world.now.0 += second * SECOND;
        world.listen();
        world.inject((PEER_PORT, PORT), ISS, 0, SYN, &offer(), &[]);
        let answer = world.only();
        let stamp = answer.options.timestamps.map(|stamp| stamp.value);
        (answer.header.seq, stamp.expect("a timestamp"))
    };
    let later = |key| {
        let (old, new) = (answer(1, key, 0), answer(2, key, 1));
        (new.0.wrapping_sub(old.0), new.1.wrapping_sub(old.1))
    };
    assert_eq!(later(Some([3, 4])), (250_000, 1_000));
    let (numbers, stamps) = later(None);
    assert!(numbers != 250_000 && stamps != 1_000);
}

#[test]
fn two_syn_acks_end_a_simultaneous_open() {
    let mut world = connecting();
    let syn = world.only();
    world.inject((PEER_PORT, PORT), ISS, 0, SYN, &TcpOptions::default(), &[]);
    world.take_sent();
    // RFC 9293 figure 8: the peer has sent its SYN-ACK before it saw ours.
    let ack = syn.header.seq.wrapping_add(1);
    world.inject(
        (PEER_PORT, PORT),
        ISS,
        ack,
        SYN | ACK,
        &TcpOptions::default(),
        &[],
    );
    assert!(world.has(Event::Connected {
        conn: world.conn.unwrap()
    }));
    world.flush();
    let last = world.only();
    assert!(!last.is(SYN));
    assert_eq!((last.header.seq, last.header.ack), (ack, ISS + 1));
}

/// Three SYN-ACKs, or fewer; then the last ACK.
fn accepted_after(repeats: u32, timestamps: Option<Timestamps>) -> World {
    let mut world = World::new(config());
    world.listen();
    let offer = TcpOptions {
        mss: Some(1_000),
        timestamps,
        ..TcpOptions::default()
    };
    world.inject((PEER_PORT, PORT), world.seq, 0, SYN, &offer, &[]);
    world.seq += 1;
    while world.fx.sent.len() <= repeats as usize {
        world.sleep(10 * MS);
    }
    let answer = world.take_sent().pop().unwrap();
    world.ack = answer.header.seq.wrapping_add(1);
    world.now.0 += 40 * MS;
    world.stamps = answer.options.timestamps.map(|t| Timestamps {
        value: t.echo + 10,
        echo: t.value,
    });
    world.peer(ACK, &[]);
    world.conn = world.fx.events.iter().find_map(|event| match event {
        Event::Accepted { conn, .. } => Some(*conn),
        _ => None,
    });
    world.flush();
    world.clear();
    world
}

/// Returns the world after an active open.
fn connected_after(repeats: u32, timestamps: Option<Timestamps>) -> World {
    let mut world = connecting();
    while world.fx.sent.len() <= repeats as usize {
        world.sleep(10 * MS);
    }
    let syn = world.take_sent().pop().unwrap();
    world.ack = syn.header.seq.wrapping_add(1);
    world.now.0 += 40 * MS;
    let own = syn.options.timestamps.unwrap();
    world.stamps = timestamps.map(|t| Timestamps {
        echo: own.value,
        ..t
    });
    let options = TcpOptions {
        mss: Some(1_000),
        timestamps: world.stamps,
        ..TcpOptions::default()
    };
    world.peer_with(0, SYN | ACK, &[], options);
    world.seq += 1;
    world.flush();
    world.clear();
    world
}

#[test]
fn a_repeated_syn_leaves_a_longer_timeout_and_a_smaller_window() {
    let figures = |world: &World| {
        let (now, conn) = (world.now, world.conn.unwrap());
        let info = world.stack.tcp_info(now, conn).unwrap();
        (info.rto_us, info.snd_cwnd)
    };
    for open in [accepted_after, connected_after] {
        // RFC 6298 5.7 and RFC 6928 2.
        for (repeats, window) in [(1, 10), (2, 1), (3, 1)] {
            let mut world = open(repeats, None);
            assert_eq!(figures(&world), (3_000_000, window), "{repeats}");
            world.write(500);
            world.take_sent();
            world.sleep(2_900 * MS);
            world.none();
            world.sleep(200 * MS);
            assert_eq!(world.only().data, Some((0, 500)));
            world.acknowledge(500);
            world.flush();
            world.write(1_000);
            world.now.0 += 20 * MS;
            world.acknowledge(500);
            assert!(figures(&world).0 < 300_000);
        }
        let (timeout, window) = figures(&open(0, None));
        assert!(timeout < 300_000 && window == 10);
        // The echo identifies the SYN.
        let stamps = Timestamps { value: 77, echo: 0 };
        let (timeout, _) = figures(&open(1, Some(stamps)));
        assert!(timeout < 300_000, "{timeout}");
    }
}

#[test]
fn the_user_timeout_ends_an_open_in_time() {
    let mut world = World::new(config());
    let options = SocketOptions {
        user_timeout: Some(core::time::Duration::from_secs(5)),
        ..SocketOptions::default()
    };
    let (now, fx) = (world.now, &mut world.fx);
    let conn = world.stack.tcp_connect(now, None, peer(), &options, fx);
    world.conn = Some(conn.unwrap());
    world.sleep(4_990 * MS);
    assert_eq!(world.failed(), None);
    world.sleep(60 * MS);
    assert_eq!(world.failed(), Some(Reason::TimedOut));
}

#[test]
fn every_segment_has_the_type_of_service_that_the_program_set() {
    // RFC 9293 3.9.1.9: before the open, and changed while the connection is there.
    let mut world = World::new(config());
    let options = SocketOptions {
        tos: 0x28,
        ..SocketOptions::default()
    };
    let (now, fx) = (world.now, &mut world.fx);
    let conn = world.stack.tcp_connect(now, None, peer(), &options, fx);
    world.conn = Some(conn.unwrap());
    let syn = world.only();
    let ports = (PEER_PORT, syn.header.src_port);
    world.ack = syn.header.seq.wrapping_add(1);
    world.inject(ports, ISS, world.ack, SYN | ACK, &offer(), &[]);
    world.write(100);
    let mut sent = world.take_sent();
    sent.push(syn);
    assert!(sent.len() > 2 && sent.iter().all(|it| it.tos == 0x28));
    let (conn, option) = (world.conn.unwrap(), crate::SocketOption::Tos(0xb8));
    let fx = &mut world.fx;
    world.stack.tcp_set_option(now, conn, option, fx).unwrap();
    world.write(200);
    world.sleep(SECOND);
    let sent = world.take_sent();
    assert!(!sent.is_empty() && sent.iter().all(|it| it.tos == 0xb8));
}

/// Opens a connection with TCP_DEFER_ACCEPT up to the peer's SYN-ACK.
fn deferring() -> World {
    let mut world = World::new(config());
    let options = crate::SocketOptions {
        defer_accept: 1,
        ..crate::SocketOptions::default()
    };
    let now = world.now;
    let conn = world
        .stack
        .tcp_connect(now, None, peer(), &options, &mut world.fx);
    world.conn = conn.ok();
    world.flush();
    let syn = world.only();
    let ports = (syn.header.dst_port, syn.header.src_port);
    let ack = syn.header.seq.wrapping_add(1);
    world.inject(ports, ISS, ack, SYN | ACK, &TcpOptions::default(), &[]);
    world.flush();
    world
}

#[test]
fn the_last_ack_of_a_handshake_waits_for_data_if_the_program_says_so() {
    let mut world = deferring();
    world.none();
    world.write(100);
    let sent = world.only();
    assert_eq!((sent.header.ack, sent.len()), (ISS + 1, 100));
}

#[test]
fn the_last_ack_of_a_handshake_does_not_wait_for_ever() {
    let mut world = deferring();
    world.sleep(100 * MS);
    world.none();
    world.sleep(150 * MS);
    assert_eq!(world.only().len(), 0);
}
