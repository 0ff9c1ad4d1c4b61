//! Hosts of several engines: delivery of frames, moves of connections, ends of engines.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use slipstack_stack::{ConnId, Instant, ListenOptions, RxMeta};

use super::delayed::DelayedAction;
use super::{Failure, World};
use crate::host::Host;
use crate::machine::{
    Engine, Flow, FrameSource, KEEPER, Keeper, Machine, Message, Participant, Steering,
};
use crate::network::Arrival;

/// Exceptions of flows that have ended go within this time.
const SWEEP_NS: u64 = 1_000_000_000;

impl World {
    /// A host becomes the keeper of a machine to which engines can be added. `post_ns`: how long
    /// messages take at most.
    pub fn make_machine(&mut self, host: usize, post_ns: u64) -> usize {
        let key = self.rng.next_u64();
        let keeper = &mut self.hosts[host];
        let place = Keeper::new(Steering::new(key), keeper.mac);
        keeper.fx.place = Some(Participant::Keeper(Box::new(place)));
        let machine = Machine::new(keeper.station, host, post_ns);
        self.machines.push(machine);
        self.machines.len() - 1
    }

    /// Another engine of a machine; the index of its host.
    pub fn add_engine(&mut self, machine: usize, mut host: Host) -> usize {
        let index = self.hosts.len();
        host.station = self.machines[machine].station;
        let slot = self.machines[machine].take_slot(index);
        let keeper = self.machines[machine].keeper();
        let mut engine = Engine::new(slot, host.mac);
        if let Some(Participant::Engine(other)) = self.machines[machine]
            .hosts()
            .find_map(|of| self.hosts.get(of)?.fx.place.as_ref().filter(is_engine))
        {
            engine.neighbours.clone_from(&other.neighbours);
        }
        host.fx.place = Some(Participant::Engine(engine));
        self.schedule.add_host();
        self.hosts.push(host);
        self.keeper(keeper).steering.set_dead(slot, false);
        self.publish_engines(machine);
        index
    }

    /// Makes several engines listen on a port and share its connections.
    pub fn share_port(
        &mut self,
        machine: usize,
        port: u16,
        engines: &[usize],
    ) -> Result<(), Failure> {
        for engine in engines {
            if !self.listeners.contains_key(&(*engine, port)) {
                let id = self.listen_with(*engine, port, ListenOptions::default())?;
                self.listeners.insert((*engine, port), id);
            }
        }
        self.spread_port(machine, port);
        Ok(())
    }

    /// Updates the steering to the listeners.
    pub(super) fn spread_port(&mut self, machine: usize, port: u16) {
        let of = &self.machines[machine];
        let slots: Vec<u16> = of
            .hosts()
            .filter(|host| self.listeners.contains_key(&(*host, port)))
            .filter_map(|host| of.slot(host))
            .collect();
        let flows = of.flows_of(port);
        let keeper = of.keeper();
        self.keeper(keeper).steering.share(port, &slots, &flows);
        self.note_moved(machine);
    }

    /// A port for an engine's own connections.
    pub fn lease_port(&mut self, machine: usize, port: u16, engine: usize) {
        let of = &self.machines[machine];
        let (keeper, slot) = (of.keeper(), of.slot(engine).unwrap_or(KEEPER));
        self.keeper(keeper).steering.set_port(port, slot);
    }

    /// The keeper's side of a host that is one.
    pub fn keeper(&mut self, host: usize) -> &mut Keeper {
        match &mut self.hosts[host].fx.place {
            Some(Participant::Keeper(keeper)) => keeper,
            _ => unreachable!("host {host} is no keeper"),
        }
    }

    /// Engines know that ports have changed hands.
    pub(super) fn note_moved(&mut self, machine: usize) {
        let now = self.now;
        for host in self.machines[machine].hosts() {
            if let Some(Participant::Engine(engine)) = &mut self.hosts[host].fx.place {
                engine.moved_at = Some(now);
            }
        }
    }

    pub(super) fn publish_engines(&mut self, machine: usize) {
        let of = &self.machines[machine];
        let slots = of.hosts().filter_map(|host| of.slot(host));
        let slots: Vec<u16> = slots.filter(|slot| *slot != KEEPER).collect();
        let keeper = of.keeper();
        self.keeper(keeper).search.set_engines(slots);
    }

    pub(super) fn machine_of(&self, host: usize) -> Option<usize> {
        self.hosts[host].fx.place.as_ref()?;
        let station = self.hosts[host].station;
        self.machines.iter().position(|it| it.station == station)
    }

    /// The host that a frame comes to: the steering's choice.
    pub(super) fn receiver(&self, arrival: &Arrival) -> usize {
        let of = self.machines.iter().find(|it| it.station == arrival.to);
        let Some(machine) = of else {
            let mut hosts = self.hosts.iter();
            return hosts
                .position(|host| host.station == arrival.to)
                .unwrap_or(arrival.to);
        };
        let keeper = machine.keeper();
        let (Some(Participant::Keeper(place)), Some(flow)) =
            (&self.hosts[keeper].fx.place, Flow::of_frame(&arrival.bytes))
        else {
            return keeper;
        };
        if flow.local.ip() != self.hosts[keeper].ip {
            return keeper;
        }
        machine
            .host(place.steering.find_slot(&flow))
            .unwrap_or(keeper)
    }

