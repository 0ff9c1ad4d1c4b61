//! Hosts, their programs, the link between them, and time.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use slipstack_stack::rng::Rng;
use slipstack_stack::{ConnId, Event, Instant, ListenOptions, SocketOptions};

use crate::checks;
use crate::host::Host;
use crate::network::Network;
use crate::pcap::Recorder;
use crate::program::{Program, Task};

/// What went wrong, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub at: Instant,
    pub message: String,
}

/// Events that one instant may cause before it counts as an endless loop.
const STEPS_PER_INSTANT_MAX: u32 = 10_000;
/// Long enough for TIME-WAIT, orphans and keep-alive-free silence to end.
const REST: u64 = 400_000_000_000;

#[derive(Debug)]
pub struct World {
    pub now: Instant,
    pub hosts: Vec<Host>,
    pub network: Network,
    rng: Rng,
    programs: BTreeMap<(usize, ConnId), Program>,
    /// Tasks of connections to come, by host, listening port and the peer's port.
    expected: HashMap<(usize, SocketAddr), Task>,
    recorder: Option<Recorder>,
    /// Hosts begin their turn up to this late.
    pub turn_delay_ns: u64,
    instant_steps: u32,
    pub steps: u64,
}

impl World {
    pub fn new(now: Instant, hosts: Vec<Host>, network: Network, rng: Rng) -> Self {
        Self {
            now,
            hosts,
            network,
            rng,
            programs: BTreeMap::new(),
            expected: HashMap::new(),
            recorder: None,
            turn_delay_ns: 0,
            instant_steps: 0,
            steps: 0,
        }
    }

    pub fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    pub fn listen(&mut self, host: usize, port: u16) -> Result<(), Failure> {
        let local = SocketAddr::new(self.hosts[host].ip, port);
        let outcome = self.hosts[host]
            .stack
            .tcp_listen(local, ListenOptions::default());
        outcome
            .map(|_| ())
            .map_err(|error| self.failure(format!("listen: {error}")))
    }

    /// Connects two hosts and gives each side its task.
    pub fn connect(
        &mut self,
        (client, client_port, client_task): (usize, u16, Task),
        (server, server_port, server_task): (usize, u16, Task),
        options: &SocketOptions,
    ) -> Result<(), Failure> {
        let local = SocketAddr::new(self.hosts[client].ip, client_port);
        let remote = SocketAddr::new(self.hosts[server].ip, server_port);
        self.expected.insert((server, local), server_task);
        let now = self.now;
        let Host { stack, fx, .. } = &mut self.hosts[client];
        let conn = stack
            .tcp_connect(now, Some(local), remote, options, fx)
            .map_err(|error| self.failure(format!("connect: {error}")))?;
        self.programs
            .insert((client, conn), Program::new(conn, client_task));
        self.settle(client)
    }

    /// Runs until every program is done, or for `limit_ns` at most.
    pub fn run(&mut self, limit_ns: u64) -> Result<(), Failure> {
        let end = self.now.plus_nanos(limit_ns);
        while !self.is_finished() {
            if !self.step(end)? {
                let waiting: Vec<_> = self.programs.iter().filter(|(_, p)| !p.is_done()).collect();
                return Err(self.failure(format!(
                    "not finished: {} to come, waiting: {waiting:?}",
                    self.expected.len()
                )));
            }
        }
        Ok(())
    }

    /// Lets time pass, whatever happens in it.
    pub fn run_for(&mut self, ns: u64) -> Result<(), Failure> {
        let end = self.now.plus_nanos(ns);
        while self.step(end)? {}
        self.now = end;
        Ok(())
    }

    /// Lets everything that is left run out, and looks whether anything remains.
    pub fn rest(&mut self) -> Result<(), Failure> {
        self.run_for(REST)?;
        checks::at_rest(self).map_err(|why| self.failure(why))
    }

    fn is_finished(&self) -> bool {
        self.expected.is_empty() && self.programs.values().all(Program::is_done)
    }

    /// The next thing that happens before `end`; `false` = nothing does.
    fn step(&mut self, end: Instant) -> Result<bool, Failure> {
        let wakes = (0..self.hosts.len()).filter_map(|host| self.next_wake(host));
        let Some(next) = wakes.chain(self.network.next_arrival()).min() else {
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
            let host = &mut self.hosts[arrival.to];
            host.inbox.push_back((arrival.bytes, arrival.meta));
            host.turn_at.get_or_insert(next.plus_nanos(late));
        }
        for host in 0..self.hosts.len() {
            if self.next_wake(host).is_some_and(|at| at <= next) {
                self.turn(host)?;
            }
        }
        Ok(true)
    }

