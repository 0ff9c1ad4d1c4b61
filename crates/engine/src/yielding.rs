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

/// A listening socket of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listening {
    pub(crate) owner: Owner,
    pub(crate) yields: Yields,
    pub(crate) bound: Bound,
}

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
        // The stack chooses among those of the same address.
        let is_keen = |it: &Listening| {
            it.owner != owner && it.yields == Yields::No && it.bound.span() == bound.span()
        };
        if self.listeners_on(port).iter().any(is_keen) {
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
        if on_port.iter().any(|it| it.yields == Yields::Away)
            && let Some(ports) = &self.ports
        {
            ports.listen_yield(port, Transport::Tcp, false);
        }
        for it in on_port.iter().filter(|it| it.yields == Yields::Away) {
            if let Some(socket) = self.world.socket(it.owner) {
                socket.yields = Yields::Here;
            }
        }
    }

    /// The listening sockets of a port.
    pub(crate) fn listeners_on(&mut self, port: u16) -> Vec<Listening> {
        let mut found = Vec::new();
        for id in self.world.client_ids() {
            let Some(client) = self.world.client(id) else {
                continue;
            };
            for sock in client.listeners.clone() {
                if let Some((socket, _)) = client.find(sock)
                    && let Some(bound) = socket.bound.filter(|it| it.addr.port() == port)
                {
                    let owner = Owner { client: id, sock };
                    let yields = socket.yields;
                    found.push(Listening {
                        owner,
                        yields,
                        bound,
                    });
                }
            }
        }
        found
    }
}
