//! The common start of every family: two or more hosts, a link, and a generator for variations.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use slipstack_stack::rng::Rng;
use slipstack_stack::{
    Congestion, EcnMode, Instant, NetworkState, Role, SocketOptions, Stack, StackConfig,
};

use crate::host::Host;
use crate::link::{LinkParams, Loss, QueueParams, Share};
use crate::network::Network;
use crate::pcap::Recorder;
use crate::program::Task;
use crate::scenario::{Report, rng_of, seed_bytes};
use crate::second_port::{LINK, move_to_second};
use crate::world::{Failure, World};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;
pub const PORT: u16 = 80;
pub const CLIENT_PORT: u16 = 20_000;
/// RFC 8200 5: the minimum MTU of IPv6.
const MTU_MIN_V6: u64 = 1280;
const MTU_MIN_V4: u64 = 600;
/// The last address of the hosts' network.
const ROUTER: u8 = 254;
/// Virtual time that a world may take before it counts as stuck.
pub const LIMIT_NS: u64 = 4 * 3600 * SECOND;

/// A world in the making, then at play.
pub struct Setting {
    pub rng: Rng,
    pub world: World,
    start: Instant,
    pub report: Report,
    /// Every second seed uses IPv6.
    pub is_v6: bool,
    /// The hosts meet on the second of their two interfaces.
    is_on_second_port: bool,
}

impl Setting {
    pub fn new(seed: u64, pcap: Option<PathBuf>, is_on_second_port: bool) -> Result<Self, Failure> {
        let mut rng = rng_of(seed);
        let start = Instant::from_millis(1 + u64::from(rng.below(100_000_000)));
        let is_v6 = seed % 2 == 1;
        let of = |index| (index, is_v6, is_on_second_port);
        let hosts: Vec<Host> = (1..=2).map(|i| host(of(i), &mut rng, start)).collect();
        let params = any_link(&mut rng);
        let mut setting = Self {
            world: world(hosts, params, start, &mut rng),
            rng,
            start,
            report: Report::default(),
            is_v6,
            is_on_second_port,
        };
        if is_on_second_port {
            setting.world.network.set_link(LINK.0);
        }
        if let Some(path) = pcap {
            let recorder = Recorder::create(&path).map_err(|error| {
                setting
                    .world
                    .failure(format!("{}: {error}", path.display()))
            })?;
            setting.world.record(recorder);
        }
        setting.world.turn_delay_ns = if setting.rng.below(2) == 0 {
            setting.rng.next_u64() % 200_000
        } else {
            0
        };
        Ok(setting)
    }

    /// Another host on the link.
    pub fn add_host(&mut self) -> usize {
        let index = self.world.hosts.len() as u8 + 1;
        let of = (index, self.is_v6, self.is_on_second_port);
        let host = host(of, &mut self.rng, self.world.now);
        self.world.add_host(host)
    }

    /// The two hosts again, with other settings; before anything else.
    pub fn configure(&mut self, change: impl Fn(&mut StackConfig)) {
        let now = self.world.now;
        for host in &mut self.world.hosts {
            let mut config = host.stack.config().clone();
            change(&mut config);
            host.stack = Stack::new(config, now);
        }
    }

    /// Host 1 becomes a keeper with so many engines; the machine and their hosts.
    pub fn put_machine(&mut self, engines: u64) -> (usize, Vec<usize>) {
        let mut config = self.world.hosts[1].stack.config().clone();
        config.role = Role::Keeper;
        config.tcp.resets_per_second = 100_000;
        config.sequence_key = Some([self.rng.next_u64(), self.rng.next_u64()]);
        let now = self.world.now;
        self.world.hosts[1].stack = Stack::new(config, now);
        let post_ns = self.between(MS / 100, 2 * MS);
        let machine = self.world.make_machine(1, post_ns);
        let engines = (0..engines).map(|_| self.add_engine(machine)).collect();
        (machine, engines)
    }

    /// Another engine; its host.
    pub fn add_engine(&mut self, machine: usize) -> usize {
        let mut config = self.world.hosts[1].stack.config().clone();
        config.role = Role::Engine;
        config.seed = seed_bytes(&mut self.rng);
        let rng = Rng::new(&seed_bytes(&mut self.rng));
        let host = Host::new(config, self.world.now, rng);
        self.world.add_engine(machine, host)
    }

    pub fn set_link(&mut self, params: LinkParams) {
        self.world.network.set_params(params);
    }

    pub fn link(&self) -> LinkParams {
        *self.world.network.params_of(0)
    }

    /// Adds a router that reports packets that are too big.
    pub fn put_router(&mut self) {
        self.world.network.router = Some(addr(ROUTER, self.is_v6).0);
    }

    /// Returns an MTU for the narrowest link of a path, `most` at most.
    pub fn any_mtu(&mut self, most: u64) -> u32 {
        let least = if self.is_v6 { MTU_MIN_V6 } else { MTU_MIN_V4 };
        self.between(least, most) as u32
    }

