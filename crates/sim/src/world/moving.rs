//! Connections that change their engine, and engines that end, in order or killed.

use std::net::SocketAddr;

use slipstack_stack::{ConnId, Reason, RxMeta};

use super::delayed::{DelayedAction, Ending};
use super::{Failure, World};
use crate::machine::{Flow, KEEPER, Message};
use crate::moving_connection::MovingConnection;
use crate::program::Program;

/// After the flows of the dead have been forgotten.
const DEATH_NOTICED_NS: u64 = 1_300_000_000;

/// Way in which a connection changes its engine.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Until it is adopted.
    pub takes_ns: u64,
    /// Until the steering knows.
    pub steered_after_ns: u64,
    /// Ranges received out of order are left behind: the peer sends them again.
    pub drops_ranges: bool,
}

impl World {
    /// Connections of a machine's engines that have a program, or had one.
    pub fn connections_of(&self, machine: usize) -> Vec<(usize, ConnId)> {
        let ends = self.machines[machine].ends.keys();
        ends.filter(|of| self.programs.contains_key(of))
            .copied()
            .collect()
    }

    /// Moves a connection to another engine of its machine. `false`: it cannot move now.
    pub fn transfer(&mut self, (from, conn): (usize, ConnId), to: usize, way: Way) -> bool {
        let Some(number) = self.machine_of(from) else {
            return false;
        };
        let Some((flow, moving)) = self.detach((from, conn), way.drops_ranges) else {
            return false;
        };
        let keeper = self.machines[number].keeper();
        let now = self.now;
        let port = flow.local.port();
        self.keeper(keeper).search.note_moving(port, now);
        self.note_moved(number);
        self.send_connection(number, (flow, moving), to, way.takes_ns);
        let steered_at = now.plus_nanos(way.steered_after_ns);
        self.delayed
            .add(steered_at, number, DelayedAction::Steer(flow));
        true
    }

    fn send_connection(
        &mut self,
        number: usize,
        (flow, moving): (Flow, MovingConnection),
        to: usize,
        takes_ns: u64,
    ) {
        self.machines[number].directory.insert(flow, to);
        let at = self.now.plus_nanos(takes_ns);
        let message = Message::Connection(Box::new(moving));
        self.hosts[to].post.push(at, message);
    }

    /// Takes a connection out of its engine, with its program and rings.
    fn detach(
        &mut self,
        place: (usize, ConnId),
        drops_ranges: bool,
    ) -> Option<(Flow, MovingConnection)> {
        let (from, conn) = place;
        let number = self.machine_of(from)?;
        let host = &mut self.hosts[from];
        let (local, remote) = host.stack.tcp_endpoints(conn)?;
        let phase = host.stack.tcp_info(self.now, conn)?.state;
        self.programs.get(&place)?;
        let mut image = host.stack.tcp_detach(conn)?;
        let mut streams = host.fx.leave(conn);
        if drops_ranges {
            image = image.without_ranges();
            streams.forget_ahead();
        }
        let program = self.programs.remove(&place)?;
        self.flows.remove(&(local, remote));
        self.moved_in |= 1 << phase as u8;
        let machine = &mut self.machines[number];
        machine.detached += 1;
        machine.ends.remove(&place);
        let moving = MovingConnection {
            image,
            program,
            streams,
        };
        Some((Flow { local, remote }, moving))
    }

    /// A connection has arrived at an engine, or at the keeper.
    pub(super) fn take_in(
        &mut self,
        index: usize,
        moving: MovingConnection,
    ) -> Result<(), Failure> {
        let MovingConnection {
            image,
            mut program,
            streams,
        } = moving;
        let now = self.now;
        let host = &mut self.hosts[index];
        let at = host.clock(now);
        let outcome = host.stack.tcp_adopt(at, &image, &mut host.fx);
        let (Ok(conn), Some(ends)) = (outcome, image.endpoints()) else {
            return Err(self.failure(format!("host {index}: not adopted: {outcome:?}")));
        };
        host.fx.streams.insert(conn, streams);
        program.conn = conn;
        let closed = match program.has_closed {
            true => host.close(now, conn, slipstack_stack::CloseMode::Orderly),
            false => Ok(()),
        };
        self.flows.insert(ends, (index, conn));
        self.programs.insert((index, conn), program);
        self.schedule.wake(index, conn);
        self.note_flow(index, conn, ends);
        if let Some(number) = self.machine_of(index) {
            self.machines[number].adopted += 1;
        }
        closed.map_err(|why| self.failure(format!("host {index}: {conn:?}: {why}")))
    }

