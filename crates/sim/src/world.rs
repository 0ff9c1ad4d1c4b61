//! Hosts, their programs, the link between them, and time.

mod delayed;
mod leaving;
mod machines;
mod moving;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use slipstack_stack::rng::Rng;
use slipstack_stack::{
    CloseMode, ConnId, Event, Instant, ListenOptions, ListenerId, SocketOptions,
};

use crate::balance;
use crate::checks;
use crate::host::Host;
use crate::machine::Machine;
use crate::network::Network;
use crate::pcap::Recorder;
use crate::program::{Program, Task};
use crate::schedule::Schedule;
use crate::watch::Watch;

use delayed::DelayedActions;
pub use delayed::Ending;
pub use moving::Way;

/// A failure, and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub at: Instant,
    pub message: String,
}

/// Events that one instant may cause before it counts as an endless loop.
const STEPS_PER_INSTANT_MAX: u32 = 10_000;
/// Long enough for TIME-WAIT, orphans and keep-alive-free silence to end.
const REST: u64 = 400_000_000_000;
/// Looking at every connection costs time: with many, only at one step in so many.
const AUDIT_EVERY: u64 = 64;
const AUDIT_ALWAYS_UPTO: usize = 4;

#[derive(Debug)]
pub struct World {
    pub now: Instant,
    pub hosts: Vec<Host>,
    pub network: Network,
    rng: Rng,
    programs: BTreeMap<(usize, ConnId), Program>,
    schedule: Schedule,
    unfinished: usize,
    /// Hosts of several engines, and pending actions of their keepers.
    pub machines: Vec<Machine>,
    delayed: DelayedActions,
    /// Engines that listen, and on which ports.
    listeners: BTreeMap<(usize, u16), ListenerId>,
    /// Phases in which connections have moved, a bit for each of [`slipstack_stack::SocketState`].
    pub moved_in: u16,
    /// Tasks of connections to come, by station and the peer's address.
    expected: HashMap<(usize, SocketAddr), Task>,
    /// Tasks of connections that the peer may never see opened: no reason to wait for them.
    pub waits_for_accepts: bool,
    recorder: Option<Recorder>,
    watch: Watch,
    /// Which connection of which host has these ends, its own first.
    flows: HashMap<(SocketAddr, SocketAddr), (usize, ConnId)>,
    /// Hosts begin their turn up to this late.
    pub turn_delay_ns: u64,
    instant_steps: u32,
    pub steps: u64,
    /// Connections that died.
    pub failures: u32,
    /// Frames to hosts that are gone.
    pub unheard: u64,
}

impl World {
    pub fn new(now: Instant, mut hosts: Vec<Host>, network: Network, rng: Rng) -> Self {
        let schedule = Schedule::new(hosts.len());
        for (station, host) in hosts.iter_mut().enumerate() {
            host.station = station;
        }
        Self {
            now,
            hosts,
            network,
            rng,
            programs: BTreeMap::new(),
            schedule,
            unfinished: 0,
            machines: Vec::new(),
            delayed: DelayedActions::default(),
            listeners: BTreeMap::new(),
            moved_in: 0,
            expected: HashMap::new(),
            waits_for_accepts: true,
            recorder: None,
            watch: Watch::default(),
            flows: HashMap::new(),
            turn_delay_ns: 0,
            instant_steps: 0,
            steps: 0,
            failures: 0,
            unheard: 0,
        }
    }

    /// Another host on the link; its index.
    pub fn add_host(&mut self, mut host: Host) -> usize {
        host.station = self.network.add_host(host.mac);
        self.schedule.add_host();
        self.hosts.push(host);
        self.hosts.len() - 1
    }

    pub fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    pub fn listen(&mut self, host: usize, port: u16) -> Result<ListenerId, Failure> {
        self.listen_with(host, port, ListenOptions::default())
    }

    pub fn listen_with(
        &mut self,
        host: usize,
        port: u16,
        options: ListenOptions,
    ) -> Result<ListenerId, Failure> {
        let local = SocketAddr::new(self.hosts[host].ip, port);
        let outcome = self.hosts[host].stack.tcp_listen(local, options);
        outcome.map_err(|error| self.failure(format!("listen: {error}")))
    }

    /// Connects two hosts and gives each side its task.
    pub fn connect(
        &mut self,
        (client, client_port, client_task): (usize, u16, Task),
        (server, server_port, server_task): (usize, u16, Task),
        options: &SocketOptions,
    ) -> Result<(), Failure> {
        let local = SocketAddr::new(self.hosts[client].ip, client_port);
        let station = self.hosts[server].station;
        self.expected.insert((station, local), server_task);
        self.open(
            (client, client_port, client_task),
            (server, server_port),
            options,
        )
    }