    fn next_wake(&self, index: usize) -> Option<Instant> {
        let host = &self.hosts[index];
        let programs = self
            .programs
            .iter()
            .filter(|((of, _), _)| *of == index)
            .filter_map(|(_, program)| program.next_wake(host));
        programs
            .chain(host.turn_at)
            .chain(host.stack.next_deadline())
            .min()
    }

    /// One turn of a host: frames, timers, programs, flush, in the order of an engine.
    fn turn(&mut self, index: usize) -> Result<(), Failure> {
        let now = self.now;
        let host = &mut self.hosts[index];
        if host.turn_at.is_some_and(|at| at <= now) {
            host.receive(now);
        }
        host.stack.on_timers(now, &mut host.fx);
        self.settle(index)
    }

    /// Events to programs, programs, flush, frames out, until nothing more comes of it.
    fn settle(&mut self, index: usize) -> Result<(), Failure> {
        for _ in 0..STEPS_PER_INSTANT_MAX {
            self.dispatch(index)?;
            self.run_programs(index)?;
            let now = self.now;
            let host = &mut self.hosts[index];
            host.stack.flush(now, &mut host.fx);
            if let Some(why) = host.fx.violations.first().cloned() {
                return Err(self.failure(format!("host {index}: {why}")));
            }
            let had_local = self.depart(index);
            let host = &self.hosts[index];
            if !had_local && host.fx.events.is_empty() && !host.stack.has_dirty() {
                return Ok(());
            }
        }
        Err(self.failure(format!("host {index} never settles")))
    }

    fn depart(&mut self, index: usize) -> bool {
        let departures = std::mem::take(&mut self.hosts[index].fx.departures);
        let mut had_local = false;
        for departure in departures {
            if let Some(recorder) = &mut self.recorder {
                recorder.record(self.now, &departure.bytes);
            }
            if departure.meta.local {
                had_local = true;
                let host = &mut self.hosts[index];
                host.stack
                    .on_frame(self.now, &departure.bytes, departure.meta, &mut host.fx);
            } else {
                self.network
                    .send(self.now, index, &departure.bytes, departure.meta);
            }
        }
        had_local
    }

    fn dispatch(&mut self, index: usize) -> Result<(), Failure> {
        while let Some(event) = self.hosts[index].fx.events.pop_front() {
            self.on_event(index, event)
                .map_err(|why| self.failure(why))?;
        }
        Ok(())
    }

    fn on_event(&mut self, index: usize, event: Event) -> Result<(), String> {
        let host = &self.hosts[index];
        let programs = &mut self.programs;
        match event {
            Event::Accepted { conn, .. } => {
                let Some((_, remote)) = host.stack.tcp_endpoints(conn) else {
                    return Err(format!("{conn:?} accepted without an address"));
                };
                let Some(task) = self.expected.remove(&(index, remote)) else {
                    return Err(format!("{conn:?} accepted a second time from {remote}"));
                };
                let mut program = Program::new(conn, task);
                program.is_open = true;
                programs.insert((index, conn), program);
            }
            Event::Connected { conn } => {
                let program = programs
                    .get_mut(&(index, conn))
                    .ok_or(format!("{conn:?} connected by nobody"))?;
                program.is_open = true;
            }
            Event::Fin { conn } => {
                let program = programs.get_mut(&(index, conn));
                program
                    .ok_or(format!("{conn:?}: end for nobody"))?
                    .on_fin(host)?;
            }
            Event::Failed { conn, reason } => {
                return Err(format!("host {index}: {conn:?} failed: {reason:?}"));
            }
            Event::Released { conn } => {
                if let Some(program) = programs.get_mut(&(index, conn)) {
                    program.is_released = true;
                }
            }
            Event::Received { .. }
            | Event::Acked { .. }
            | Event::SendLimit { .. }
            | Event::FlowOpened { .. }
            | Event::FlowClosed { .. }
            | Event::Neighbour { .. }
            | Event::UdpFailed { .. } => {}
        }
        Ok(())
    }

    fn run_programs(&mut self, index: usize) -> Result<(), Failure> {
        let conns: Vec<ConnId> = self
            .programs
            .keys()
            .filter(|(of, _)| *of == index)
            .map(|(_, conn)| *conn)
            .collect();
        for conn in conns {
            let (now, host) = (self.now, &mut self.hosts[index]);
            if let Some(program) = self.programs.get_mut(&(index, conn)) {
                let outcome = program.run(now, host, &mut self.rng);
                outcome.map_err(|why| self.failure(format!("host {index}: {conn:?}: {why}")))?;
            }
        }
        Ok(())
    }

    fn failure(&self, message: String) -> Failure {
        Failure {
            at: self.now,
            message,
        }
    }
}
