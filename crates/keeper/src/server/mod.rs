//! The keeper's loop: control connections, the deaths of clients, the own slot, the standby.
//!
//! It sleeps until one of them wants something. Every request is answered before the next is read;
//! what it changed is in the journal by then.

mod clients;
mod departures;
mod requests;
mod routers;
mod status;
mod wait;

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use slipstack_channel::control::ControlSocket;
use slipstack_channel::report::ReportTable;
use slipstack_device::iface::LinkWatch;
use slipstack_mem::now_ns;

use crate::error::KeeperError;
use crate::leases::{ClientId, Family};
use crate::log::say;
use crate::net::{Net, Shared};
use crate::orphans::Orphans;
use crate::standby::{Keeper, Side, Standby, split};
use crate::steer::Steer;
use crate::world::{World, open_keeper_slot, random_u64};

/// Most control connections at a time.
const CONNECTIONS_MAX: usize = 2048;
/// Messages of one connection that are served before the next one's.
const MESSAGES_PER_TURN: usize = 16;
/// How long a client whose connection is lost may take to come back.
const RETURN_NS: u64 = 3_000_000_000;
/// How long the keeper stays after the last client, and for the first one.
const LINGER_NS: u64 = 1_000_000_000;
const FIRST_CLIENT_NS: u64 = 10_000_000_000;
/// How often exceptions are compared with the flows that exist.
const SWEEP_NS: u64 = 500_000_000;

/// How a keeper's loop ends.
pub enum Ended {
    /// Nobody needs it any more.
    Finished,
    /// This process is the new standby.
    Standby(Keeper),
    /// This process was asked to end while it is needed: its standby goes on.
    HandedOver,
}

/// One control connection.
struct Connection {
    socket: ControlSocket,
    /// May use the device: root, the keeper's user, or by possession.
    is_trusted: bool,
    /// Inherited by children; see `Hello::is_shared`.
    is_shared: bool,
    client: Option<ClientId>,
}

/// A client whose connection was lost while its process lives.
struct Lost {
    since: u64,
    /// Lost with the former keeper: it stays until its process ends.
    is_inherited: bool,
}

/// Refused messages and other rare things, by cause.
#[derive(Default)]
struct Tally {
    refused: u64,
    malformed: u64,
    crashes: u64,
    resets: u64,
    handovers: u64,
    inherited: u64,
    successions: u64,
}

/// A keeper at work.
pub struct Server {
    world: World,
    net: Net,
    steer: Steer,
    standby: Option<Standby>,
    connections: HashMap<u64, Connection>,
    next_connection: u64,
    /// Process descriptors of the clients.
    watches: HashMap<ClientId, OwnedFd>,
    /// Tells of changes of interfaces; `None`: the kernel has no such socket for us.
    links: Option<LinkWatch>,
    lost: HashMap<ClientId, Lost>,
    reports: HashMap<ClientId, ReportTable>,
    tally: Tally,
    idle_since: Option<u64>,
    swept_at: u64,
    /// Slots of engines that are gone, which are emptied once more then.
    vacated: Vec<(u16, u64)>,
    is_stopping: bool,
}

impl Server {
    /// Starts to serve a world that is new, or that a former keeper left.
    pub fn new(
        world: World,
        standby: Option<Standby>,
        is_successor: bool,
    ) -> Result<Server, KeeperError> {
        let device = open_keeper_slot(&world.slots, &world.words)?;
        let now = now_ns();
        let steering =
            slipstack_device::Steering::from_fds(world.slots.steering().read_only_fds()?)?;
        let mut world = world;
        if let Some(slaac) = &mut world.network.slaac {
            slaac.image.clone_from(&world.state.routers);
        }
        let net = Net::new(
            &world.network,
            device,
            Some(steering),
            Shared {
                inboxes: world.inboxes.clone(),
                neighbours: world.neighbours.clone(),
                records: Orphans::open(world.orphans.clone()),
            },
            seed(),
            now,
        );
        let mut server = Server {
            steer: Steer::with_groups(&world.state.groups),
            world,
            net,
            standby,
            connections: HashMap::new(),
            next_connection: 0,
            watches: HashMap::new(),
            links: LinkWatch::new().ok(),
            lost: HashMap::new(),
            reports: HashMap::new(),
            tally: Tally {
                successions: u64::from(is_successor),
                ..Tally::default()
            },
            idle_since: None,
            swept_at: now,
            vacated: Vec::new(),
            is_stopping: false,
        };
        if is_successor {
            let mut flows = server.inherit_orphans(now);
            server.inherit_clients(now);
            flows.extend(server.living_flows());
            server
                .steer
                .inherit(server.world.slots.steering(), &flows)?;
        }
        server.publish_engines();
        // What changed while nobody listened.
        server.follow_link(now);
        server.follow_routers();
        server.world.save();
        Ok(server)
    }

