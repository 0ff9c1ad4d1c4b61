//! The keeper's loop: control connections, deaths of clients, its own slot, the standby.
//!
//! The loop sleeps until one of them has work. Every request is answered before the next is read;
//! the journal is written before the answer.

mod choosing;
mod clients;
mod control;
mod departures;
mod endings;
mod exhaustion;
mod inquiries;
mod left_behind;
mod lent;
mod local_ports;
mod mechanisms;
mod passing;
mod pending_inquiries;
mod reopening;
mod requests;
mod routers;
mod share;
mod stalled;
mod stalls;
mod status;
mod trials;
mod wait;

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{OwnedFd, RawFd};

use slipstack_channel::control::{ControlSocket, Viewer};
use slipstack_channel::report::ReportTable;
use slipstack_device::iface::InterfaceWatch;
use slipstack_device::{Device, RxMeta, Steering};
use slipstack_mem::{Descriptor, now_ns};
use tracing::{error, warn};

use crate::error::KeeperError;
use crate::leases::{ClientId, Family};
use crate::net::{Net, Shared};
use crate::notices::Announcer;
use crate::orphans::Orphans;
use crate::random::random_u64;
use crate::resources::Resources;
use crate::slots::open_keeper_slot;
use crate::standby::{Keeper, Side, Standby, split};
use crate::steer::Steer;

/// Most control connections at a time.
const CONNECTIONS_MAX: usize = 2048;
/// Most connections of users who have not been authorised.
const UNAUTHORISED_MAX: usize = 256;
/// Messages of one connection that are served before the next one's.
const MESSAGES_PER_TURN: usize = 16;
/// Time within which a client whose connection is lost may reconnect.
const RETURN_NS: u64 = 3_000_000_000;
/// Time for which the keeper stays after the last client, and for the first one.
const LINGER_NS: u64 = 1_000_000_000;
const FIRST_CLIENT_NS: u64 = 10_000_000_000;
/// Pause after an accept that found no free descriptor.
const ACCEPT_PAUSE_NS: u64 = 100_000_000;
/// Distance of attempts to fork a standby.
const STANDBY_NS: u64 = 1_000_000_000;
/// Interval at which exceptions are compared with the flows that exist.
const SWEEP_NS: u64 = 500_000_000;

/// End of a keeper's loop.
pub enum Ended {
    /// The keeper is no longer needed.
    Finished,
    /// The process is the new standby.
    Standby(Keeper),
    /// The process was asked to end while it is needed: its standby takes over.
    HandedOver,
}

/// One control connection.
struct Connection {
    socket: ControlSocket,
    viewer: Viewer,
    /// May use the device: root, the keeper's user, or by possession.
    is_trusted: bool,
    /// Inherited by children; see `Hello::is_shared`.
    is_shared: bool,
    client: Option<ClientId>,
    /// Whether it gets every change of the network.
    is_watching: bool,
}

impl Connection {
    /// Returns whether somebody uses the device by it; who only asks for the status does not.
    fn is_held(&self) -> bool {
        self.is_shared || self.client.is_some()
    }
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
    time_waits: u64,
    time_waits_refused: u64,
    inherited: u64,
    successions: u64,
    stalls: u64,
}

/// The keeper's own slot of the device.
pub struct OwnSlot {
    device: Box<dyn Device>,
    steering: Steering,
}

impl OwnSlot {
    /// Opens it. One at a time may.
    pub fn open(resources: &Resources) -> Result<OwnSlot, KeeperError> {
        let mut device = open_keeper_slot(&resources.slots, &resources.words)?;
        // A device that has to find its peer does so before the first program sends.
        device.rx(0, &mut |_: &[u8], _: RxMeta| {});
        let shared = resources.slots.steering();
        let mut steering = Steering::from_fds(shared.read_only_fds()?)?;
        if let Some(flows) = shared.chosen_fd()? {
            steering = steering.with_chosen(flows);
        }
        Ok(OwnSlot { device, steering })
    }

    /// In a fork: the device's ring is not mapped there, so it is forgotten and not dropped.
    pub fn leave(self) {
        close_copies(&self.device.descriptors());
        std::mem::forget(self.device);
    }
}

