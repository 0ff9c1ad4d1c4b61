//! Connections that one engine gives to another, step by step, and ends of either engine meanwhile.
//!
//! The steps are those of `slipstack_engine` (`passing`, `carrying`) and `slipstack_posix`
//! (`lending`); the keeper acts as in `slipstack_keeper`'s `endings`.

use std::mem::replace;

use slipstack_stack::{ConnId, ConnectionImage, Progress};

use super::delayed::DelayedAction;
use super::{Failure, World};
use crate::machine::{Flow, Giving, Journey, KEEPER, Message, Participant, Whereabouts};
use crate::moving_connection::MovingConnection;
use crate::program::Program;

impl World {
    /// A connection is marked as leaving: for its `user`, or the engine that serves its port now.
    /// Returns that engine, or `None` if it cannot leave in this way.
    pub fn begin_journey(
        &mut self,
        (giver, conn): (usize, ConnId),
        user: usize,
        giving: Giving,
    ) -> Option<usize> {
        let host = &self.hosts[giver];
        let number = self.machine_of(giver)?;
        let (local, remote) = host.stack.tcp_endpoints(conn)?;
        let entry = host.stack.tcp_origin(conn)?;
        let program = self.programs.get(&(giver, conn))?;
        let is_unused = self.is_unused(giver, program);
        if !program.is_open || program.has_closed || (giving == Giving::Passed && !is_unused) {
            return None;
        }
        let taker = match giving {
            Giving::Passed => self.find_taker(number, (local, remote)),
            Giving::Carried => Some(user),
        };
        let taker = taker.filter(|taker| *taker != giver)?;
        self.machines[number].journey = Some(Journey {
            giving,
            flow: Flow { local, remote },
            giver,
            taker,
            place: Whereabouts::Giver(conn),
            entry: Some(entry),
            message: None,
        });
        if giving == Giving::Passed {
            self.expect_segments(number, local.port());
        }
        Some(taker)
    }

    fn is_unused(&self, host: usize, program: &Program) -> bool {
        let streams = self.hosts[host].fx.streams.get(&program.conn);
        let bytes = streams.map_or(0, |it| it.read_upto() + it.written());
        bytes == 0 && !program.has_shut
    }

    /// The connection leaves the giver's stack.
    pub fn detach_journey(&mut self, number: usize) -> Result<(), Failure> {
        self.on_journey(number, |world, journey| {
            let Whereabouts::Giver(conn) = journey.place else {
                return Ok(());
            };
            journey.place = Whereabouts::Over;
            if let Some((flow, moving)) = world.detach((journey.giver, conn), true) {
                world.machines[number].directory.remove(&flow);
                journey.place = Whereabouts::Hands(Box::new(moving));
                if journey.giving == Giving::Carried {
                    world.note_departed(journey, Some(None));
                }
            }
            Ok(())
        })
    }

    /// The message is on its way to the taker.
    pub fn post_journey(&mut self, number: usize) -> Result<(), Failure> {
        self.on_journey(number, |world, journey| {
            let is_alive = !world.hosts[journey.giver].is_gone;
            let moving = match replace(&mut journey.place, Whereabouts::Over) {
                Whereabouts::Hands(moving) if is_alive => moving,
                place => {
                    journey.place = place;
                    return Ok(());
                }
            };
            match (world.hosts[journey.taker].is_gone, journey.giving) {
                (false, _) => {
                    journey.message = Some(moving.image.clone());
                    journey.place = Whereabouts::Posted(moving);
                    Ok(())
                }
                (true, Giving::Passed) => world.send_on(number, journey, *moving),
                (true, Giving::Carried) => world.take_back(number, journey, *moving),
            }
        })
    }

    /// The taker adopts the connection, which is in its directory then.
    pub fn take_journey(&mut self, number: usize, steered_after_ns: u64) -> Result<(), Failure> {
        self.on_journey(number, |world, journey| {
            match replace(&mut journey.place, Whereabouts::Over) {
                Whereabouts::Posted(moving) if !world.hosts[journey.taker].is_gone => {
                    world.take_in(journey.taker, *moving)?;
                }
                place => {
                    journey.place = place;
                    return Ok(());
                }
            }
            journey.place = Whereabouts::Taker;
            let at = world.now.plus_nanos(steered_after_ns);
            let steer = DelayedAction::Steer(journey.flow);
            world.delayed.add(at, number, steer);
            Ok(())
        })
    }