    /// An active open to a host that may not exist.
    pub fn open(
        &mut self,
        (client, client_port, task): (usize, u16, Task),
        (server, server_port): (usize, u16),
        options: &SocketOptions,
    ) -> Result<(), Failure> {
        let local = SocketAddr::new(self.hosts[client].ip, client_port);
        let remote = SocketAddr::new(self.hosts[server].ip, server_port);
        let at = self.hosts[client].clock(self.now);
        let Host { stack, fx, .. } = &mut self.hosts[client];
        let conn = stack
            .tcp_connect(at, Some(local), remote, options, fx)
            .map_err(|error| self.failure(format!("connect: {error}")))?;
        self.adopt(client, Program::new(conn, task));
        self.settle(client)
    }

    fn adopt(&mut self, host: usize, program: Program) {
        let conn = program.conn;
        if let Some(ends) = self.hosts[host].stack.tcp_endpoints(conn) {
            self.flows.insert(ends, (host, conn));
        }
        self.schedule.wake(host, conn);
        self.programs.insert((host, conn), program);
        self.unfinished += 1;
    }

    /// Runs until every program is done, or for `limit_ns` at most.
    pub fn run(&mut self, limit_ns: u64) -> Result<(), Failure> {
        let end = self.now.plus_nanos(limit_ns);
        while !self.is_finished() {
            if !self.step(end)? {
                let waiting: Vec<_> = self
                    .programs
                    .iter()
                    .filter(|(_, p)| !p.is_done())
                    .take(5)
                    .collect();
                return Err(self.failure(format!(
                    "not finished: {} to come, {} waiting: {waiting:?}",
                    self.expected.len(),
                    self.unfinished,
                )));
            }
        }
        Ok(())
    }

    /// Lets time pass, with all events in it.
    pub fn run_for(&mut self, ns: u64) -> Result<(), Failure> {
        let end = self.now.plus_nanos(ns);
        while self.step(end)? {}
        self.now = end;
        Ok(())
    }

    /// Lets everything that is left run out, and looks whether anything remains.
    pub fn rest(&mut self) -> Result<(), Failure> {
        let before = self.steps;
        self.run_for(REST)?;
        checks::is_quiet(self, self.steps - before).map_err(|why| self.failure(why))?;
        checks::at_rest(self).map_err(|why| self.failure(why))
    }

    /// Removes a host with its programs: it sends nothing any more.
    pub fn vanish(&mut self, host: usize) {
        self.hosts[host].is_gone = true;
        let programs = &mut self.programs;
        programs.retain(|(of, _), program| {
            let stays = *of != host;
            self.unfinished -= usize::from(!stays && !program.is_done());
            stays
        });
        let station = self.hosts[host].station;
        self.expected.retain(|(of, _), _| *of != station);
    }

    /// Makes the NAT forget its mappings: frames no longer show which hosts communicate.
    pub fn rebind_nat(&mut self) {
        self.network.rebind_nat();
        self.watch.is_blind_to_peers = true;
    }

    pub fn is_finished(&self) -> bool {
        (self.expected.is_empty() || !self.waits_for_accepts) && self.unfinished == 0
    }

    /// Programs that were given a connection.
    pub fn programs_len(&self) -> usize {
        self.programs.len()
    }

    /// The next thing that happens before `end`; `false` = nothing does.
    fn step(&mut self, end: Instant) -> Result<bool, Failure> {
        let wakes = (0..self.hosts.len()).filter_map(|host| self.next_wake(host));
        let others = [self.network.next_arrival(), self.delayed.next_due()];
        let Some(next) = wakes.chain(others.into_iter().flatten()).min() else {
            return Ok(false);
        };
        let next = next.max(self.now);
        if next > end {
            return Ok(false);
        }
        self.steps += 1;
        self.instant_steps = if next == self.now {
            self.instant_steps + 1
        } else {
            0
        };
        self.now = next;
        if self.instant_steps > STEPS_PER_INSTANT_MAX {
            return Err(self.failure("time stands still".into()));
        }
        while let Some(arrival) = self.network.pop_arrival(next) {
            let late = self.rng.next_u64() % self.turn_delay_ns.max(1);
            let to = self.receiver(&arrival);
            let host = &mut self.hosts[to];
            if host.is_gone && host.fx.place.is_none() {
                self.unheard += 1;
            } else {
                host.push(arrival.bytes, arrival.meta);
                host.turn_at.get_or_insert(next.plus_nanos(late));
            }
        }
        self.run_delayed()?;
        for host in 0..self.hosts.len() {
            if self.next_wake(host).is_some_and(|at| at <= next) {
                self.turn(host)?;
            }
        }
        Ok(true)
    }

