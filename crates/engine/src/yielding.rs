//! Listeners whose program accepts nothing: it computes, waits for a lock or for its turn to
//! accept, or is busy elsewhere.
//!
//! The connections of such a listener move to another listener of the address, of this engine or of
//! another one, because on the kernel one queue serves all. Without another listener they stay and
//! wait.

use slipstack_channel::{Reply, SocketError, Transport};
use slipstack_stack::{Instant, ListenerId};

use crate::client::{Bound, Client, ClientId, Role, Yields};
use crate::commands::Answer;
use crate::engine::Engine;
use crate::environment::Environment;
use crate::owners::Owner;

/// A listening socket of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listening {
    pub(crate) owner: Owner,
    pub(crate) yields: Yields,
    pub(crate) bound: Bound,
    /// [`crate::client::Socket::link`].
    pub(crate) link: u16,
    /// The listener's program sleeps in a call, and nothing waits at it.
    pub(crate) is_idle: bool,
}

impl Engine {
    /// Moves unaccepted connections to other listeners. Returns whether there were any.
    #[inline]
    pub(crate) fn tend_listeners(&mut self, now: Instant) -> bool {
        self.env.has_rest && self.env.left_at <= now && self.tend_all_listeners(now)
    }

    #[inline(never)]
    fn tend_all_listeners(&mut self, now: Instant) -> bool {
        let mut progress = false;
        for id in self.env.client_ids() {
            let client = self.env.client(id).filter(|client| !client.is_leaving);
            let left = client.map_or(Vec::new(), |client| client.find_left(now));
            for sock in left {
                progress |= self.leave_to_others(now, Owner { client: id, sock });
            }
        }
        if self.env.shared.due_at <= now {
            progress |= self.tend_sharers(now);
        }
        progress
    }

    /// Returns `false` if there is no other listener.
    #[cold]
    fn leave_to_others(&mut self, now: Instant, owner: Owner) -> bool {
        let Some(socket) = self.env.socket(owner) else {
            return false;
        };
        let (Role::Listener(id), Some(bound), before) =
            (socket.role, socket.bound(), socket.yields)
        else {
            return false;
        };
        let link = socket.link();
        let Some(successors) = self.find_successors(owner, bound, link) else {
            return false;
        };
        if before == Yields::No {
            self.begin_to_yield(owner, id, successors);
        }
        let is_any = self.withdraw(now, owner);
        if !is_any && before == Yields::No {
            // The program has just accepted them, and does not know that it is to come back.
            let _ = self.on_resume(owner);
        }
        true
    }

    /// From now on new connections go to others, including those on their way.
    fn begin_to_yield(&mut self, owner: Owner, id: ListenerId, successors: Yields) {
        let Some(socket) = self.env.socket(owner) else {
            return;
        };
        socket.yields = successors;
        let port = socket.bound().map_or(0, |bound| bound.addr.port());
        let link = socket.link();
        self.stack.tcp_set_yielding(id, true);
        let drained = self.drain(id, port);
        let half_open = self.stack.tcp_detach_half_open(id);
        if successors == Yields::Here {
            self.pass_half_open(self.env.now, half_open, link);
        } else {
            for image in half_open {
                self.send_half_open(&image, link, 0);
            }
        }
        self.pass_drained(drained);
        self.record_half_open();
    }

    /// Passes on unaccepted connections. Returns whether there were any.
    fn withdraw(&mut self, now: Instant, listener: Owner) -> bool {
        let Some(client) = self.env.client(listener.client) else {
            return false;
        };
        let withdrawn = client.withdraw(listener.sock);
        for &sock in &withdrawn {
            if let Some(socket) = self.env.socket(listener)
                && let Some(queue) = &mut socket.queue
            {
                queue.on_withdrawn();
            }
            let owner = Owner {
                client: listener.client,
                sock,
            };
            let role = self.env.socket(owner).map(|socket| socket.role);
            if let Some(Role::Stream(conn)) = role {
                self.env.flows.leave(conn);
            }
            self.pass(now, owner);
        }
        !withdrawn.is_empty()
    }