    /// Ends an engine; its keeper notices `notice_ns` later.
    pub fn end_engine(
        &mut self,
        index: usize,
        ending: Ending,
        notice_ns: u64,
    ) -> Result<(), Failure> {
        let Some(number) = self.machine_of(index) else {
            return Ok(());
        };
        if ending != Ending::Crash {
            self.hand_over(number, index)?;
        }
        if ending == Ending::Orderly {
            self.pass_on_time_waits(number, index);
        }
        if ending == Ending::Interrupted {
            self.lose_handovers(number, index);
        }
        self.hosts[index].is_gone = true;
        let machine = &self.machines[number];
        let is_handed_over = |flow: &Flow| {
            let mut handovers = machine.handovers.iter();
            let ends = Some((flow.local, flow.remote));
            handovers.any(|(_, moving)| moving.image.endpoints() == ends)
        };
        let left = machine.directory.iter();
        for (flow, _) in left.filter(|(flow, host)| **host == index && !is_handed_over(flow)) {
            self.watch.on_death(flow.local, flow.remote);
            self.flows.remove(&(flow.local, flow.remote));
        }
        let programs = &mut self.programs;
        programs.retain(|(of, _), program| {
            let stays = *of != index;
            self.unfinished -= usize::from(!stays && !program.is_done());
            stays
        });
        let at = self.now.plus_nanos(notice_ns);
        self.delayed
            .add(at, number, DelayedAction::EngineEnded(index, ending));
        Ok(())
    }

    /// Drops the hand-over of an engine: its connections are those of a dead program.
    fn lose_handovers(&mut self, number: usize, index: usize) {
        let machine = &mut self.machines[number];
        let is_lost = |(of, _): &mut (usize, MovingConnection)| *of == index;
        for (_, moving) in machine.handovers.extract_if(.., is_lost) {
            machine.detached -= 1;
            self.unfinished -= usize::from(!moving.program.is_done());
        }
    }

    /// Closes everything and hands the rest to the keeper.
    fn hand_over(&mut self, number: usize, index: usize) -> Result<(), Failure> {
        let all = self.connections_of(number);
        let ours: Vec<_> = all.into_iter().filter(|(of, _)| *of == index).collect();
        for place in &ours {
            let (now, host) = (self.now, &mut self.hosts[index]);
            if let Some(program) = self.programs.get_mut(place) {
                let outcome = program.leave(now, host);
                self.unfinished -= usize::from(program.is_done());
                outcome.map_err(|why| self.failure(format!("host {index}: {why}")))?;
            }
        }
        self.settle(index)?;
        for place in ours {
            let streams = self.hosts[index].fx.streams.get(&place.1);
            let written = streams.map_or(0, |streams| streams.written());
            if let Some((flow, moving)) = self.detach(place, false) {
                self.expect_of_peer((flow.remote, flow.local), written);
                // The directory has it until the keeper does.
                self.machines[number].handovers.push((index, moving));
            }
        }
        Ok(())
    }

    /// Passes TIME-WAIT entries to the keeper, so that their peers are never reset.
    fn pass_on_time_waits(&mut self, number: usize, index: usize) {
        let host = &self.hosts[index];
        let images = host.stack.tcp_time_waits(host.clock(self.now), usize::MAX);
        for image in images {
            self.watch.on_time_wait(image.local, image.remote);
            self.machines[number].time_waits.push((index, image));
        }
    }

    /// Takes back TIME-WAIT entries. Entries that others have used since are refused.
    fn take_time_waits(&mut self, number: usize, index: usize) {
        let keeper = self.machines[number].keeper();
        let time_waits = &mut self.machines[number].time_waits;
        let ours: Vec<_> = time_waits.extract_if(.., |(of, _)| *of == index).collect();
        let host = &mut self.hosts[keeper];
        let at = host.clock(self.now);
        for (_, image) in ours {
            let adopted = host.stack.tcp_adopt_time_wait(at, &image);
            self.machines[number].former += u64::from(adopted.is_ok());
        }
    }

    /// Expects the peer to get all that a program has written, and no more.
    pub fn expect_of_peer(&mut self, ends: (SocketAddr, SocketAddr), written: u64) {
        let peer = self.flows.get(&ends);
        if let Some(program) = peer.and_then(|peer| self.programs.get_mut(peer)) {
            program.expect(written);
        }
    }

    /// Informs the keeper that an engine is gone: the keys of its flows, and the frames that are
    /// left in its slot.
    pub(super) fn on_engine_end(
        &mut self,
        number: usize,
        index: usize,
        ending: Ending,
    ) -> Result<(), Failure> {
        let now = self.now;
        let keeper = self.machines[number].keeper();
        let handovers = std::mem::take(&mut self.machines[number].handovers);
        let (ours, others) = handovers.into_iter().partition(|(of, _)| *of == index);
        self.machines[number].handovers = others;
        let ours: Vec<(usize, MovingConnection)> = ours;
        for (_, moving) in ours {
            self.take_in(keeper, moving)?;
        }
        self.take_time_waits(number, index);
        let machine = &mut self.machines[number];
        let Some(slot) = machine.slot(index) else {
            return Ok(());
        };
        machine.slots[usize::from(slot)] = None;
        let of = |owner: usize| -> Vec<Flow> {
            let all = machine.directory.iter();
            all.filter(|(_, host)| **host == owner)
                .map(|(flow, _)| *flow)
                .collect()
        };
        let (flows_of_dead, carried) = (of(index), of(keeper));
        machine.directory.retain(|_, host| *host != index);
        machine.ends.retain(|(of, _), _| *of != index);
        for flow in &flows_of_dead {
            let stack = &mut self.hosts[keeper].stack;
            stack.tcp_forget_time_wait(flow.local, flow.remote);
        }
        let place = self.keeper(keeper);
        place.steering.set_dead(slot, true);
        for flow in flows_of_dead.iter().chain(&carried) {
            place.steering.except(*flow, KEEPER);
        }
        place.reset(flows_of_dead, now);
        self.publish_engines(number);
        self.forget_listeners(number, index, ending);
        self.move_frames_to_keeper(number, index);
        let noticed = now.plus_nanos(DEATH_NOTICED_NS);
        self.delayed.add(noticed, number, DelayedAction::Sweep);
        self.hosts[keeper].turn_at.get_or_insert(now);
        Ok(())
    }