    fn next_wake(&self, index: usize) -> Option<Instant> {
        let host = &self.hosts[index];
        if host.is_gone {
            return None;
        }
        let nap = self.schedule.next_nap(index);
        let posted = [host.post.next_due(), host.keeper_deadline()];
        let wakes = [nap, host.turn_at, host.next_deadline()];
        let next = wakes.into_iter().chain(posted).flatten().min()?;
        Some(next.max(host.paused_until))
    }

    /// One turn of a host: frames, timers, programs, flush, in the order of an engine.
    fn turn(&mut self, index: usize) -> Result<(), Failure> {
        let now = self.now;
        let host = &mut self.hosts[index];
        if host.turn_at.is_some_and(|at| at <= now) {
            host.receive(now);
        }
        if host.fx.place.is_some() {
            self.turn_in_machine(index)?;
        }
        let host = &mut self.hosts[index];
        let at = host.clock(now);
        host.stack.on_timers(at, &mut host.fx);
        self.schedule.wake_sleepers(index, now);
        self.settle(index)?;
        let host = &self.hosts[index];
        balance::of_host(host).map_err(|why| self.failure(format!("host {index}: {why}")))?;
        if self.steps.is_multiple_of(AUDIT_EVERY) {
            checks::frames(self).map_err(|why| self.failure(why))?;
        }
        if host.stack.tcp_sizes().connections <= AUDIT_ALWAYS_UPTO
            || self.steps.is_multiple_of(AUDIT_EVERY)
        {
            checks::invariants(host).map_err(|why| self.failure(format!("host {index}: {why}")))?;
        }
        Ok(())
    }

    /// Events to programs, programs, flush, frames out, until nothing more comes of it.
    fn settle(&mut self, index: usize) -> Result<(), Failure> {
        for _ in 0..STEPS_PER_INSTANT_MAX {
            self.dispatch(index)?;
            self.run_programs(index)?;
            let host = &mut self.hosts[index];
            let at = host.clock(self.now);
            host.stack.flush(at, &mut host.fx);
            self.add_context(index)?;
            let had_local = self.depart(index)?;
            self.post(index);
            let host = &self.hosts[index];
            if !had_local && host.fx.events.is_empty() && !host.stack.has_dirty() {
                return Ok(());
            }
        }
        Err(self.failure(format!("host {index} never settles")))
    }

    fn depart(&mut self, index: usize) -> Result<bool, Failure> {
        let aborted = std::mem::take(&mut self.hosts[index].fx.aborted);
        let mut aborted = aborted.into_iter().peekable();
        let departures = std::mem::take(&mut self.hosts[index].fx.departures);
        let mut had_local = false;
        for (number, departure) in departures.into_iter().enumerate() {
            while let Some(abort) = aborted.next_if(|abort| abort.before == number) {
                self.watch.on_abort(abort.local, abort.remote);
            }
            if let Some(recorder) = &mut self.recorder {
                recorder.record(self.now, &departure.bytes);
            }
            self.watch
                .on_frame(&departure.bytes)
                .map_err(|why| self.failure(format!("host {index}: {why}")))?;
            if departure.meta.local {
                had_local = true;
                let host = &mut self.hosts[index];
                host.looped += 1;
                let at = host.clock(self.now);
                host.stack
                    .on_frame(at, &departure.bytes, departure.meta, &mut host.fx);
            } else {
                let station = self.hosts[index].station;
                self.network
                    .send(self.now, station, &departure.bytes, departure.meta);
            }
        }
        for abort in aborted {
            self.watch.on_abort(abort.local, abort.remote);
        }
        Ok(had_local)
    }

    /// The first thing that the stack did and may not do.
    fn add_context(&self, index: usize) -> Result<(), Failure> {
        match self.hosts[index].fx.violations.first() {
            Some(why) => Err(self.failure(format!("host {index}: {why}"))),
            None => Ok(()),
        }
    }

    fn dispatch(&mut self, index: usize) -> Result<(), Failure> {
        self.add_context(index)?;
        while let Some(event) = self.hosts[index].fx.events.pop_front() {
            self.on_event(index, event)
                .map_err(|why| self.failure(format!("host {index}: {why}")))?;
        }
        Ok(())
    }