    /// Serves until nobody needs a keeper, or until this process becomes the standby.
    pub fn run(mut self) -> (World, Ended) {
        loop {
            let ready = self.wait();
            let now = now_ns();
            if ready.standby_died
                && let Some(keeper) = self.renew_standby()
            {
                return (self.into_standby(), Ended::Standby(keeper));
            }
            self.serve_ready(&ready, now);
            // Bounded, so that a flood on the own slot does not starve the control connections.
            for _ in 0..4 {
                if !self.net.turn(now_ns()) {
                    break;
                }
            }
            self.on_time(now_ns());
            if ready.asked_to_end && self.on_end_signal() {
                return (self.into_standby(), Ended::HandedOver);
            }
            if self.may_finish(now_ns()) {
                return (self.finish(), Ended::Finished);
            }
        }
    }

    fn serve_ready(&mut self, ready: &wait::Ready, now: u64) {
        for client in &ready.died {
            self.on_death(*client, now);
        }
        if ready.listener {
            self.accept();
        }
        if ready.links {
            self.links.as_ref().inspect(|links| links.clear());
            self.follow_link(now);
        }
        for token in &ready.connections {
            self.serve_connection(*token, now);
        }
    }

    fn on_time(&mut self, now: u64) {
        let overdue: Vec<ClientId> = self
            .lost
            .iter()
            .filter(|(_, lost)| !lost.is_inherited && now.saturating_sub(lost.since) >= RETURN_NS)
            .map(|(client, _)| *client)
            .collect();
        for client in overdue {
            self.on_death(client, now);
        }
        self.follow_routers();
        self.follow_strays(now);
        self.empty_vacated(now);
        self.settle_estates();
        if now.saturating_sub(self.swept_at) >= SWEEP_NS {
            self.swept_at = now;
            self.sweep_exceptions();
        }
        if self.world.slots.needs_beat() {
            self.world.slots.beat(now);
        }
    }

    /// Nobody is there and nothing is to be carried out. TIME-WAIT alone does not count: with the
    /// device the addresses are gone too.
    fn may_finish(&mut self, now: u64) -> bool {
        // Who only asks for the status holds nothing.
        let is_held = |connection: &Connection| connection.is_shared || connection.client.is_some();
        let is_idle = !self.connections.values().any(is_held)
            && self.world.state.leases.clients.is_empty()
            && self.net.orphans() == 0
            && self.net.parked() == 0
            && !self.net.has_resets();
        if !is_idle || (self.world.options.is_persistent && !self.is_stopping) {
            self.idle_since = None;
            return false;
        }
        let since = *self.idle_since.get_or_insert(now);
        now.saturating_sub(since) >= self.linger_ns()
    }

    /// SIGTERM or SIGINT. In use, the standby takes over; true: it can. Otherwise, and without one, this
    /// keeper ends as soon as nobody needs it.
    fn on_end_signal(&mut self) -> bool {
        let mut signal = [0; 128];
        while matches!(rustix::io::read(&self.world.signals, &mut signal), Ok(n) if n > 0) {}
        self.is_stopping = true;
        !self.may_finish(now_ns()) && self.standby.is_some()
    }

    fn linger_ns(&self) -> u64 {
        match (self.is_stopping, self.world.state.had_clients) {
            (true, _) => 0,
            (false, true) => LINGER_NS,
            (false, false) => FIRST_CLIENT_NS,
        }
    }

    fn finish(mut self) -> World {
        self.world.journal.finish();
        let _ = rustix::fs::unlink(self.world.dir.control_socket());
        if let Some(standby) = self.standby.take() {
            standby.dismiss();
        }
        self.world
    }

    /// The standby has died: forks a new one. `Some`: this is it.
    fn renew_standby(&mut self) -> Option<Keeper> {
        if let Some(dead) = self.standby.take() {
            dead.reap();
        }
        self.world.save();
        match split() {
            Ok(Side::Keeper(standby)) => {
                self.standby = Some(standby);
                None
            }
            Ok(Side::Standby(keeper)) => Some(keeper),
            Err(error) => {
                say(format_args!("no standby could be forked: {error}"));
                None
            }
        }
    }

    /// What a fork of the keeper keeps. The clients' connections are closed here, the keeper has its
    /// own copies; the stack's device is forgotten, its ring is not mapped in a fork.
    fn into_standby(self) -> World {
        let Server { world, net, .. } = self;
        std::mem::forget(net);
        world
    }

    fn resolve(&mut self, address: IpAddr) -> Option<[u8; 6]> {
        self.net.resolve(address)
    }
}

fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    for chunk in seed.chunks_exact_mut(8) {
        chunk.copy_from_slice(&random_u64().to_le_bytes());
    }
    seed
}

/// The family of a process that names none.
fn lone_family() -> Family {
    Family(random_u64())
}