    /// The giver has passed the connection on, or has heard that the taker has it: its entry goes.
    pub fn close_journey(&mut self, number: usize) -> Result<(), Failure> {
        self.on_journey(number, |world, journey| {
            let is_alive = !world.hosts[journey.giver].is_gone;
            let is_told = is_alive && matches!(journey.place, Whereabouts::Taker);
            if is_told || is_alive && journey.giving == Giving::Passed {
                journey.entry = None;
            }
            if journey.giving == Giving::Carried && is_told {
                journey.message = None;
                let slot = world.machines[number].slot(journey.taker);
                world.note_departed(journey, Some(slot));
            }
            Ok(())
        })
    }

    /// A living taker has released the message.
    pub fn release_journey(&mut self, number: usize) -> Result<(), Failure> {
        self.on_journey(number, |world, journey| {
            if !world.hosts[journey.taker].is_gone {
                journey.message = None;
            }
            Ok(())
        })
    }

    fn on_journey(
        &mut self,
        number: usize,
        step: impl FnOnce(&mut Self, &mut Journey) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(mut journey) = self.machines[number].journey.take() else {
            return Ok(());
        };
        let outcome = step(self, &mut journey);
        self.machines[number].journey = Some(journey);
        outcome
    }

    /// Does what the end of an engine does at once: its memory is gone, and its sockets hang up.
    pub(super) fn end_in_journey(&mut self, number: usize, index: usize) -> Result<(), Failure> {
        self.on_journey(number, |world, journey| {
            if index == journey.giver {
                world.leave_to_keeper(number, journey);
                return Ok(());
            }
            if index != journey.taker {
                return Ok(());
            }
            if journey.giving == Giving::Passed {
                world.leave_unreleased(number, journey);
                return Ok(());
            }
            let may_return = !world.hosts[journey.giver].is_gone;
            match replace(&mut journey.place, Whereabouts::Over) {
                Whereabouts::Posted(moving) if may_return => {
                    return world.take_back(number, journey, *moving);
                }
                Whereabouts::Taker if may_return && journey.message.is_some() => {
                    world.reset_unconfirmed(journey);
                }
                place => journey.place = place,
            }
            Ok(())
        })
    }

    /// No program has taken the connection from the killed taker, and its message is in the inbox.
    fn leave_unreleased(&mut self, number: usize, journey: &mut Journey) {
        let ends = (journey.flow.local, journey.flow.remote);
        let found = self.flows.get(&ends).copied();
        if let (Whereabouts::Taker, Some((index, conn)), Some(_)) =
            (&journey.place, found, &journey.message)
            && index == journey.taker
        {
            let program = self.programs.get(&(index, conn));
            let is_unused = program.is_some_and(|program| self.is_unused(index, program));
            let origin = self.hosts[index].stack.tcp_origin(conn);
            if let (true, Some(origin)) = (is_unused, origin) {
                (journey.giver, journey.entry) = (index, Some(origin));
                journey.place = Whereabouts::Giver(conn);
                self.leave_to_keeper(number, journey);
            }
        }
    }

    /// Leaves the entry and the rings of a connection that only the killed giver had.
    fn leave_to_keeper(&mut self, number: usize, journey: &mut Journey) {
        let (index, flow) = (journey.giver, journey.flow);
        let (program, mut streams) = match replace(&mut journey.place, Whereabouts::Over) {
            Whereabouts::Giver(conn) => {
                let Some(program) = self.programs.remove(&(index, conn)) else {
                    return;
                };
                let machine = &mut self.machines[number];
                machine.detached += 1;
                machine.directory.remove(&flow);
                machine.ends.remove(&(index, conn));
                self.flows.remove(&(flow.local, flow.remote));
                (program, self.hosts[index].fx.leave(conn))
            }
            Whereabouts::Hands(moving) => (moving.program, moving.streams),
            place => {
                journey.place = place;
                return;
            }
        };
        streams.forget_ahead();
        let progress = Progress {
            acked: streams.acked(),
            written: streams.written(),
            received: streams.available(),
            read: streams.read_upto(),
            has_fin: program.has_fin,
        };
        let Some(origin) = &journey.entry else {
            // Nobody knows of it.
            return self.lose(number, &program);
        };
        // The peer's window is not known.
        self.watch
            .on_rebuilt(flow.local, flow.remote, progress.acked);
        let image = ConnectionImage::rebuild(flow.local, flow.remote, origin, &progress);
        journey.place = Whereabouts::Hands(Box::new(MovingConnection {
            image,
            program,
            streams,
        }));
    }