    fn on_event(&mut self, index: usize, event: Event) -> Result<(), String> {
        match event {
            Event::Accepted { listener, conn, .. } => self.on_accepted(index, listener, conn)?,
            Event::Connected { conn } => self.program(index, conn)?.is_open = true,
            Event::Fin { conn } => {
                let host = &self.hosts[index];
                let program = self.programs.get_mut(&(index, conn));
                program
                    .ok_or(format!("{conn:?}: end for nobody"))?
                    .on_fin(host)?;
                self.schedule.wake(index, conn);
            }
            Event::Failed { conn, reason } => {
                self.program(index, conn)?.on_failed(reason)?;
                self.failures += 1;
            }
            Event::Released { conn } => {
                self.forget_flow(index, conn);
                if let Some(program) = self.programs.get_mut(&(index, conn)) {
                    program.is_released = true;
                    self.unfinished -= usize::from(program.is_done());
                }
            }
            Event::Acked { conn, upto } => {
                self.check_received(index, conn, upto)?;
                self.schedule.wake(index, conn);
            }
            Event::Received { conn, .. } | Event::SendLimit { conn, .. } => {
                self.schedule.wake(index, conn)
            }
            Event::FlowOpened {
                conn,
                local,
                remote,
            } => self.note_flow(index, conn, (local, remote)),
            Event::Neighbour { ip, mac } => self.publish(index, ip, mac),
            Event::Opening { .. }
            | Event::Urgent { .. }
            | Event::Conflict { .. }
            | Event::UdpFailed { .. } => {}
        }
        Ok(())
    }

    /// Checks that acknowledged bytes have come to the peer's program, or wait for it.
    fn check_received(&self, index: usize, conn: ConnId, upto: u64) -> Result<(), String> {
        let ends = self.hosts[index].stack.tcp_endpoints(conn);
        let peer = ends.and_then(|(local, remote)| self.flows.get(&(remote, local)));
        let Some((of, other)) = peer.filter(|_| !self.watch.is_blind_to_peers) else {
            return Ok(());
        };
        let streams = self.hosts[*of].fx.streams.get(other);
        let has = streams.map_or(0, |streams| match streams.available() >= upto {
            true => upto,
            false => streams.contiguous(),
        });
        match has >= upto {
            true => Ok(()),
            false => Err(format!("{upto} acknowledged, {has} received by {other:?}")),
        }
    }

    /// The program of a connection, which is to run.
    fn program(&mut self, index: usize, conn: ConnId) -> Result<&mut Program, String> {
        self.schedule.wake(index, conn);
        let program = self.programs.get_mut(&(index, conn));
        program.ok_or(format!("{conn:?} has no program"))
    }

    fn on_accepted(
        &mut self,
        index: usize,
        listener: ListenerId,
        conn: ConnId,
    ) -> Result<(), String> {
        let host = &mut self.hosts[index];
        let Some((local, remote)) = host.stack.tcp_endpoints(conn) else {
            return Err(format!("{conn:?} accepted without an address"));
        };
        host.on_accepted(listener);
        let station = host.station;
        self.note_flow(index, conn, (local, remote));
        let task = match self.expected.remove(&(station, remote)) {
            Some(task) => task,
            None if self.waits_for_accepts => {
                return Err(format!("{conn:?} accepted a second time from {remote}"));
            }
            // A handshake that a NAT has given another port: there is no program at the other end.
            None => Task {
                gives_up: Some((self.now, CloseMode::Abort)),
                may_fail: true,
                ..Task::new((0, 0), (0, 0))
            },
        };
        let mut program = Program::new(conn, task);
        program.is_open = true;
        self.adopt(index, program);
        Ok(())
    }

    fn run_programs(&mut self, index: usize) -> Result<(), Failure> {
        while let Some(conn) = self.schedule.pop_awake(index) {
            let (now, host) = (self.now, &mut self.hosts[index]);
            let Some(program) = self.programs.get_mut(&(index, conn)) else {
                continue;
            };
            let was_done = program.is_done();
            let outcome = program.run(now, host, &mut self.rng);
            self.unfinished -= usize::from(!was_done && program.is_done());
            if let Some(at) = program.next_wake(host) {
                self.schedule.sleep(index, conn, at.max(now.plus_nanos(1)));
            }
            outcome.map_err(|why| self.failure(format!("host {index}: {conn:?}: {why}")))?;
        }
        Ok(())
    }

    pub fn failure(&self, message: String) -> Failure {
        Failure {
            at: self.now,
            message,
        }
    }
}
