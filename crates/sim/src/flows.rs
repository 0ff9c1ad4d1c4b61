//! Bulk flows side by side through one bottleneck, and the share of each.

use std::net::Ipv4Addr;

use slipstack_stack::rng::Rng;
use slipstack_stack::{
    Congestion, ConnId, Counter, EcnMode, Instant, NetworkState, SocketOptions, StackConfig,
};

use crate::host::Host;
use crate::link::{LinkCounters, LinkParams};
use crate::network::Network;
use crate::program::Task;
use crate::world::{Failure, World};

const SECOND_NS: u64 = 1_000_000_000;
/// More than any run sends.
const ENDLESS: u64 = 1 << 44;
const PORT: u16 = 80;

/// The setup of a run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The bottleneck.
    pub link: LinkParams,
    /// The return path: with the same delay, and otherwise perfect unless set.
    pub back: LinkParams,
    pub flows: Vec<Congestion>,
    /// Interval between the starts of flows.
    pub stagger_ns: u64,
    /// Largest super-frame; the device cuts it, so that it leaves in one burst.
    pub tso_max: u32,
    pub pacing: bool,
    /// RFC 7323: without them an undo needs D-SACKs.
    pub timestamps: bool,
    pub ecn: EcnMode,
    pub seed: u8,
}

impl Setup {
    pub fn new(link: LinkParams, flows: &[Congestion]) -> Self {
        Self {
            link,
            back: LinkParams {
                delay_ns: link.delay_ns,
                ..LinkParams::default()
            },
            flows: flows.to_vec(),
            stagger_ns: 0,
            tso_max: 65_000,
            pacing: false,
            timestamps: true,
            ecn: EcnMode::Passive,
            seed: 1,
        }
    }
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Acknowledged bits per second of each flow, over the measured time.
    pub goodput: Vec<u64>,
    pub link: LinkCounters,
    /// Retransmissions and timeouts of all flows, the warm-up included.
    pub resent: u64,
    pub timeouts: u64,
}

impl Outcome {
    pub fn total(&self) -> u64 {
        self.goodput.iter().sum()
    }
}

/// Runs the flows for `warm_up_ns` and then measures for `ns`.
pub fn run(setup: &Setup, warm_up_ns: u64, ns: u64) -> Result<Outcome, Failure> {
    let mut world = world(setup);
    world.listen(1, PORT)?;
    for (i, kind) in setup.flows.iter().enumerate() {
        let options = SocketOptions {
            congestion: Some(*kind),
            ..SocketOptions::default()
        };
        let port = 10_000 + i as u16;
        let (client, server) = (task(ENDLESS, 0), task(0, ENDLESS));
        world.connect((0, port, client), (1, PORT, server), &options)?;
        world.run_for(setup.stagger_ns)?;
    }
    world.run_for(warm_up_ns)?;
    let before = acked(&world);
    world.run_for(ns)?;
    let goodput = acked(&world)
        .iter()
        .map(|(conn, upto)| {
            let from = before.iter().find(|(of, _)| of == conn).map_or(0, |b| b.1);
            (upto - from) * 8 * SECOND_NS / ns
        })
        .collect();
    let counters = world.hosts[0].stack.counters();
    Ok(Outcome {
        goodput,
        link: *world.network.counters_of(0),
        resent: counters.value(Counter::TxTcpResentFast)
            + counters.value(Counter::TxTcpResentTimeout),
        timeouts: counters.value(Counter::TcpTimeouts),
    })
}

/// Bytes acknowledged, in the order of the connections.
fn acked(world: &World) -> Vec<(ConnId, u64)> {
    let streams = world.hosts[0].fx.streams.iter();
    let mut all: Vec<_> = streams.map(|(conn, s)| (*conn, s.acked())).collect();
    all.sort_by_key(|(conn, _)| conn.index);
    all
}

fn world(setup: &Setup) -> World {
    let now = Instant::from_millis(5_000);
    let hosts: Vec<Host> = (1..=2u8)
        .map(|i| {
            let mut config = StackConfig {
                network: NetworkState::of(1500, vec![(Ipv4Addr::new(10, 0, 0, i).into(), 24)], &[])
                    .into(),
                mac: [2, 0, 0, 0, 0, i],
                seed: [i.wrapping_add(setup.seed); 32],
                tso_max: setup.tso_max,
                ..StackConfig::default()
            };
            // The windows of the hosts are to be no limit.
            config.tcp.rcvbuf_initial = config.tcp.rcvbuf_max;
            config.tcp.sndbuf_initial = config.tcp.sndbuf_max;
            config.tcp.ecn = setup.ecn;
            config.tcp.pacing = setup.pacing;
            config.tcp.timestamps = setup.timestamps;
            Host::new(config, now, Rng::new(&[i; 32]))
        })
        .collect();
    let macs = hosts.iter().map(|host| host.mac).collect();
    let mut network = Network::new(setup.link, Rng::new(&[setup.seed; 32]), macs);
    network.set_params_of(1, setup.back);
    World::new(now, hosts, network, Rng::new(&[8; 32]))
}

fn task(bytes_out: u64, bytes_in: u64) -> Task {
    let (out, back) = (u64::from(bytes_out == 0), u64::from(bytes_out != 0));
    Task::new((out, bytes_out), (back, bytes_in))
}