    /// The keeper hears of the end of an engine.
    pub(super) fn notice_in_journey(&mut self, number: usize, index: usize) -> Result<(), Failure> {
        self.on_journey(number, |world, journey| match journey.giving {
            Giving::Passed => world.notice_passed(number, index, journey),
            Giving::Carried => world.notice_carried(number, index, journey),
        })
    }

    fn notice_passed(
        &mut self,
        number: usize,
        index: usize,
        journey: &mut Journey,
    ) -> Result<(), Failure> {
        let is_leaving = index == journey.giver && journey.entry.is_some();
        match replace(&mut journey.place, Whereabouts::Over) {
            // From an entry, and once more from the taker's inbox if it is there.
            Whereabouts::Hands(moving) if is_leaving => {
                self.send_on(number, journey, *moving)?;
                if let Some(image) = journey.message.take() {
                    self.send_copy(number, journey.flow, image);
                }
                Ok(())
            }
            // From the taker's inbox.
            Whereabouts::Posted(moving) if index == journey.taker => {
                self.send_on(number, journey, *moving)
            }
            // No directory has it but the giver's: another copy is sent behind the first.
            Whereabouts::Posted(moving) if is_leaving => {
                let image = moving.image.clone();
                let at = self.post_at(number);
                let first = Message::Connection(moving);
                self.hosts[journey.taker].post.push(at, first);
                self.send_copy(number, journey.flow, image);
                self.follow(number, journey.flow);
                Ok(())
            }
            place => {
                journey.place = place;
                Ok(())
            }
        }
    }

    fn notice_carried(
        &mut self,
        number: usize,
        index: usize,
        journey: &mut Journey,
    ) -> Result<(), Failure> {
        if !self.hosts[journey.giver].is_gone {
            return Ok(());
        }
        let has_user = !self.hosts[journey.taker].is_gone;
        let is_known = journey.entry.is_some();
        match replace(&mut journey.place, Whereabouts::Over) {
            // The process that uses it asks for it.
            Whereabouts::Hands(moving) if has_user && is_known => {
                let has_shut = moving.program.has_shut;
                self.take_in(journey.taker, *moving)?;
                if has_shut {
                    self.repeat_end(journey);
                }
                self.follow(number, journey.flow);
            }
            Whereabouts::Hands(moving) | Whereabouts::Posted(moving) if !has_user => {
                self.lose(number, &moving.program);
                if is_known {
                    self.reset_lost(number, journey.flow);
                }
            }
            place => {
                let is_awaited = matches!(place, Whereabouts::Posted(_)) && is_known;
                journey.place = place;
                if is_awaited && index == journey.giver {
                    self.expect_segments(number, journey.flow.local.port());
                }
            }
        }
        Ok(())
    }

    /// The sending direction was shut down, which the entry does not say.
    fn repeat_end(&mut self, journey: &Journey) {
        let ends = (journey.flow.local, journey.flow.remote);
        if let Some((index, conn)) = self.flows.get(&ends).copied() {
            let host = &mut self.hosts[index];
            let at = host.clock(self.now);
            host.stack.tcp_shutdown(at, conn, &mut host.fx);
        }
    }

    /// An unused connection goes to the engine that serves its port now. Without one it stays with
    /// a living giver, or is reset.
    pub(super) fn send_on(
        &mut self,
        number: usize,
        journey: &mut Journey,
        moving: MovingConnection,
    ) -> Result<(), Failure> {
        let flow = journey.flow;
        let next = self.find_taker(number, (flow.local, flow.remote));
        if let Some(next) = next.filter(|next| !self.hosts[*next].is_gone) {
            self.expect_segments(number, flow.local.port());
            journey.taker = next;
            let at = self.post_at(number);
            let message = Message::Connection(Box::new(moving));
            self.hosts[next].post.push(at, message);
            self.follow(number, flow);
            return Ok(());
        }
        if !self.hosts[journey.giver].is_gone {
            return self.take_back(number, journey, moving);
        }
        self.lose(number, &moving.program);
        self.reset_lost(number, flow);
        Ok(())
    }

