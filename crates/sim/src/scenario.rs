//! Worlds from seeds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use slipstack_stack::rng::Rng;
use slipstack_stack::{
    Congestion, Counter, EcnMode, Instant, NetworkState, SocketOptions, StackConfig,
};

use crate::host::Host;
use crate::link::{LinkParams, Share};
use crate::network::Network;
use crate::pcap::Recorder;
use crate::program::{Task, WritePattern};
use crate::second_port::{LINK, move_to_second};
use crate::vlan::Tags;
use crate::world::{Failure, World};

const SERVER_PORT: u16 = 80;
/// Virtual time that a world may take before it counts as stuck.
const LIMIT_NS: u64 = 4 * 3600 * 1_000_000_000;

/// Settings with which a seed is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Write every frame to this file.
    pub pcap: Option<PathBuf>,
    /// Hosts send super-frames with partial checksums to each other, as over a TAP; nothing is
    /// corrupted then, because it could not be detected.
    pub offloads: bool,
    /// Frames carry tags of 802.1Q.
    pub tags: Option<Tags>,
    /// The hosts meet on the second of their two interfaces.
    pub is_on_second_port: bool,
}

/// Report of a seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub connections: u32,
    /// Connections that have changed their engine.
    pub moved: u32,
    /// In which of their states, a bit for each.
    pub moved_in: u16,
    pub bytes: u64,
    pub steps: u64,
    pub virtual_ns: u64,
    /// Segments that were taken together with the one before.
    pub merged: u64,
    /// Frames of other VLANs than the hosts'.
    pub foreign: u64,
}

/// Two hosts, one to four connections, a link that loses 5 %, doubles 5 %, reorders 10 % and
/// corrupts 1 %. Everything else (sizes, directions, pace, options, offloads) is the seed's.
pub fn run_seed(seed: u64, options: &Options) -> Result<Report, Failure> {
    let mut rng = rng_of(seed);
    let start = Instant::from_millis(1 + u64::from(rng.below(100_000_000)));
    let mut params = LinkParams::ROUGH;
    params.delay_ns = 10_000 + rng.next_u64() % 20_000_000;
    params.reorder_ns = 1 + rng.next_u64() % (4 * params.delay_ns);
    if rng.below(2) == 0 {
        params.rate = 1_000_000 + rng.next_u64() % 1_000_000_000;
        params.queue.bytes_max = 20_000 + rng.next_u64() % 500_000;
    }
    if options.offloads {
        params.corruption = Share::NEVER;
    }
    let hosts: Vec<Host> = (0..2u8)
        .map(|i| {
            let mut config = config(i, seed % 2 == 1, &mut rng);
            if options.is_on_second_port {
                move_to_second(&mut config);
            }
            let mut host = Host::new(config, start, Rng::new(&seed_bytes(&mut rng)));
            host.fx.leaves_offloads = options.offloads;
            host.fx.refusal = if rng.below(8) == 0 { 100 } else { 0 };
            host
        })
        .collect();
    let macs = hosts.iter().map(|host| host.mac).collect();
    let mut network = Network::new(params, Rng::new(&seed_bytes(&mut rng)), macs);
    if let Some(tags) = options.tags {
        network.tag(tags);
    }
    if options.is_on_second_port {
        network.set_link(LINK.0);
    }
    let mut world = World::new(start, hosts, network, Rng::new(&seed_bytes(&mut rng)));
    world.turn_delay_ns = if rng.below(2) == 0 {
        rng.next_u64() % 200_000
    } else {
        0
    };
    if let Some(path) = &options.pcap {
        let recorder = Recorder::create(path).map_err(|error| Failure {
            at: start,
            message: format!("{}: {error}", path.display()),
        })?;
        world.record(recorder);
    }

    let mut report = Report {
        connections: 1 + rng.below(4),
        ..Report::default()
    };
    world.listen(1, SERVER_PORT)?;
    for i in 0..report.connections {
        let (client, server) = tasks(&mut rng);
        report.bytes += client.bytes_out + server.bytes_out;
        let options = socket_options(&mut rng);
        let client_port = 20_000 + i as u16;
        world.connect((0, client_port, client), (1, SERVER_PORT, server), &options)?;
    }
    world.run(LIMIT_NS)?;
    report.virtual_ns = world.now.nanos_since(start);
    world.rest()?;
    report.steps = world.steps;
    let merged = |host: &Host| host.stack.counters().value(Counter::RxTcpMerged);
    report.merged = world.hosts.iter().map(merged).sum();
    let foreign = |host: &Host| host.stack.counters().value(Counter::DropEthernetVlan);
    report.foreign = world.network.foreign() + world.hosts.iter().map(foreign).sum::<u64>();
    Ok(report)
}

