//! Hosts of several engines: the cases that their families reach, and a failure of each checker.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use slipstack_sim::host::{Departure, Host};
use slipstack_sim::machine::Participant;
use slipstack_sim::network::Network;
use slipstack_sim::program::Task;
use slipstack_sim::world::{Ending, Way};
use slipstack_sim::worlds::Family;
use slipstack_sim::{Failure, LinkParams, World, checks};
use slipstack_stack::SocketState;
use slipstack_stack::rng::Rng;
use slipstack_stack::{
    ConnId, Effects, Event, Instant, IpMeta, NetworkState, Reason, Role, SocketOptions,
    StackConfig, TcpSizes,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const PORT: u16 = 80;

/// One connection in TIME-WAIT.
const WAITING: TcpSizes = TcpSizes {
    connections: 0,
    half_open: 0,
    time_wait: 1,
};
const CLIENT: u16 = 20_000;
const UP: u64 = 300_000;
const KEEPER: usize = 1;
const ENGINES: [usize; 2] = [2, 3];
const PROMPT: Way = Way {
    takes_ns: 100_000,
    steered_after_ns: 0,
    drops_ranges: false,
};

fn host(index: u8, role: Role, seed: u8, now: Instant) -> Host {
    let mut config = StackConfig {
        network: NetworkState::of(1500, vec![(Ipv4Addr::new(10, 0, 0, index).into(), 24)], &[])
            .into(),
        mac: [2, 0, 0, 0, 0, index],
        seed: [seed; 32],
        role,
        ..StackConfig::default()
    };
    config.tcp.resets_per_second = 100_000;
    Host::new(config, now, Rng::new(&[seed; 32]))
}

/// A client, and a machine of two engines that listen.
fn world() -> World {
    let now = Instant::from_millis(5_000);
    let hosts = vec![
        host(1, Role::Standalone, 1, now),
        host(2, Role::Keeper, 2, now),
    ];
    let macs = hosts.iter().map(|host| host.mac).collect();
    let params = LinkParams {
        delay_ns: MS,
        ..LinkParams::default()
    };
    let network = Network::new(params, Rng::new(&[3; 32]), macs);
    let mut world = World::new(now, hosts, network, Rng::new(&[4; 32]));
    let machine = world.make_machine(KEEPER, MS / 10);
    for (seed, expected) in (3..).zip(ENGINES) {
        let engine = world.add_engine(machine, host(2, Role::Engine, seed, now));
        assert_eq!(engine, expected);
    }
    world.share_port(machine, PORT, &ENGINES).unwrap();
    world
}

/// Halfway through a transfer to one of the engines: the world, its connection there, and the other
/// engine.
fn busy() -> (World, (usize, ConnId), usize) {
    let mut world = world();
    let (client, server) = (Task::new((1, UP), (2, UP)), Task::new((2, UP), (1, UP)));
    let options = SocketOptions::default();
    let ends = ((0, CLIENT, client), (KEEPER, PORT, server));
    world.connect(ends.0, ends.1, &options).unwrap();
    world.run_for(6 * MS).unwrap();
    let place = world.connections_of(0)[0];
    let read = world.hosts[place.0].available(place.1);
    assert!(0 < read && read < UP, "{read}");
    let other = ENGINES.into_iter().find(|of| *of != place.0).unwrap();
    (world, place, other)
}

/// Makes something wrong at an engine.
type WorldFault = fn(&mut World, usize);

fn finish(world: &mut World) -> Result<(), Failure> {
    world.run(600 * SECOND)?;
    world.rest()
}

fn says(outcome: Result<(), Failure>, words: &str) {
    match outcome {
        Ok(()) => panic!("nobody noticed: {words}"),
        Err(failure) => assert!(failure.message.contains(words), "{words}: {failure:?}"),
    }
}

fn client_ends(world: &World) -> (SocketAddr, SocketAddr) {
    (
        SocketAddr::new(world.hosts[0].ip, CLIENT),
        SocketAddr::new(world.hosts[KEEPER].ip, PORT),
    )
}

#[test]
fn a_connection_moves_in_the_middle_of_a_transfer() {
    let (mut world, place, other) = busy();
    assert!(world.transfer(place, other, PROMPT));
    assert!(world.connections_of(0).is_empty(), "on its way");
    finish(&mut world).unwrap();
    assert_eq!(
        (world.machines[0].detached, world.machines[0].adopted),
        (1, 1)
    );
}

#[test]
fn segments_that_reach_the_old_engine_meanwhile_are_forwarded() {
    let (mut world, place, other) = busy();
    let way = Way {
        steered_after_ns: 20 * MS,
        ..PROMPT
    };
    assert!(world.transfer(place, other, way));
    finish(&mut world).unwrap();
    assert!(world.hosts[place.0].fx.passed_on > 10);
    assert!(world.hosts[KEEPER].posted > 10 && world.hosts[other].posted > 10);
}

/// The families move connections in every phase in which a block can move.
#[test]
fn connections_move_in_every_phase() {
    let family = Family::find("moving").unwrap();
    let reports = (0..40).map(|seed| family.run(seed, None).unwrap());
    let moved_in = reports.fold(0, |all, report| all | report.moved_in);
    for state in [
        SocketState::Established,
        SocketState::FinWait1,
        SocketState::FinWait2,
        SocketState::CloseWait,
        SocketState::Closing,
        SocketState::LastAck,
    ] {
        assert!(moved_in & 1 << state as u8 != 0, "{state:?}");
    }
}

#[test]
fn a_connection_whose_port_does_not_count_as_moving_is_reset() {
    let (mut world, place, other) = busy();
    let way = Way {
        takes_ns: 50 * MS,
        steered_after_ns: 60 * MS,
        drops_ranges: false,
    };
    assert!(world.transfer(place, other, way));
    // As if it had left long ago.
    world.keeper(KEEPER).search.note_moving(PORT, Instant::ZERO);
    says(finish(&mut world), "failed: Reset");
}

#[test]
fn the_audit_finds_connections_and_segments_lost_between_engines() {
    let spoils: [(&str, WorldFault); 4] = [
        ("connections left their engines", |world, other| {
            drop(world.hosts[other].post.pop(Instant::FAR_FUTURE));
        }),
        ("frames were passed on", |world, other| {
            world.hosts[other].fx.passed_on += 1;
        }),
        ("were put into an inbox", |world, other| {
            world.hosts[other].post.tally.posted += 1;
            world.hosts[other].fx.passed_on += 1;
        }),
        ("left to other stacks", |world, other| {
            world.hosts[other].fx.strays += 1;
        }),
    ];
    for (words, spoil) in spoils {
        let (mut world, place, other) = busy();
        assert!(world.transfer(place, other, PROMPT));
        spoil(&mut world, other);
        let outcome = world.run_for(SECOND).and_then(|()| {
            let outcome = checks::frames(&world);
            outcome.map_err(|why| world.failure(why))
        });
        says(outcome, words);
    }
}

/// A handshake whose SYN-ACK is in flight when its engine stops listening.
fn half_open() -> (World, usize) {
    let mut world = world();
    let (client, server) = (Task::new((1, UP), (2, UP)), Task::new((2, UP), (1, UP)));
    let options = SocketOptions::default();
    let ends = ((0, CLIENT, client), (KEEPER, PORT, server));
    world.connect(ends.0, ends.1, &options).unwrap();
    let has_half = |world: &World, of: &usize| world.hosts[*of].stack.tcp_sizes().half_open == 1;
    while !ENGINES.iter().any(|of| has_half(&world, of)) {
        world.run_for(MS / 10).unwrap();
    }
    let engine = ENGINES.into_iter().find(|of| has_half(&world, of)).unwrap();
    world.leave_port(0, PORT, engine).unwrap();
    let other = ENGINES.into_iter().find(|of| *of != engine).unwrap();
    assert_eq!(world.listening(PORT), [other]);
    (world, other)
}

#[test]
fn a_handshake_moves_when_its_listener_closes() {
    let (mut world, _) = half_open();
    finish(&mut world).unwrap();
    let tally = world.machines[0].half_open;
    assert_eq!((tally.left, tally.taken, tally.refused), (1, 1, 0));
}

#[test]
fn the_audit_finds_a_handshake_lost_between_engines() {
    let (mut world, other) = half_open();
    drop(world.hosts[other].post.pop(Instant::FAR_FUTURE));
    let outcome = checks::frames(&world).map_err(|why| world.failure(why));
    says(outcome, "handshakes left their engines");
}

#[test]
fn segments_of_an_engine_whose_connection_has_left_are_reported() {
    let (mut world, place, other) = busy();
    assert!(world.transfer(place, other, PROMPT));
    let (index, conn) = place;
    world.hosts[index]
        .fx
        .event(Event::Received { conn, upto: UP });
    let said = world.hosts[index].fx.violations.concat();
    assert!(said.contains("after the end"), "{said}");
}

#[test]
fn bytes_that_do_not_travel_with_their_connection_are_noticed() {
    let (mut world, place, other) = busy();
    world.hosts[place.0].fx.streams.remove(&place.1);
    assert!(world.transfer(place, other, PROMPT));
    assert!(finish(&mut world).is_err());
}

#[test]
fn a_peer_of_a_dead_engine_is_reset_at_once_and_the_port_is_free() {
    let (mut world, place, _) = busy();
    let ends = client_ends(&world);
    world.end_engine(place.0, Ending::Crash, MS).unwrap();
    says(world.run_for(SECOND), "failed: Reset");
    assert_eq!(world.failed(ends.0, ends.1), Some(Reason::Reset));
}

/// A world in which an engine sends to a client that only listens, in the middle of it.
fn sending() -> (World, (usize, ConnId)) {
    let mut world = world();
    let (client, server) = (Task::new((1, 0), (2, UP)), Task::new((2, UP), (1, 0)));
    let options = SocketOptions::default();
    let ends = ((0, CLIENT, client), (KEEPER, PORT, server));
    world.connect(ends.0, ends.1, &options).unwrap();
    world.run_for(6 * MS).unwrap();
    let place = world.connections_of(0)[0];
    (world, place)
}

#[test]
fn a_listening_side_whose_engine_dies_resets_its_peer() {
    let (mut world, (index, _)) = sending();
    // The frames it sends as it ends are lost.
    world.network.set_cut(true);
    world.end_engine(index, Ending::Interrupted, MS).unwrap();
    world.run_for(100 * MS).unwrap();
    world.network.set_cut(false);
    says(world.run_for(SECOND), "failed: Reset");
    let (local, remote) = client_ends(&world);
    assert_eq!(world.failed(local, remote), Some(Reason::Reset));
}

#[test]
fn a_peer_without_a_reset_after_a_crash_is_reported() {
    let (mut world, place, _) = busy();
    world.keeper(KEEPER).probes = false;
    world.network.set_cut(true);
    world.end_engine(place.0, Ending::Crash, MS).unwrap();
    world.run_for(SECOND).unwrap();
    let (local, remote) = client_ends(&world);
    assert_eq!(world.failed(local, remote), None);
    says(world.check_knows_of_end(local, remote), "has not heard");
}

#[test]
fn the_audit_finds_a_segment_of_a_dead_engine() {
    let (mut world, place, _) = busy();
    while world.hosts[0].inbox.is_empty() {
        world.turn_delay_ns = MS;
        world.run_for(10_000).unwrap();
    }
    let (bytes, meta) = world.hosts[0].inbox.back().unwrap().clone();
    world.end_engine(place.0, Ending::Crash, MS).unwrap();
    world.hosts[KEEPER]
        .fx
        .departures
        .push(Departure { bytes, meta });
    says(finish(&mut world), "after the program has died");
}

#[test]
fn data_of_an_ended_program_has_to_arrive_whole() {
    for is_spoilt in [false, true] {
        let (mut world, (index, conn)) = sending();
        let written = world.hosts[index].fx.streams[&conn].written();
        assert!(0 < written && written < UP, "{written}");
        world.end_engine(index, Ending::Orderly, MS).unwrap();
        if !is_spoilt {
            finish(&mut world).unwrap();
            continue;
        }
        world.expect_of_peer(client_ends(&world), written + 1);
        says(finish(&mut world), "end of stream at");
    }
}

#[test]
fn a_segment_of_an_unknown_flow_is_reset_where_a_stack_is_alone() {
    let (world, place, _) = busy();
    let mut world = world;
    let ip = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    let meta = IpMeta {
        src: ip(1),
        dst: ip(2),
        tos: 0,
        ttl: 64,
        group: false,
        local: false,
        link: 0,
    };
    let segment = [0; 20];
    assert!(!world.hosts[0].fx.stray(&meta, &segment));
    assert!(world.hosts[place.0].fx.stray(&meta, &segment));
    assert!(matches!(
        world.hosts[place.0].fx.place,
        Some(Participant::Engine(_))
    ));
}

/// A connection that the machine's side has ended first, and whose last ACK is lost.
fn ended() -> (World, usize) {
    let mut world = world();
    let (mut client, server) = (Task::new((1, 0), (2, 100)), Task::new((2, 100), (1, 0)));
    client.ends_last = true;
    let options = SocketOptions::default();
    let ends = ((0, CLIENT, client), (KEEPER, PORT, server));
    world.connect(ends.0, ends.1, &options).unwrap();
    let is_ending = |world: &World| {
        let mut all = world.connections_of(0).into_iter();
        let state = |(of, conn): (usize, ConnId)| {
            let info = world.hosts[of].stack.tcp_info(world.now, conn);
            info.map(|info| info.state)
        };
        all.any(|place| state(place) == Some(SocketState::FinWait1))
    };
    for _ in 0..1000 {
        world.run_for(MS / 10).unwrap();
        if is_ending(&world) {
            break;
        }
    }
    // The peer's end is on its way.
    world.run_for(MS + MS / 2).unwrap();
    world.network.set_cut(true);
    world.run_for(MS).unwrap();
    let mut engines = ENGINES.into_iter();
    let engine = engines.find(|of| world.hosts[*of].stack.tcp_sizes() == WAITING);
    (world, engine.expect("it is in TIME-WAIT"))
}

#[test]
fn a_time_wait_goes_on_with_the_keeper_and_answers_the_end_that_is_repeated() {
    let (mut world, engine) = ended();
    world.end_engine(engine, Ending::Orderly, MS).unwrap();
    world.run_for(2 * MS).unwrap();
    assert_eq!(world.machines[0].former, 1);
    assert_eq!(world.hosts[KEEPER].stack.tcp_sizes(), WAITING);
    world.network.set_cut(false);
    world.run_for(5 * SECOND).unwrap();
    assert_eq!(world.hosts[0].stack.tcp_sizes(), TcpSizes::default());
    let (local, remote) = client_ends(&world);
    assert_eq!(world.failed(local, remote), None);
    finish(&mut world).unwrap();
}

#[test]
fn the_audit_finds_a_forgotten_time_wait() {
    let (mut world, engine) = ended();
    world.end_engine(engine, Ending::Orderly, MS).unwrap();
    world.machines[0].time_waits.clear();
    world.run_for(2 * MS).unwrap();
    world.network.set_cut(false);
    says(world.run_for(5 * SECOND), "the peer of a TIME-WAIT");
}
