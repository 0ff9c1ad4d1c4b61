//! Listeners that nobody watches: a worker that waits for its turn to accept, or is busy elsewhere.
//!
//! Their connections go to another listener of the address, of this engine or of another one, as they
//! would on the kernel, where one queue serves all. Without another one they stay and wait.

use slipstack_channel::{Refusal, Reply};

use crate::authority::Transport;
use crate::client::{Bound, Role, Yields};
use crate::commands::Answer;
use crate::engine::Engine;
use crate::world::Owner;

impl Engine {
    pub(crate) fn on_yield(&mut self, owner: Owner, is_on: bool) -> Answer {
        let socket = self.world.socket(owner).ok_or(Refusal::UnknownSocket)?;
        let (Role::Listener(id), Some(bound)) = (socket.role, socket.bound) else {
            return Err(Refusal::InvalidState);
        };
        let yields = match (socket.yields != Yields::No, is_on) {
            (true, true) | (false, false) => return Ok(Reply::Done),
            (false, true) => self.find_heirs(owner, bound).ok_or(Refusal::InvalidState)?,
            (true, false) => {
                self.come_back(bound);
                Yields::No
            }
        };
        if let Some(socket) = self.world.socket(owner) {
            socket.yields = yields;
        }
        self.stack.tcp_set_yielding(id, is_on);
        if is_on {
            let drained = self.drain(id, bound.addr.port());
            let half_open = self.stack.tcp_detach_half_open(id);
            if yields == Yields::Here {
                self.pass_half_open(self.world.now, half_open);
            } else {
                for image in half_open {
                    self.send_half_open(&image, 0);
                }
            }
            self.pass_drained(drained);
        }
        Ok(Reply::Done)
    }

    /// Who may take the connections of a listener.
    fn find_heirs(&mut self, owner: Owner, bound: Bound) -> Option<Yields> {
        let port = bound.addr.port();
        let others = self.listeners_on(port).into_iter();
        let mut keen = others.filter(|(other, yields)| *other != owner && *yields == Yields::No);
        if keen.next().is_some() {
            return Some(Yields::Here);
        }
        let fabric = self.world.local.fabric.as_ref()?;
        if !fabric.is_shared(port) {
            return None;
        }
        let ports = self.ports.as_ref().filter(|_| bound.is_announced)?;
        let is_away = ports.listen_yield(port, Transport::Tcp, true);
        is_away.then_some(Yields::Away)
    }

    /// New connections may come here again.
    fn come_back(&mut self, bound: Bound) {
        let port = bound.addr.port();
        let on_port = self.listeners_on(port);
        if on_port.iter().any(|(_, yields)| *yields == Yields::Away)
            && let Some(ports) = &self.ports
        {
            ports.listen_yield(port, Transport::Tcp, false);
        }
        for (owner, _) in on_port.iter().filter(|(_, yields)| *yields == Yields::Away) {
            if let Some(socket) = self.world.socket(*owner) {
                socket.yields = Yields::Here;
            }
        }
    }

    /// The listening sockets of a port.
    fn listeners_on(&mut self, port: u16) -> Vec<(Owner, Yields)> {
        let mut found = Vec::new();
        for id in self.world.client_ids() {
            let Some(client) = self.world.client(id) else {
                continue;
            };
            for sock in client.listeners.clone() {
                if let Some((socket, _)) = client.find(sock)
                    && socket.bound.is_some_and(|it| it.addr.port() == port)
                {
                    found.push((Owner { client: id, sock }, socket.yields));
                }
            }
        }
        found
    }
}