/// A keeper at work.
pub struct Server {
    resources: Resources,
    net: Net,
    steer: Steer,
    standby: Option<Standby>,
    connections: HashMap<u64, Connection>,
    next_connection: u64,
    /// Process descriptors of the clients.
    watches: HashMap<ClientId, OwnedFd>,
    /// Tells of changes of interfaces; `None`: the kernel has no such socket for us.
    links: Option<InterfaceWatch>,
    lost: HashMap<ClientId, Lost>,
    reports: HashMap<ClientId, ReportTable>,
    pending_inquiries: pending_inquiries::PendingInquiries,
    trials: Vec<trials::Trial>,
    announcer: Announcer,
    tally: Tally,
    /// Time at which the last standby was forked.
    standby_at: u64,
    /// Time at which another one is tried for, if there is none.
    standby_due: Option<u64>,
    idle_since: Option<u64>,
    /// Time at which a TAP of the keeper's own was made again last, and when that is tried again.
    remade_at: Option<u64>,
    remake_due: Option<u64>,
    /// No connection is accepted before this time, because there was no free descriptor.
    accept_paused_until: Option<u64>,
    swept_at: u64,
    kernel_flows_swept_at: u64,
    /// Slots of engines that are gone, which are emptied once more at these times.
    vacated: Vec<(u16, u64)>,
    stalls: stalls::Stalls,
    is_stopping: bool,
    exhaustion: exhaustion::Exhaustion,
    lent: lent::AllLent,
}

impl Server {
    /// Starts to serve with resources that are new, or that a former keeper has left.
    pub fn new(
        mut resources: Resources,
        own: OwnSlot,
        standby: Option<Standby>,
        is_successor: bool,
    ) -> Server {
        let OwnSlot { device, steering } = own;
        let now = now_ns();
        if let Some(slaac) = &mut resources.network.slaac {
            slaac.image.clone_from(&resources.state.routers);
        }
        let net = Net::new(
            &resources.network,
            device,
            Some(steering),
            Shared {
                inboxes: resources.inboxes.clone(),
                neighbours: resources.neighbours.clone(),
                records: Orphans::open(resources.orphans.clone()),
                sequence_key: resources.state.sequence_key,
                limits: resources.words.limits(0),
            },
            seed(),
            now,
        );
        let announcer = Announcer::of(&resources.network.state, &resources.neighbours);
        let mut server = Server {
            steer: Steer::with_groups(&resources.state.groups, resources.options.spread.clone()),
            resources,
            net,
            standby_at: now,
            standby_due: standby.is_none().then_some(now + STANDBY_NS),
            standby,
            connections: HashMap::new(),
            next_connection: 0,
            watches: HashMap::new(),
            links: InterfaceWatch::new().ok(),
            lost: HashMap::new(),
            reports: HashMap::new(),
            pending_inquiries: pending_inquiries::PendingInquiries::default(),
            trials: Vec::new(),
            announcer,
            tally: Tally {
                successions: u64::from(is_successor),
                ..Tally::default()
            },
            idle_since: None,
            remade_at: None,
            remake_due: None,
            accept_paused_until: None,
            swept_at: now,
            kernel_flows_swept_at: now,
            vacated: Vec::new(),
            stalls: stalls::Stalls::default(),
            is_stopping: false,
            exhaustion: exhaustion::Exhaustion::default(),
            lent: lent::AllLent::default(),
        };
        if is_successor {
            let mut flows = server.inherit_orphans(now);
            server.inherit_clients(now);
            flows.extend(server.living_flows());
            let steering = server.resources.slots.steering();
            if let Err(error) = server.steer.inherit(steering, &flows) {
                warn!(%error, "not every flow of the former keeper can be steered");
            }
        }
        server.catch_up(is_successor, now);
        server
    }

    /// Catches up with changes made while no keeper listened.
    fn catch_up(&mut self, is_successor: bool, now: u64) {
        self.leave_first_flows();
        self.publish_engines();
        if is_successor {
            self.renew_network(now);
        } else {
            let state = self.resources.network.state.clone();
            self.net.set_filter(&self.resources.state.filter, &state);
            self.resources.save_tables();
        }
        self.follow_link(now);
        self.follow_local_ports(now);
        self.follow_routers(now);
        self.resources.save();
    }

