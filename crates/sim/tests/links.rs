//! Single properties of a connection on links of a known kind.

use std::net::Ipv4Addr;

use slipstack_sim::host::Host;
use slipstack_sim::link::QueueParams;
use slipstack_sim::network::Network;
use slipstack_sim::program::{Task, WritePattern};
use slipstack_sim::{Failure, LinkParams, World};
use slipstack_stack::rng::Rng;
use slipstack_stack::{Instant, NetworkState, SocketOptions, StackConfig};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

fn world(params: LinkParams, change: impl Fn(&mut StackConfig)) -> World {
    let now = Instant::from_millis(5000);
    let hosts: Vec<Host> = (1..=2u8)
        .map(|i| {
            let mut config = StackConfig {
                network: NetworkState::of(1500, vec![(Ipv4Addr::new(10, 0, 0, i).into(), 24)], &[])
                    .into(),
                mac: [2, 0, 0, 0, 0, i],
                seed: [i; 32],
                ..StackConfig::default()
            };
            change(&mut config);
            Host::new(config, now, Rng::new(&[i; 32]))
        })
        .collect();
    let macs = hosts.iter().map(|host| host.mac).collect();
    World::new(
        now,
        hosts,
        Network::new(params, Rng::new(&[9; 32]), macs),
        Rng::new(&[8; 32]),
    )
}

fn task(bytes_out: u64, bytes_in: u64) -> Task {
    let (out, back) = if bytes_out > bytes_in { (1, 2) } else { (2, 1) };
    Task::new((out, bytes_out), (back, bytes_in))
}

/// One connection, to `server`; returns how long it took in nanoseconds.
fn transfer(
    world: &mut World,
    server: usize,
    client: Task,
    answer: Task,
    limit_ns: u64,
) -> Result<u64, Failure> {
    let begin = world.now;
    world.listen(server, 80)?;
    world.connect(
        (0, 2000, client),
        (server, 80, answer),
        &SocketOptions::default(),
    )?;
    world.run(limit_ns)?;
    let taken = world.now.nanos_since(begin);
    world.rest()?;
    Ok(taken)
}

#[test]
fn a_bulk_transfer_fills_a_clean_link() {
    let params = LinkParams {
        delay_ns: 5 * MS,
        rate: 100_000_000,
        ..LinkParams::default()
    };
    for tso_max in [0, 65_000] {
        let mut world = world(params, |config| config.tso_max = tso_max);
        let bytes = 25_000_000;
        let taken = transfer(&mut world, 1, task(bytes, 0), task(0, bytes), 60 * SECOND).unwrap();
        let ideal = bytes * 8 * SECOND / 100_000_000;
        assert!(
            taken < ideal * 5 / 4,
            "{} ms, ideal {} ms",
            taken / MS,
            ideal / MS
        );
    }
}

#[test]
fn a_shallow_queue_does_not_starve_a_transfer() {
    let params = LinkParams {
        delay_ns: 5 * MS,
        rate: 100_000_000,
        queue: QueueParams {
            bytes_max: 100_000,
            ..QueueParams::default()
        },
        ..LinkParams::default()
    };
    let mut world = world(params, |_| {});
    let bytes = 25_000_000;
    let taken = transfer(&mut world, 1, task(bytes, 0), task(0, bytes), 60 * SECOND).unwrap();
    let ideal = bytes * 8 * SECOND / 100_000_000;
    assert!(
        taken < ideal * 2,
        "{} ms, ideal {} ms",
        taken / MS,
        ideal / MS
    );
}

#[test]
fn requests_and_responses_never_wait_for_a_delayed_ack() {
    let params = LinkParams {
        delay_ns: MS,
        ..LinkParams::default()
    };
    let mut world = world(params, |_| {});
    let turns = 200;
    let ask = Task {
        rhythm: WritePattern::Turns {
            every: 3000,
            burst: 100,
            first: true,
        },
        ..task(100 * turns, 3000 * turns)
    };
    let answer = Task {
        rhythm: WritePattern::Turns {
            every: 100,
            burst: 3000,
            first: false,
        },
        ..task(3000 * turns, 100 * turns)
    };
    let taken = transfer(&mut world, 1, ask, answer, 60 * SECOND).unwrap();
    assert!(taken < (turns + 10) * 2 * MS, "{} ms", taken / MS);
}

#[test]
fn a_connection_to_our_own_address_works() {
    let mut world = world(LinkParams::default(), |_| {});
    let bytes = 1_000_000;
    transfer(
        &mut world,
        0,
        task(bytes, 1000),
        task(1000, bytes),
        60 * SECOND,
    )
    .unwrap();
}

#[test]
fn a_cut_of_ten_seconds_is_survived() {
    let params = LinkParams {
        delay_ns: 5 * MS,
        rate: 10_000_000,
        ..LinkParams::default()
    };
    let mut world = world(params, |_| {});
    let bytes = 5_000_000;
    world.listen(1, 80).unwrap();
    let options = SocketOptions::default();
    world
        .connect((0, 2000, task(bytes, 0)), (1, 80, task(0, bytes)), &options)
        .unwrap();
    world.run_for(SECOND).unwrap();
    world.network.set_cut(true);
    world.run_for(10 * SECOND).unwrap();
    world.network.set_cut(false);
    world.run(60 * SECOND).unwrap();
    world.rest().unwrap();
}

#[test]
fn a_reader_that_sleeps_stops_the_sender_and_wakes_it() {
    let params = LinkParams {
        delay_ns: MS,
        ..LinkParams::default()
    };
    let mut world = world(params, |config| config.tcp.rcvbuf_max = 100_000);
    let bytes = 1_000_000;
    let sleepy = Task {
        pause_ns_max: 4 * SECOND,
        ..task(0, bytes)
    };
    transfer(&mut world, 1, task(bytes, 0), sleepy, 3600 * SECOND).unwrap();
}