    fn forget_listeners(&mut self, number: usize, index: usize, ending: Ending) {
        let (now, keeper) = (self.now, self.machines[number].keeper());
        let ours = self.listeners.keys().filter(|(of, _)| *of == index);
        let ports: Vec<u16> = ours.map(|(_, port)| *port).collect();
        self.listeners.retain(|(of, _), _| *of != index);
        for port in ports {
            if ending == Ending::Orderly {
                self.keeper(keeper).search.note_moving(port, now);
            }
            self.spread_port(number, port);
        }
    }

    /// Moves the frames in the queue and the inbox of an engine that is gone to the keeper.
    fn move_frames_to_keeper(&mut self, number: usize, index: usize) {
        let mut left: Vec<(Vec<u8>, RxMeta)> = Vec::new();
        let host = &mut self.hosts[index];
        left.extend(host.inbox.drain(..));
        while let Some(message) = host.post.pop(slipstack_stack::Instant::FAR_FUTURE) {
            if let Message::Frame { frame, meta, .. } = message {
                left.push((frame, meta));
            }
        }
        let keeper = self.machines[number].keeper();
        for (frame, meta) in left {
            let at = self.post_at(number);
            self.machines[number].moved_frames += 1;
            let message = Message::Frame {
                frame,
                meta,
                origin: None,
            };
            self.hosts[keeper].post.push(at, message);
        }
    }

    /// The peers of an engine's open connections: their own ends and its.
    pub fn peers_of(&self, machine: usize, index: usize) -> Vec<(SocketAddr, SocketAddr)> {
        let mine = self.machines[machine].ends.iter();
        mine.filter(|((host, _), _)| *host == index)
            .map(|(_, flow)| (flow.remote, flow.local))
            .filter(|(local, remote)| {
                let peer = self.flows.get(&(*local, *remote));
                let program = peer.and_then(|peer| self.programs.get(peer));
                program.is_some_and(|program| !program.is_released)
            })
            .collect()
    }

    /// The living connections of a machine may not fail any more, nor those of their peers.
    pub fn must_hold(&mut self, machine: usize) {
        for (flow, host) in &self.machines[machine].directory {
            if self.hosts[*host].is_gone {
                continue;
            }
            for ends in [(flow.local, flow.remote), (flow.remote, flow.local)] {
                let place = self.flows.get(&ends);
                if let Some(program) = place.and_then(|place| self.programs.get_mut(place)) {
                    program.must_hold();
                }
            }
        }
    }

    /// Reason why the connection of a host's program between these ends has died.
    pub fn failed(&self, local: SocketAddr, remote: SocketAddr) -> Option<Reason> {
        let place = self.flows.get(&(local, remote))?;
        self.programs.get(place)?.failed()
    }

    /// Returns the peers of TIME-WAIT entries of engines that end, until the keeper has them.
    pub fn time_wait_ends(&self, machine: usize) -> Vec<(SocketAddr, SocketAddr)> {
        let time_waits = self.machines[machine].time_waits.iter();
        time_waits
            .map(|(_, image)| (image.remote, image.local))
            .collect()
    }

    /// Whether the program at `local` has nothing to do with the other end any more.
    pub fn is_over(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let place = self.flows.get(&(local, remote));
        let program = place.and_then(|place| self.programs.get(place));
        program.is_none_or(|program| program.is_released)
    }

    /// Whether the program at `local` knows that the other end is dead.
    pub fn check_knows_of_end(&self, local: SocketAddr, remote: SocketAddr) -> Result<(), Failure> {
        let place = self.flows.get(&(local, remote));
        let program = place.and_then(|place| self.programs.get(place));
        let failed = program.and_then(Program::failed);
        // A program that has closed its socket gets no error.
        let is_over = program.is_some_and(|program| program.is_released);
        match is_over && !matches!(failed, Some(Reason::TimedOut)) {
            true => Ok(()),
            false => Err(self.failure(format!("{local} has not heard that {remote} is dead"))),
        }
    }
}
