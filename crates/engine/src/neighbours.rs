//! Neighbours published by the keeper, which alone receives their answers.

use std::net::IpAddr;

use slipstack_stack::Instant;

use crate::effects::Fx;
use crate::engine::Engine;

impl Engine {
    /// Looks up the neighbours that the stack waits for: their answers reach the keeper, not us.
    /// Whether there was one.
    #[inline(never)]
    pub(crate) fn resolve_neighbours(&mut self, now: Instant) -> bool {
        let moves = self
            .env
            .neighbours
            .as_ref()
            .map_or(0, |table| table.moves());
        if moves != self.moves {
            self.moves = moves;
            self.follow_neighbours(now);
        }
        self.unresolved.clear();
        self.stack.pending_neighbours(&mut self.unresolved);
        if self.unresolved.is_empty() {
            return false;
        }
        // The table shows whether a router still answers; about other neighbours it has nothing
        // newer.
        for &ip in &self.unresolved {
            if self.stack.has_other_routers(ip) {
                self.env.doubt(ip);
            }
        }
        let mut fx = Fx::new(&mut self.env, &mut *self.device);
        let before = self.unresolved.len();
        self.unresolved
            .retain(|&addr| match fx.env.find_neighbour(addr) {
                Some(mac) => {
                    self.stack.on_neighbour(now, addr, mac, &mut fx);
                    fx.env.doubted.retain(|(doubted, _)| *doubted != addr);
                    false
                }
                None => true,
            });
        self.unresolved.len() < before
    }

    /// Returns whether frames wait for neighbours, or datagrams for room.
    pub(crate) fn has_waiting_frames(&self) -> bool {
        self.stack.holds_frames() || !self.env.waiting.is_empty()
    }

    /// Takes over the keeper's new addresses of neighbours that have moved, which announced it only
    /// to the keeper.
    #[cold]
    fn follow_neighbours(&mut self, now: Instant) {
        let known: Vec<(IpAddr, [u8; 6])> = self.stack.known_neighbours().collect();
        for (ip, before) in known {
            let found = self.env.find_neighbour(ip);
            if let Some(mac) = found.filter(|mac| *mac != before) {
                let mut fx = Fx::new(&mut self.env, &mut *self.device);
                self.stack.on_neighbour(now, ip, mac, &mut fx);
            }
        }
    }
}