    /// Serves until no keeper is needed, or until this process becomes the standby.
    pub fn run(mut self) -> (Resources, Ended) {
        loop {
            let ready = self.wait();
            let now = now_ns();
            if (ready.standby_died || self.standby_due.is_some_and(|due| due <= now))
                && let Some(keeper) = self.renew_standby(now)
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
                self.end_all_lent();
                return (self.into_standby(), Ended::HandedOver);
            }
            if self.may_finish(now_ns()) {
                return (self.finish(), Ended::Finished);
            }
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
        self.accept_paused_until = self.accept_paused_until.filter(|until| now < *until);
        if self.remake_due.is_some_and(|due| due <= now) {
            self.follow_link(now);
        }
        self.follow_routers(now);
        let lines = self.net.take_filter_log(&self.resources.network.state);
        self.log_filter(&lines);
        self.follow_strays(now);
        self.look_for_stalls(now);
        self.follow_inquiries(now);
        self.follow_trials(now);
        self.follow_notices(now);
        self.empty_vacated(now);
        self.end_lent(now);
        self.settle_handovers();
        if now.saturating_sub(self.swept_at) >= SWEEP_NS {
            self.swept_at = now;
            self.sweep_exceptions(now);
        }
        self.sweep_kernel_flows(now);
        if self.resources.slots.needs_beat() {
            self.resources.slots.beat(now);
        }
    }

    /// Returns whether there are neither clients nor connections to complete. TIME-WAIT alone does
    /// not count: the addresses are removed with the device.
    fn may_finish(&mut self, now: u64) -> bool {
        // A client that only asks for the status does not keep the keeper alive.
        let is_idle = !self.connections.values().any(Connection::is_held)
            && self.resources.state.leases.clients.is_empty()
            && self.is_done();
        if !is_idle || (self.resources.options.is_persistent && !self.is_stopping) {
            self.idle_since = None;
            return false;
        }
        let since = *self.idle_since.get_or_insert(now);
        now.saturating_sub(since) >= self.linger_ns()
    }

    /// Nothing is to be carried out, or nothing can be: the TAP of the keeper's own has been
    /// deleted, and with its last program gone there is nobody to make it again for.
    fn is_done(&self) -> bool {
        let is_idle = self.net.orphans() == 0 && self.net.parked() == 0 && !self.net.has_resets();
        is_idle && self.lent.is_empty() || self.resources.slots.has_lost_own()
    }

    /// Handles SIGTERM or SIGINT. If the keeper is in use, the standby takes over; returns true if
    /// it can. Otherwise this keeper ends as soon as it is no longer needed.
    fn on_end_signal(&mut self) -> bool {
        let mut signal = [0; 128];
        while matches!(rustix::io::read(&self.resources.signals, &mut signal), Ok(n) if n > 0) {}
        self.is_stopping = true;
        !self.may_finish(now_ns()) && self.standby.is_some()
    }

    fn linger_ns(&self) -> u64 {
        match (self.is_stopping, self.resources.state.had_clients) {
            (true, _) => 0,
            (false, true) => LINGER_NS,
            (false, false) => FIRST_CLIENT_NS,
        }
    }

    fn finish(mut self) -> Resources {
        self.resources.journal.finish();
        let _ = rustix::fs::unlink(self.resources.dir.control_socket());
        if let Some(standby) = self.standby.take() {
            standby.dismiss();
        }
        self.resources
    }

    /// Forks a standby if none is left, or tries again later. `Some`: the process is the standby.
    fn renew_standby(&mut self, now: u64) -> Option<Keeper> {
        if let Some(dead) = self.standby.take() {
            dead.reap();
            // The cause of its end may end the next standby too, and the one after it.
            let soonest = self.standby_at + STANDBY_NS;
            if now < soonest {
                self.standby_due = Some(soonest);
                return None;
            }
        }
        self.resources.save();
        self.standby_at = now;
        match split() {
            Ok(Side::Keeper(standby)) => {
                self.standby = Some(standby);
                self.standby_due = None;
                None
            }
            Ok(Side::Standby(keeper)) => Some(keeper),
            Err(error) => {
                if self.standby_due.replace(now + STANDBY_NS).is_none() {
                    error!(%error, "no standby could be forked");
                }
                None
            }
        }
    }

    /// Returns the parts that a fork of the keeper keeps. The clients' connections are closed here,
    /// the keeper has its own copies; the stack's device is forgotten, its ring is not mapped in a
    /// fork.
    fn into_standby(self) -> Resources {
        let Server { resources, net, .. } = self;
        close_copies(&net.device_fds());
        std::mem::forget(net);
        resources
    }

    fn resolve(&mut self, address: IpAddr) -> Option<[u8; 6]> {
        self.net.resolve(address)
    }
}

/// Closes a fork's copies of the descriptors of a device that is forgotten: the device must not
/// outlive its slots.
fn close_copies(numbers: &[RawFd]) {
    for number in numbers {
        if let Some(copy) = Descriptor::new(*number) {
            copy.close();
        }
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