    /// Between `low` and `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.rng.next_u64() % (high - low + 1)
    }

    pub fn is_once_in(&mut self, times: u32) -> bool {
        self.rng.below(times) == 0
    }

    /// Tasks of a client that sends `up` and receives `down`, and of its server.
    pub fn tasks(&mut self, up: u64, down: u64) -> (Task, Task) {
        let (a, b) = (self.rng.next_u64(), self.rng.next_u64());
        self.report.bytes += up + down;
        (Task::new((a, up), (b, down)), Task::new((b, down), (a, up)))
    }

    /// The client on host 0 and port `CLIENT_PORT + number`, the server on host 1.
    pub fn connect(&mut self, number: u16, client: Task, server: Task) -> Result<(), Failure> {
        let options = self.options();
        self.connect_with(number, client, server, &options)
    }

    pub fn connect_with(
        &mut self,
        number: u16,
        client: Task,
        server: Task,
        options: &SocketOptions,
    ) -> Result<(), Failure> {
        self.report.connections += 1;
        let (client, server) = ((0, CLIENT_PORT + number, client), (1, PORT, server));
        self.world.connect(client, server, options)
    }

    pub fn options(&mut self) -> SocketOptions {
        SocketOptions {
            no_delay: self.is_once_in(2),
            ..SocketOptions::default()
        }
    }

    pub fn run(&mut self) -> Result<(), Failure> {
        self.world.run(LIMIT_NS)
    }

    pub fn finish(mut self) -> Result<Report, Failure> {
        self.report.virtual_ns = self.world.now.nanos_since(self.start);
        self.world.rest()?;
        self.report.steps = self.world.steps;
        self.report.moved_in = self.world.moved_in;
        Ok(self.report)
    }
}

fn world(hosts: Vec<Host>, params: LinkParams, start: Instant, rng: &mut Rng) -> World {
    let macs = hosts.iter().map(|host| host.mac).collect();
    let network = Network::new(params, Rng::new(&seed_bytes(rng)), macs);
    World::new(start, hosts, network, Rng::new(&seed_bytes(rng)))
}

/// A host's address, with the length of its network's prefix.
fn addr(index: u8, is_v6: bool) -> (IpAddr, u8) {
    if is_v6 {
        let ip = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, index.into());
        return (ip.into(), 64);
    }
    (Ipv4Addr::new(10, 0, 0, index).into(), 24)
}

fn host(
    (index, is_v6, is_on_second_port): (u8, bool, bool),
    rng: &mut Rng,
    start: Instant,
) -> Host {
    let mut config = StackConfig {
        network: NetworkState::of(1500, vec![addr(index, is_v6)], &[]).into(),
        mac: [2, 0, 0, 0, 0, index],
        tso_max: if rng.below(2) == 0 { 65_000 } else { 0 },
        seed: seed_bytes(rng),
        ..StackConfig::default()
    };
    // Bursts of loss, cuts and pauses are longer here than the defaults allow for.
    config.neighbour.probes_max = 200;
    let tcp = &mut config.tcp;
    tcp.syn_retries = 20;
    tcp.synack_retries = 20;
    tcp.retries = 250;
    tcp.orphan_retries = 250;
    tcp.rto_max = Duration::from_secs(10);
    tcp.timestamps = rng.below(4) != 0;
    tcp.sack = rng.below(4) != 0;
    tcp.window_scaling = rng.below(4) != 0;
    tcp.congestion = Congestion::ALL[rng.below(4) as usize];
    tcp.ecn = [EcnMode::Off, EcnMode::Passive, EcnMode::On][rng.below(3) as usize];
    if is_on_second_port {
        move_to_second(&mut config);
    }
    Host::new(config, start, Rng::new(&seed_bytes(rng)))
}

/// From a good link to a bad one: most worlds are about something else than loss.
fn any_link(rng: &mut Rng) -> LinkParams {
    let mut params = LinkParams {
        delay_ns: 10_000 + rng.next_u64() % (40 * MS),
        ..LinkParams::default()
    };
    if rng.below(2) == 0 {
        params.rate = 2_000_000 + rng.next_u64() % 1_000_000_000;
        let product = LinkParams::bandwidth_delay_product(params.rate, 2 * params.delay_ns);
        params.queue = QueueParams {
            bytes_max: (product / 4).max(30_000),
            mark_bytes: if rng.below(2) == 0 { 15_000 } else { 0 },
            ..QueueParams::default()
        };
    }
    let share = Share::ppm(rng.below(20_000));
    match rng.below(4) {
        0 => params.loss = Loss::Random(share),
        1 => params.loss = Loss::bursts_of(1 + rng.below(10), share),
        _ => {}
    }
    if rng.below(4) == 0 {
        params.jitter_ns = rng.next_u64() % (params.delay_ns + 1);
    }
    params
}
