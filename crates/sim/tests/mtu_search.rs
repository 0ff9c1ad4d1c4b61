//! The search for a path's MTU without ICMP from its routers (RFC 4821, RFC 8899).

use std::net::Ipv4Addr;
use std::time::Duration;

use slipstack_sim::host::Host;
use slipstack_sim::link::QueueParams;
use slipstack_sim::network::Network;
use slipstack_sim::program::Task;
use slipstack_sim::{LinkParams, World};
use slipstack_stack::rng::Rng;
use slipstack_stack::{
    Congestion, Counter, Instant, MtuProbing, NetworkState, SocketOptions, StackConfig, TcpConfig,
    TcpInfo,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Bounds that are closer count as one.
const CLOSE: u32 = 8;

/// Large packets vanish without a word.
fn path(mtu: u32) -> LinkParams {
    LinkParams {
        delay_ns: 5 * MS,
        rate: 25_000_000,
        mtu,
        ..LinkParams::default()
    }
}

fn world(mtu: u32, tso_max: u32, change: impl Fn(&mut TcpConfig)) -> World {
    let now = Instant::from_millis(5000);
    let hosts: Vec<Host> = (1..=2u8)
        .map(|i| {
            let mut config = StackConfig {
                network: NetworkState::of(1500, vec![(Ipv4Addr::new(10, 0, 0, i).into(), 24)], &[])
                    .into(),
                mac: [2, 0, 0, 0, 0, i],
                tso_max,
                seed: [i; 32],
                ..StackConfig::default()
            };
            change(&mut config.tcp);
            Host::new(config, now, Rng::new(&[i; 32]))
        })
        .collect();
    let macs = hosts.iter().map(|host| host.mac).collect();
    let network = Network::new(path(mtu), Rng::new(&[9; 32]), macs);
    World::new(now, hosts, network, Rng::new(&[8; 32]))
}

/// A connection of the first host's that has this much to say.
fn talk(world: &mut World, bytes: u64) {
    world.listen(1, 80).unwrap();
    let (client, server) = (Task::new((1, bytes), (2, 0)), Task::new((2, 0), (1, bytes)));
    let options = SocketOptions::default();
    world
        .connect((0, 2000, client), (1, 80, server), &options)
        .unwrap();
}

fn sender(world: &World) -> TcpInfo {
    let host = &world.hosts[0];
    let (conn, _) = host.fx.streams.iter().next().expect("a connection");
    host.stack.tcp_info(world.now, *conn).expect("it is open")
}

fn count(world: &World, counter: Counter) -> u64 {
    world.hosts[0].stack.counters().value(counter)
}

#[test]
fn the_search_rises_from_the_base_to_the_path_mtu() {
    // RFC 4821 7.2, 7.3 and 7.6.1, RFC 8899 4.1 and 5.3.2.
    for tso_max in [0, 65_000] {
        let mut world = world(1400, tso_max, |tcp| {
            tcp.mtu_probing = MtuProbing::Always;
            // Without HyStart++, which knows other reasons to leave slow start.
            tcp.congestion = Congestion::NewReno;
        });
        talk(&mut world, 40_000_000);
        while world.hosts[0].fx.streams.is_empty() {
            world.run_for(MS).unwrap();
        }
        assert_eq!(sender(&world).pmtu, 1064);
        world.run_for(3 * SECOND).unwrap();
        let info = sender(&world);
        assert!((1400 - CLOSE..=1400).contains(&info.pmtu), "{}", info.pmtu);
        // A probe that is lost is no congestion (RFC 4821 7.6.2): fast recovery was never entered,
        // nothing timed out.
        assert_eq!(count(&world, Counter::TcpTimeouts), 0);
        assert_eq!(info.snd_ssthresh, 0x7fff_ffff, "{info:?}");
        assert!(count(&world, Counter::TxTcpMtuProbes) <= 10);
        assert!(info.total_retrans > 0);
        world.run(600 * SECOND).unwrap();
        world.rest().unwrap();
    }
}

#[test]
fn the_search_rises_again_after_a_black_hole() {
    // RFC 4821 7.7, RFC 8899 4.3.
    let mut world = world(1300, 65_000, |tcp| tcp.mtu_probing = MtuProbing::BlackHole);
    talk(&mut world, 40_000_000);
    world.run_for(10 * SECOND).unwrap();
    let pmtu = sender(&world).pmtu;
    assert!((1300 - CLOSE..=1300).contains(&pmtu), "{pmtu}");
    assert_eq!(count(&world, Counter::TcpBlackHoles), 1);
    world.run(600 * SECOND).unwrap();
    world.rest().unwrap();
}

#[test]
fn a_path_that_grows_is_found_at_the_next_search() {
    // RFC 8899 5.1.1.
    let mut world = world(1300, 0, |tcp| {
        tcp.mtu_probing = MtuProbing::BlackHole;
        tcp.mtu_probe_interval = Duration::from_secs(20);
        // More than is ever in flight: a probe needs data that waits.
        tcp.sndbuf_max = 64 << 20;
    });
    talk(&mut world, 130_000_000);
    world.run_for(10 * SECOND).unwrap();
    world.network.set_params(path(1500));
    world.run_for(5 * SECOND).unwrap();
    let before = sender(&world).pmtu;
    assert!(before <= 1300, "{before}");
    world.run_for(20 * SECOND).unwrap();
    let pmtu = sender(&world).pmtu;
    assert!((1500 - CLOSE..=1500).contains(&pmtu), "{pmtu}");
    world.run(600 * SECOND).unwrap();
    world.rest().unwrap();
}

#[test]
fn without_the_search_a_black_hole_swallows_everything() {
    let mut world = world(1300, 0, |_| {});
    talk(&mut world, 1_000_000);
    world.run_for(60 * SECOND).unwrap();
    let info = sender(&world);
    assert_eq!((info.pmtu, info.bytes_acked), (1500, 1));
}

#[test]
fn a_path_mtu_from_a_router_expires_after_ten_minutes_without_a_search_too() {
    // RFC 1191 6.3. A queue of half a second, in which ARP requests wait too.
    let slow = |mtu| LinkParams {
        rate: 200_000,
        queue: QueueParams {
            bytes_max: 12_000,
            ..QueueParams::default()
        },
        ..path(mtu)
    };
    let mut world = world(1300, 0, |_| {});
    world.network.set_params(slow(1300));
    world.network.router = Some(Ipv4Addr::new(10, 0, 0, 254).into());
    talk(&mut world, 40_000_000);
    let seen = |world: &World| (sender(world).pmtu, count(world, Counter::TcpMtuRaised));
    world.run_for(10 * SECOND).unwrap();
    assert_eq!(seen(&world), (1300, 0));
    world.run_for(585 * SECOND).unwrap();
    // It still holds: a larger packet would be refused again.
    assert_eq!(seen(&world), (1300, 0));
    world.run_for(20 * SECOND).unwrap();
    assert_eq!(seen(&world), (1300, 1));
    world.network.set_params(slow(1500));
    world.run_for(580 * SECOND).unwrap();
    assert_eq!(seen(&world), (1300, 1));
    world.run_for(20 * SECOND).unwrap();
    assert_eq!(seen(&world), (1500, 2));
    let before = sender(&world).bytes_acked;
    world.run_for(20 * SECOND).unwrap();
    assert!(sender(&world).bytes_acked > before + 400_000);
}
