//! Each checker of a world can fail: a test breaks something behind the stacks' backs, and the
//! world reports it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use slipstack_sim::host::{Departure, Host};
use slipstack_sim::network::Network;
use slipstack_sim::program::{Task, WritePattern};
use slipstack_sim::{Failure, LinkParams, World, checks};
use slipstack_stack::rng::Rng;
use slipstack_stack::{
    CloseMode, ConnId, Effects, Event, FrameOut, Instant, NetworkState, Payload, Reason,
    RxChecksum, RxMeta, SocketOptions, StackConfig, TxOffload,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const PORT: u16 = 80;
const UP: u64 = 100_000;

fn host(index: u8, now: Instant) -> Host {
    let config = StackConfig {
        network: NetworkState::of(1500, vec![(Ipv4Addr::new(10, 0, 0, index).into(), 24)], &[])
            .into(),
        mac: [2, 0, 0, 0, 0, index],
        seed: [index; 32],
        ..StackConfig::default()
    };
    Host::new(config, now, Rng::new(&[index; 32]))
}

fn world(delay_ns: u64) -> World {
    let now = Instant::from_millis(5_000);
    let hosts = vec![host(1, now), host(2, now)];
    let macs = hosts.iter().map(|host| host.mac).collect();
    let params = LinkParams {
        delay_ns,
        ..LinkParams::default()
    };
    let network = Network::new(params, Rng::new(&[3; 32]), macs);
    let mut world = World::new(now, hosts, network, Rng::new(&[4; 32]));
    world.listen(1, PORT).unwrap();
    world
}

/// A client that sends, and a server that reads it.
fn connect(world: &mut World) {
    let (client, server) = (Task::new((1, UP), (2, 0)), Task::new((2, 0), (1, UP)));
    let options = SocketOptions::default();
    world
        .connect((0, 20_000, client), (1, PORT, server), &options)
        .unwrap();
}

/// A connection on which nothing happens: the client waits for a byte, the server for its end.
fn stay_open(world: &mut World) {
    let (mut client, server) = (Task::new((1, 1), (2, 0)), Task::new((2, 0), (1, 1)));
    client.rhythm = WritePattern::Turns {
        every: 1,
        burst: 1,
        first: false,
    };
    let options = SocketOptions::default();
    world
        .connect((0, 20_000, client), (1, PORT, server), &options)
        .unwrap();
    world.run_for(SECOND).unwrap();
}

/// Halfway through a transfer.
fn busy() -> World {
    let mut world = world(MS);
    connect(&mut world);
    world.run_for(5 * MS).unwrap();
    assert!(world.hosts[1].available(conn(&world, 1)) > 0);
    assert!(world.hosts[1].available(conn(&world, 1)) < UP);
    world
}

/// The connection of a host.
fn conn(world: &World, host: usize) -> ConnId {
    *world.hosts[host].fx.streams.keys().next().unwrap()
}

/// The world goes on and stops with these words.
fn fails_with(world: &mut World, words: &str) {
    let outcome = world.run(600 * SECOND).and_then(|()| world.rest());
    says(outcome, words);
}

fn says(outcome: Result<(), Failure>, words: &str) {
    match outcome {
        Ok(()) => panic!("nobody noticed: {words}"),
        Err(failure) => assert!(failure.message.contains(words), "{words}: {failure:?}"),
    }
}

#[test]
fn a_world_without_faults_passes_every_check() {
    let mut world = busy();
    world.run(600 * SECOND).unwrap();
    world.rest().unwrap();
}

#[test]
fn the_audit_finds_a_byte_that_was_not_sent() {
    let mut world = busy();
    // Hosts begin their turns later, so that frames can be seen in between.
    world.turn_delay_ns = MS;
    while world.hosts[1]
        .inbox
        .iter()
        .all(|(bytes, _)| bytes.len() < 200)
    {
        world.run_for(10_000).unwrap();
    }
    let mut inbox = world.hosts[1].inbox.iter_mut();
    let (bytes, meta) = inbox.find(|(bytes, _)| bytes.len() >= 200).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    meta.checksum = RxChecksum::Partial;
    fails_with(&mut world, "sent was");
}

/// A wrong report of a stack to its host in the middle of a transfer, at the client's or the
/// server's side.
type FalseReport = fn(&mut Host, ConnId);
type FalseEvent = fn(&mut World, ConnId) -> Event;
type HostFault = fn(&mut Host);
type WorldFault = fn(&mut World);

/// Faults: the checker's sentence, the faulty stack, and the fault.
const FALSE_REPORTS: &[(&str, usize, FalseReport)] = &[
    ("is handed out", 1, |host, conn| {
        host.fx.store(conn, 0, b"again");
    }),
    ("stored without gap", 1, |host, conn| {
        let upto = host.available(conn) + (1 << 30);
        host.fx.event(Event::Received { conn, upto });
    }),
    ("received 0", 1, |host, conn| {
        host.fx.event(Event::Received { conn, upto: 0 });
    }),
    ("acked 100001", 0, |host, conn| {
        host.fx.event(Event::Acked { conn, upto: UP + 1 });
    }),
    ("acked 5, after 10", 0, |host, conn| {
        host.fx.event(Event::Acked { conn, upto: 10 });
        host.fx.event(Event::Acked { conn, upto: 5 });
    }),
    ("outside of the send ring", 0, |host, conn| {
        transmit(host, conn, UP);
    }),
    ("end of stream at", 1, |host, conn| {
        host.fx.event(Event::Fin { conn });
    }),
    ("failed: Reset", 1, |host, conn| {
        let reason = Reason::Reset;
        host.fx.event(Event::Failed { conn, reason });
    }),
    ("after the end", 0, |host, conn| {
        host.fx.event(Event::Released { conn });
        host.fx.event(Event::Acked { conn, upto: UP });
    }),
    ("second release", 0, |host, conn| {
        host.fx.event(Event::Released { conn });
        host.fx.event(Event::Released { conn });
    }),
];

fn transmit(host: &mut Host, conn: ConnId, offset: u64) {
    host.fx.transmit(FrameOut {
        header: &[0; 54],
        payload: Payload::Stream {
            conn,
            offset,
            len: 10,
        },
        offload: TxOffload::default(),
        local: false,
    });
}

#[test]
fn forbidden_events_are_reported() {
    for &(words, index, fault) in FALSE_REPORTS {
        let mut world = busy();
        let conn = conn(&world, index);
        fault(&mut world.hosts[index], conn);
        fails_with(&mut world, words);
    }
}

/// Events that may not come for a connection that its program has closed.
const AFTER_CLOSE: &[(&str, CloseMode, FalseReport)] = &[
    ("store after", CloseMode::Orderly, |host, conn| {
        host.fx.store(conn, host.available(conn), b"more");
    }),
    ("received after", CloseMode::Orderly, |host, conn| {
        let upto = host.available(conn);
        host.fx.event(Event::Received { conn, upto });
    }),
    ("event after", CloseMode::Orderly, |host, conn| {
        let reason = Reason::Reset;
        host.fx.event(Event::Failed { conn, reason });
    }),
    ("event after", CloseMode::Orderly, |host, conn| {
        let (at, byte) = (1, None);
        host.fx.event(Event::Urgent { conn, at, byte });
    }),
    ("event after", CloseMode::Orderly, |host, conn| {
        host.fx.event(Event::Connected { conn });
    }),
    ("after the end", CloseMode::Abort, |host, conn| {
        host.fx.event(Event::Acked { conn, upto: 1 });
    }),
    ("after the end", CloseMode::Abort, |host, conn| {
        host.fx.event(Event::Fin { conn });
    }),
];

#[test]
fn events_after_close_are_reported() {
    for &(words, mode, fault) in AFTER_CLOSE {
        let mut world = busy();
        let (now, conn) = (world.now, conn(&world, 0));
        world.hosts[0].close(now, conn, mode).unwrap();
        assert_eq!(world.hosts[0].fx.violations, [] as [String; 0]);
        fault(&mut world.hosts[0], conn);
        let said = world.hosts[0].fx.violations.concat();
        assert!(said.contains(words), "{words}: {said}");
        fails_with(&mut world, words);
    }
}

#[test]
fn an_acknowledgement_of_lost_data_is_reported() {
    let mut world = busy();
    world.network.set_cut(true);
    world.run_for(20 * MS).unwrap();
    let conn = conn(&world, 0);
    let fx = &mut world.hosts[0].fx;
    let upto = fx.streams[&conn].written();
    fx.events.push_back(Event::Acked { conn, upto });
    fails_with(&mut world, "acknowledged, ");
}

#[test]
fn the_audit_finds_a_connection_left_by_an_abort() {
    let mut world = busy();
    // The server's stack knows no second connection.
    let other = ConnId {
        index: 77,
        ..conn(&world, 1)
    };
    let now = world.now;
    let host = &mut world.hosts[1];
    let outcome = host.close(now, other, CloseMode::Abort);
    assert_eq!(outcome, Err("aborted and not released".into()));
    transmit(host, other, 0);
    host.fx.event(Event::Acked {
        conn: other,
        upto: 0,
    });
    let said = &host.fx.violations;
    assert!(said[0].starts_with("data after") && said[0].ends_with("was aborted"));
    assert!(said[1].starts_with("acked after") && said[1].ends_with("was aborted"));
}

#[test]
fn a_second_connection_and_one_without_a_listener_are_reported() {
    let lies: [(&str, FalseEvent); 4] = [
        ("accepted a second time", |world, conn| Event::Accepted {
            listener: world.listen(1, 81).unwrap(),
            conn,
            local: SocketAddr::new(world.hosts[1].ip, PORT),
            remote: SocketAddr::new(world.hosts[0].ip, 20_000),
            origin: None,
        }),
        ("accepted without an address", |world, conn| {
            Event::Accepted {
                listener: world.listen(1, 81).unwrap(),
                conn: ConnId { index: 77, ..conn },
                local: SocketAddr::new(world.hosts[1].ip, PORT),
                remote: SocketAddr::new(world.hosts[0].ip, 20_000),
                origin: None,
            }
        }),
        ("has no program", |_, conn| Event::Connected {
            conn: ConnId { index: 77, ..conn },
        }),
        ("end for nobody", |_, conn| Event::Fin {
            conn: ConnId { index: 77, ..conn },
        }),
    ];
    for (words, fault) in lies {
        let mut world = busy();
        let conn = conn(&world, 1);
        let event = fault(&mut world, conn);
        world.hosts[1].fx.event(event);
        fails_with(&mut world, words);
    }
}

#[test]
fn the_audit_finds_a_frame_lost_between_device_and_stack() {
    let spoils: [(&str, HostFault); 5] = [
        ("were counted", |host| host.arrived += 1),
        ("were counted", |host| host.overruns += 1),
        ("frames sent", |host| host.fx.transmitted += 1),
        ("looped back", |host| host.looped += 1),
        ("were counted", |host| {
            host.push(vec![0; 60], RxMeta::UNKNOWN);
            host.inbox.pop_back();
        }),
    ];
    for (words, spoil) in spoils {
        let mut world = busy();
        spoil(&mut world.hosts[1]);
        fails_with(&mut world, words);
    }
}

#[test]
fn the_audit_finds_a_frame_lost_between_link_and_host() {
    let mut world = busy();
    while world.network.pop_arrival(world.now).is_none() {
        world.now = world.now.plus_nanos(1_000);
    }
    fails_with(&mut world, "frames were handed out");
}

#[test]
fn a_forbidden_segment_is_reported() {
    let mut world = busy();
    world.turn_delay_ns = MS;
    while world.hosts[0].inbox.is_empty() {
        world.run_for(10_000).unwrap();
    }
    // The server's acknowledgement, as if of far more data.
    let (mut bytes, meta) = world.hosts[0].inbox.back().unwrap().clone();
    let ack_at = 14 + 20 + 8;
    let ack: [u8; 4] = bytes[ack_at..ack_at + 4].try_into().unwrap();
    let far = u32::from_be_bytes(ack).wrapping_add(10_000_000);
    bytes[ack_at..ack_at + 4].copy_from_slice(&far.to_be_bytes());
    world.hosts[1].fx.departures.push(Departure { bytes, meta });
    fails_with(&mut world, "acknowledges");
}

#[test]
fn a_world_that_does_not_end_is_reported() {
    let mut cut = busy();
    cut.network.set_cut(true);
    says(cut.run(SECOND), "not finished");

    // Where nothing takes time, questions and answers go on within one instant.
    let mut standing = world(0);
    let turns = |first| WritePattern::Turns {
        every: 1,
        burst: 1,
        first,
    };
    let (mut client, mut server) = (Task::new((1, UP), (2, UP)), Task::new((2, UP), (1, UP)));
    (client.rhythm, server.rhythm) = (turns(true), turns(false));
    let options = SocketOptions::default();
    let opened = standing.connect((0, 20_000, client), (1, PORT, server), &options);
    says(
        opened.and_then(|()| standing.run(SECOND)),
        "time stands still",
    );

    // With itself a host goes on within one step.
    let mut alone = world(MS);
    let opened = alone.connect((1, 20_000, client), (1, PORT, server), &options);
    says(opened.and_then(|()| alone.run(SECOND)), "never settles");
}

#[test]
fn too_many_idle_steps_are_reported() {
    let world = world(MS);
    assert_eq!(checks::is_quiet(&world, 2_000), Ok(()));
    assert!(checks::is_quiet(&world, 2_001).is_err());
}

#[test]
fn remaining_state_at_rest_is_reported() {
    let spoils: [(&str, WorldFault); 5] = [
        ("frames still fly", |world| {
            let mut frame = vec![0; 60];
            frame[..6].copy_from_slice(&world.hosts[1].mac);
            world.network.send(world.now, 0, &frame, RxMeta::UNKNOWN);
        }),
        ("frames left over", |world| {
            let mut frame = vec![0; 60];
            frame[..6].copy_from_slice(&world.hosts[1].mac);
            world.network.send(world.now, 0, &frame, RxMeta::UNKNOWN);
            let arrival = world.network.pop_arrival(Instant::FAR_FUTURE).unwrap();
            world.hosts[1].push(arrival.bytes, arrival.meta);
        }),
        ("left over: TcpSizes { connections: 1,", stay_open),
        ("something is still to be sent", |world| {
            stay_open(world);
            let conn = conn(world, 0);
            world.hosts[0].stack.tcp_written(conn, 1, false);
        }),
        ("a timer still runs", |world| {
            let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 99)), PORT);
            let now = world.now;
            let Host { stack, fx, .. } = &mut world.hosts[0];
            let options = SocketOptions::default();
            let conn = stack.tcp_connect(now, None, nobody, &options, fx).unwrap();
            stack.flush(now, fx);
            stack.tcp_close(now, conn, CloseMode::Abort, false, fx);
            fx.departures.clear();
        }),
    ];
    for (words, spoil) in spoils {
        let mut world = world(MS);
        assert_eq!(checks::at_rest(&world), Ok(()));
        spoil(&mut world);
        let said = checks::at_rest(&world).unwrap_err();
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn damage_on_a_link_without_damage_is_reported() {
    let mut world = busy();
    world.run(600 * SECOND).unwrap();
    let frame = [vec![0xff; 12], vec![8, 0, 0x45]].concat();
    world.network.send(world.now, 0, &frame, RxMeta::UNKNOWN);
    says(world.rest(), "on a way without damage");
}