    /// Handles a thread that waits for connections or datagrams again.
    pub(crate) fn on_resume(&mut self, owner: Owner) -> Answer {
        let socket = self.env.socket(owner).ok_or(SocketError::UnknownId)?;
        if let Role::Datagram(_) = socket.role {
            return self.resume_datagrams(owner);
        }
        let (Role::Listener(id), Some(bound)) = (socket.role, socket.bound()) else {
            return Err(SocketError::InvalidState);
        };
        if socket.yields == Yields::No {
            return Ok(Reply::Done);
        }
        self.come_back(bound);
        if let Some(socket) = self.env.socket(owner) {
            socket.yields = Yields::No;
        }
        self.stack.tcp_set_yielding(id, false);
        Ok(Reply::Done)
    }

    /// Returns the listeners that may take the connections of a listener.
    fn find_successors(&mut self, owner: Owner, bound: Bound, link: u16) -> Option<Yields> {
        let port = bound.addr.port();
        // The stack chooses among those of the same address.
        let is_keen = |it: Listening| {
            let is_alike = it.bound.is_same_address(&bound) && it.link == link;
            it.owner != owner && it.yields == Yields::No && is_alike
        };
        if self.env.listeners_on(port).any(is_keen) {
            return Some(Yields::Here);
        }
        let interconnect = self.env.local.interconnect.as_ref()?;
        // While this one yields, the port may be one other engine's alone.
        if !interconnect.has_others(Transport::Tcp, port) {
            return None;
        }
        let ports = self.ports.as_ref().filter(|_| bound.is_announced)?;
        let is_away = ports.listen_yield(port, Transport::Tcp, true);
        is_away.then_some(Yields::Away)
    }

    /// New connections may come here again.
    fn come_back(&mut self, bound: Bound) {
        let port = bound.addr.port();
        let on_port: Vec<Listening> = self.env.listeners_on(port).collect();
        if on_port.iter().any(|it| it.yields == Yields::Away)
            && let Some(ports) = &self.ports
        {
            ports.listen_yield(port, Transport::Tcp, false);
        }
        for it in on_port.iter().filter(|it| it.yields == Yields::Away) {
            if let Some(socket) = self.env.socket(it.owner) {
                socket.yields = Yields::Here;
            }
        }
    }
}

impl Environment {
    /// Returns the owner that gets a connection of a listener: the listener itself, or while its
    /// program is busy another one of the address whose program is not.
    pub(crate) fn find_idle(&mut self, owner: Owner) -> Owner {
        if self.clients.len() < 2 {
            return owner;
        }
        let socket = self.socket(owner);
        let Some((bound, link)) = socket.and_then(|it| Some((it.bound()?, it.link()))) else {
            return owner;
        };
        let mut idle = None;
        for it in self.listeners_on(bound.addr.port()) {
            let is_alike = it.bound.span() == bound.span() && it.link == link;
            let may_take = it.yields == Yields::No && is_alike;
            if it.owner == owner && it.is_idle {
                return owner;
            }
            if idle.is_none() && it.is_idle && may_take {
                idle = Some(it.owner);
            }
        }
        idle.unwrap_or(owner)
    }

    /// The listening sockets of a port.
    pub(crate) fn listeners_on(&self, port: u16) -> impl Iterator<Item = Listening> {
        let clients = self.client_ids().zip(&self.clients);
        clients.flat_map(move |(id, client)| {
            let client = client.iter();
            client.flat_map(move |client| client.listeners_on(id, port))
        })
    }
}

impl Client {
    fn listeners_on(&self, id: ClientId, port: u16) -> impl Iterator<Item = Listening> {
        self.listeners.iter().filter_map(move |&sock| {
            let socket = self.socket(sock)?;
            let bound = socket.bound().filter(|it| it.addr.port() == port)?;
            let is_empty = socket.queue.as_ref().is_some_and(|it| it.waiting() == 0);
            Some(Listening {
                owner: Owner { client: id, sock },
                yields: socket.yields,
                bound,
                link: socket.link(),
                is_idle: is_empty && self.end.is_program_asleep(),
            })
        })
    }
}
