//! Listeners that close while others of their port stay: handshakes in progress go to the engines
//! that have their flows now (as in `slipstack_engine`'s `passing` and `arriving`).

use std::net::SocketAddr;

use slipstack_stack::{HalfOpenImage, SocketError};

use super::{Failure, World};
use crate::machine::{Flow, KEEPER, Message};

/// Engines that a handshake may find without a listener.
const HOPS_MAX: u8 = 16;

impl World {
    /// Engines that listen on a port.
    pub fn listening(&self, port: u16) -> Vec<usize> {
        let all = self.listeners.keys().filter(|(_, of)| *of == port);
        all.map(|(engine, _)| *engine).collect()
    }

    /// Ends listening of an engine on a port: first the frames stop coming, then received ones are
    /// served, then the handshakes move.
    pub fn leave_port(&mut self, number: usize, port: u16, engine: usize) -> Result<(), Failure> {
        let Some(listener) = self.listeners.remove(&(engine, port)) else {
            return Ok(());
        };
        let (now, keeper) = (self.now, self.machines[number].keeper());
        self.keeper(keeper).search.note_moving(port, now);
        self.spread_port(number, port);
        self.hosts[engine].receive(now);
        self.settle(engine)?;
        let stack = &mut self.hosts[engine].stack;
        let images = stack.tcp_detach_half_open(listener);
        let ended = stack.tcp_unlisten(listener);
        for image in images {
            self.machines[number].half_open.left += 1;
            self.send_half_open((number, engine), &image, 0);
        }
        ended.map_err(|why| self.failure(format!("host {engine}: {why}")))
    }

    fn send_half_open(&mut self, (number, from): (usize, usize), image: &HalfOpenImage, hops: u8) {
        let to = image
            .endpoints()
            .and_then(|ends| self.find_taker(number, ends))
            .filter(|to| *to != from);
        let Some(to) = to else {
            self.machines[number].half_open.refused += 1;
            return;
        };
        let at = self.post_at(number);
        let message = Message::HalfOpen(Box::new(image.clone()), hops);
        self.hosts[to].post.push(at, message);
    }

    /// Returns the stack that gets new connections between these ends.
    fn find_taker(
        &mut self,
        number: usize,
        (local, remote): (SocketAddr, SocketAddr),
    ) -> Option<usize> {
        let keeper = self.machines[number].keeper();
        let slot = self
            .keeper(keeper)
            .steering
            .find_route(&Flow { local, remote });
        (slot != KEEPER).then(|| self.machines[number].host(slot))?
    }

    pub(super) fn take_half_open(&mut self, index: usize, image: &HalfOpenImage, hops: u8) {
        let Some(number) = self.machine_of(index) else {
            return;
        };
        let host = &mut self.hosts[index];
        let at = host.clock(self.now);
        let adopted = host.stack.tcp_adopt_half_open(at, image);
        let tally = &mut self.machines[number].half_open;
        match adopted {
            Ok(()) => tally.taken += 1,
            Err(SocketError::UnknownId) if hops < HOPS_MAX => {
                self.send_half_open((number, index), image, hops + 1);
            }
            Err(_) => tally.refused += 1,
        }
    }
}