    /// A connection in the inbox of an engine that is gone goes to another.
    pub(super) fn readdress(&mut self, number: usize, moving: MovingConnection) {
        let Some(ends) = moving.image.endpoints() else {
            return;
        };
        let flow = Flow {
            local: ends.0,
            remote: ends.1,
        };
        let next = self.find_taker(number, ends);
        if let Some(next) = next.filter(|next| !self.hosts[*next].is_gone) {
            let at = self.post_at(number);
            let message = Message::Connection(Box::new(moving));
            self.hosts[next].post.push(at, message);
            return self.follow(number, flow);
        }
        self.lose(number, &moving.program);
        self.reset_lost(number, flow);
    }

    fn send_copy(&mut self, number: usize, flow: Flow, image: ConnectionImage) {
        if let Some(next) = self.find_taker(number, (flow.local, flow.remote)) {
            let at = self.post_at(number);
            let copy = Message::Copy(Box::new(image));
            self.hosts[next].post.push(at, copy);
        }
    }

    /// A second copy of a connection arrives: the first one is there.
    pub(super) fn take_copy(
        &mut self,
        index: usize,
        image: &ConnectionImage,
    ) -> Result<(), Failure> {
        let host = &mut self.hosts[index];
        let at = host.clock(self.now);
        if host.stack.tcp_adopt(at, image, &mut host.fx).is_ok() {
            return Err(self.failure(format!("host {index}: a second engine has a connection")));
        }
        host.stack.tcp_refuse(at, image, &mut host.fx);
        Ok(())
    }

    /// The giver has the connection as it was.
    fn take_back(
        &mut self,
        number: usize,
        journey: &mut Journey,
        moving: MovingConnection,
    ) -> Result<(), Failure> {
        journey.place = Whereabouts::Over;
        self.note_departed(journey, None);
        self.take_in(journey.giver, moving)?;
        self.follow(number, journey.flow);
        Ok(())
    }

    /// The taker may have gone on with the connection before it was killed: the giver's copy is
    /// good for nothing but a reset.
    fn reset_unconfirmed(&mut self, journey: &mut Journey) {
        let host = &mut self.hosts[journey.giver];
        if let Some(image) = journey.message.take() {
            let at = host.clock(self.now);
            host.stack.tcp_refuse(at, &image, &mut host.fx);
            host.turn_at.get_or_insert(self.now);
        }
    }

    /// Frames of the connection that come to the giver are kept from the keeper: they wait, or go
    /// to the taker's slot.
    fn note_departed(&mut self, journey: &Journey, place: Option<Option<u16>>) {
        if let Some(Participant::Engine(engine)) = &mut self.hosts[journey.giver].fx.place {
            match place {
                Some(slot) => engine.departed.insert(journey.flow, slot),
                None => engine.departed.remove(&journey.flow),
            };
        }
    }

    /// Segments of the port's connections wait for them for a while.
    fn expect_segments(&mut self, number: usize, port: u16) {
        let (now, keeper) = (self.now, self.machines[number].keeper());
        self.keeper(keeper).search.note_moving(port, now);
        self.note_moved(number);
    }

    fn follow(&mut self, number: usize, flow: Flow) {
        // After the message has come, at the latest of all that wait there.
        let at = self
            .post_at(number)
            .plus_nanos(self.machines[number].post_ns);
        self.delayed.add(at, number, DelayedAction::Steer(flow));
    }

    pub(super) fn lose(&mut self, number: usize, program: &Program) {
        self.machines[number].detached -= 1;
        self.unfinished -= usize::from(!program.is_done());
    }

    /// The keeper resets a connection of which it knows the ends.
    pub(super) fn reset_lost(&mut self, number: usize, flow: Flow) {
        self.watch.on_death(flow.local, flow.remote);
        let (now, keeper) = (self.now, self.machines[number].keeper());
        let place = self.keeper(keeper);
        place.steering.except(flow, KEEPER);
        place.reset([flow], now);
        self.hosts[keeper].turn_at.get_or_insert(now);
    }
}