pub(crate) fn rng_of(seed: u64) -> Rng {
    let mut bytes = [0x5e; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    Rng::new(&bytes)
}

pub(crate) fn seed_bytes(rng: &mut Rng) -> [u8; 32] {
    let mut bytes = [0; 32];
    for chunk in bytes.chunks_exact_mut(4) {
        chunk.copy_from_slice(&rng.next_u32().to_le_bytes());
    }
    bytes
}

/// Every second seed uses IPv6.
fn config(index: u8, is_v6: bool, rng: &mut Rng) -> StackConfig {
    let addr = if is_v6 {
        let ip = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(index) + 1);
        (IpAddr::V6(ip), 64)
    } else {
        (IpAddr::V4(Ipv4Addr::new(10, 0, 0, index + 1)), 24)
    };
    let mtu = if rng.below(4) == 0 {
        576 + rng.below(8000) as u16
    } else {
        1500
    };
    let mut config = StackConfig {
        network: NetworkState::of(mtu, vec![addr], &[]).into(),
        mac: [2, 0, 0, 0, 0, index + 1],
        tso_max: if rng.below(2) == 0 { 65_000 } else { 0 },
        seed: seed_bytes(rng),
        ..StackConfig::default()
    };
    // The link loses so much that more probes are needed than on a real one.
    config.neighbour.probes_max = 30;
    let tcp = &mut config.tcp;
    tcp.syn_retries = 20;
    tcp.synack_retries = 20;
    tcp.retries = 250;
    tcp.orphan_retries = 250;
    tcp.fin_wait2 = Duration::from_secs(100_000);
    tcp.rto_max = Duration::from_secs(10);
    tcp.timestamps = rng.below(4) != 0;
    tcp.sack = rng.below(4) != 0;
    tcp.window_scaling = rng.below(4) != 0;
    tcp.congestion = Congestion::ALL[rng.below(4) as usize];
    tcp.pacing = rng.below(4) == 0;
    tcp.ecn = [EcnMode::Off, EcnMode::Passive, EcnMode::On][rng.below(3) as usize];
    config
}

fn socket_options(rng: &mut Rng) -> SocketOptions {
    let mut options = SocketOptions {
        no_delay: rng.below(2) == 0,
        ..SocketOptions::default()
    };
    if rng.below(4) == 0 {
        options.rcvbuf = Some(4_096 + rng.below(100_000));
    }
    if rng.below(4) == 0 {
        options.sndbuf = Some(4_096 + rng.below(100_000));
    }
    if rng.below(8) == 0 {
        options.mss = Some(200 + rng.below(1200) as u16);
    }
    options
}

/// Returns the tasks of client and server of one connection.
fn tasks(rng: &mut Rng) -> (Task, Task) {
    let (key_a, key_b) = (rng.next_u64(), rng.next_u64());
    let mut task = |key_out, key_in, bytes_out, bytes_in, rhythm| {
        let pause_ns_max = match rng.below(8) {
            0 => 3_000_000_000,
            1 | 2 => 20_000_000,
            _ => 0,
        };
        // Long pauses with tiny reads would take a virtual day.
        let chunk_bits_min = if pause_ns_max > 20_000_000 { 7 } else { 0 };
        Task {
            rhythm,
            chunk_max: 1 << (chunk_bits_min + rng.below(17 - chunk_bits_min)),
            pause_ns_max,
            closes_early: rng.below(2) == 0,
            ..Task::new((key_out, bytes_out), (key_in, bytes_in))
        }
    };
    let shape = key_a % 4;
    if shape == 3 {
        let (ask, answer, turns) = (1 + key_a % 1500, 1 + key_b % 6000, 1 + key_b % 20);
        let client = WritePattern::Turns {
            every: answer,
            burst: ask,
            first: true,
        };
        let server = WritePattern::Turns {
            every: ask,
            burst: answer,
            first: false,
        };
        return (
            task(key_a, key_b, ask * turns, answer * turns, client),
            task(key_b, key_a, answer * turns, ask * turns, server),
        );
    }
    let up = if shape == 1 { 0 } else { size(key_a) };
    let down = if shape == 2 { 0 } else { size(key_b) };
    (
        task(key_a, key_b, up, down, WritePattern::Free),
        task(key_b, key_a, down, up, WritePattern::Free),
    )
}

/// From nothing to 128 KiB, small ones as likely as large ones.
fn size(key: u64) -> u64 {
    let bits = (key >> 8) % 18;
    (key >> 16) & ((1 << bits) - 1)
}