    /// Runs the further parts of an engine's or keeper's turn: messages, probes, neighbours.
    pub(super) fn turn_in_machine(&mut self, index: usize) -> Result<(), Failure> {
        let now = self.now;
        for message in self.hosts[index].take_post(now) {
            match message {
                Message::Connection(moving) => self.take_in(index, *moving)?,
                Message::HalfOpen(image, hops) => self.take_half_open(index, &image, hops),
                Message::Frame { .. } => {}
            }
        }
        let station = self.hosts[index].station;
        let machine = self.machines.iter().find(|it| it.station == station);
        let Host { stack, fx, .. } = &mut self.hosts[index];
        let mut held = Vec::new();
        match &mut fx.place {
            Some(Participant::Keeper(keeper)) => {
                keeper.follow_strays(now, |flow| {
                    let machine = machine?;
                    machine.slot(*machine.directory.get(flow)?)
                });
                let probes = keeper.due_probes(now);
                held = keeper.take_held(now);
                for (local, remote) in probes {
                    stack.tcp_probe(now, local, remote, fx);
                }
            }
            Some(Participant::Engine(engine)) => {
                let mut pending = Vec::new();
                stack.pending_neighbours(&mut pending);
                let known: Vec<(IpAddr, [u8; 6])> = pending
                    .iter()
                    .filter_map(|ip| Some((*ip, *engine.neighbours.get(ip)?)))
                    .collect();
                for (ip, mac) in known {
                    stack.on_neighbour(now, ip, mac, fx);
                }
            }
            None => {}
        }
        for segment in held {
            let coming = FrameSource {
                now,
                origin: segment.origin,
                is_astray: true,
                waits: segment.waits,
            };
            let frame = (&segment.frame[..], RxMeta::LOCAL);
            self.hosts[index].take_posted(frame, coming);
        }
        Ok(())
    }

    /// Messages of a turn go on their way.
    pub(super) fn post(&mut self, index: usize) {
        let outbox = std::mem::take(&mut self.hosts[index].fx.outbox);
        let Some(machine) = self.machine_of(index) else {
            return;
        };
        for (slot, message) in outbox {
            let of = &self.machines[machine];
            let to = of.host(slot).unwrap_or(of.keeper());
            let at = self.post_at(machine);
            self.hosts[to].post.push(at, message);
        }
    }

    pub(super) fn post_at(&mut self, machine: usize) -> Instant {
        let most = self.machines[machine].post_ns.max(1);
        self.now.plus_nanos(1 + self.rng.next_u64() % most)
    }

    /// Publishes a neighbour of the keeper's: engines that wait for it use it.
    pub(super) fn publish(&mut self, index: usize, ip: IpAddr, mac: [u8; 6]) {
        let Some(machine) = self.machine_of(index) else {
            return;
        };
        if self.machines[machine].keeper() != index {
            return;
        }
        for host in self.machines[machine].hosts() {
            let host = &mut self.hosts[host];
            if let Some(Participant::Engine(engine)) = &mut host.fx.place {
                engine.neighbours.insert(ip, mac);
                host.turn_at.get_or_insert(self.now);
            }
        }
    }

    /// A flow exists, for the keeper's directory.
    pub(super) fn note_flow(
        &mut self,
        index: usize,
        conn: ConnId,
        (local, remote): (SocketAddr, SocketAddr),
    ) {
        if let Some(machine) = self.machine_of(index) {
            let flow = Flow { local, remote };
            let machine = &mut self.machines[machine];
            machine.directory.insert(flow, index);
            machine.ends.insert((index, conn), flow);
        }
    }

    pub(super) fn forget_flow(&mut self, index: usize, conn: ConnId) {
        let Some(number) = self.machine_of(index) else {
            return;
        };
        let machine = &mut self.machines[number];
        let Some(flow) = machine.ends.remove(&(index, conn)) else {
            return;
        };
        if machine.directory.get(&flow) == Some(&index) {
            machine.directory.remove(&flow);
        }
        let at = self.now.plus_nanos(self.rng.next_u64() % SWEEP_NS);
        self.delayed.add(at, number, DelayedAction::Sweep);
    }

    pub(super) fn run_delayed(&mut self) -> Result<(), Failure> {
        while let Some((number, deed)) = self.delayed.pop(self.now) {
            let keeper = self.machines[number].keeper();
            match deed {
                DelayedAction::Steer(flow) => {
                    let machine = &self.machines[number];
                    let owner = machine.directory.get(&flow);
                    if let Some(slot) = owner.and_then(|host| machine.slot(*host)) {
                        self.keeper(keeper).steering.except(flow, slot);
                    }
                }
                DelayedAction::EngineEnded(host, ending) => {
                    self.on_engine_end(number, host, ending)?
                }
                DelayedAction::Sweep => self.sweep(number),
            }
        }
        Ok(())
    }

    fn sweep(&mut self, number: usize) {
        let machine = &self.machines[number];
        let owners: BTreeMap<Flow, Option<u16>> = machine
            .directory
            .iter()
            .map(|(flow, host)| (*flow, machine.slot(*host)))
            .collect();
        let keeper = machine.keeper();
        let keeper = self.keeper(keeper);
        let Keeper {
            steering,
            flows_of_dead,
            ..
        } = keeper;
        steering.sweep(|flow, slot| {
            owners.get(flow) == Some(&Some(slot))
                || (slot == KEEPER && flows_of_dead.contains(flow))
        });
    }
}

fn is_engine(place: &&Participant) -> bool {
    matches!(place, Participant::Engine(_))
}
