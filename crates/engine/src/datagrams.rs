//! UDP sockets.

use std::net::SocketAddr;

use slipstack_channel::{Ends, Reply, SocketError, State};
use slipstack_stack::{DatagramOut, Instant, UdpId, UdpOptions};

use crate::client::{Bound, Role};
use crate::commands::Answer;
use crate::effects::Fx;
use crate::engine::Engine;
use crate::owners::Owner;
use crate::streams::ANY;

/// Datagrams sent for one socket per command; the rest leaves in the next turn.
const SEND_BUDGET: usize = 4096;

impl Engine {
    /// `asked` comes with the bind; the other options have been recorded with the socket.
    pub(crate) fn bind_datagram(
        &mut self,
        owner: Owner,
        addr: SocketAddr,
        asked: UdpOptions,
    ) -> Answer {
        let socket = self.env.socket(owner).ok_or(SocketError::UnknownId)?;
        if socket.role != Role::None {
            return Err(SocketError::InvalidArgument);
        }
        let options = UdpOptions {
            socket: socket.options.as_deref().cloned().unwrap_or_default(),
            ..asked
        };
        let (id, is_announced) = self.udp_bind(addr, &options)?;
        let local = self.stack.udp_local(id).unwrap_or(addr);
        self.env.udps.set(id.index, id.generation, owner);
        if let Some(socket) = self.env.socket(owner) {
            socket.role = Role::Datagram(id);
        }
        let bound = Bound {
            addr: local,
            is_v6_only: asked.is_v6_only,
            is_shared: asked.is_shared,
            link: options.socket.link,
            is_reserved: false,
            is_picked: false,
            is_announced,
            flow: None,
        };
        self.note_bound(owner, bound);
        self.join_group(owner, local, true);
        Ok(Reply::Bound { local })
    }

    pub(crate) fn connect_datagram(&mut self, owner: Owner, remote: Option<SocketAddr>) -> Answer {
        let socket = self.env.socket(owner).ok_or(SocketError::UnknownId)?;
        if socket.role == Role::None {
            let any = match remote {
                Some(SocketAddr::V6(_)) => SocketAddr::from(([0u16; 8], 0)),
                _ => ANY,
            };
            self.bind_datagram(owner, any, UdpOptions::default())?;
        }
        let socket = self.env.socket(owner).ok_or(SocketError::UnknownId)?;
        let Role::Datagram(id) = socket.role else {
            return Err(SocketError::InvalidState);
        };
        self.stack.udp_connect(id, remote)?;
        let local = self.stack.udp_local(id).unwrap_or(ANY);
        let source = remote.and_then(|remote| self.stack.find_source(remote.ip()));
        let local = match source {
            Some(ip) if local.ip().is_unspecified() => SocketAddr::new(ip, local.port()),
            _ => local,
        };
        if let Some(client) = self.env.client(owner.client) {
            client.end.set_addrs(owner.sock, Some(local), remote);
        }
        self.steer_datagrams(owner, local, remote);
        let (add, remove) = match remote {
            Some(_) => (State::CONNECTED, State::NONE),
            None => (State::NONE, State::CONNECTED),
        };
        self.env.set_bits(owner, add, remove);
        Ok(Reply::Bound { local })
    }

    /// Several processes may be bound to a port that one of them connects: its peer's datagrams are
    /// its own, and everybody else's are the others'. A port of this engine's alone comes here
    /// anyway, unless the address is not ours (IP_TRANSPARENT).
    fn steer_datagrams(&mut self, owner: Owner, local: SocketAddr, remote: Option<SocketAddr>) {
        let bound = self.env.socket(owner).and_then(|socket| socket.bound());
        let is_strange = remote.is_some() && !self.stack.is_own(local.ip());
        let Some(bound) = bound.filter(|bound| bound.is_announced || is_strange) else {
            return;
        };
        if let Some(old) = bound.flow {
            self.env.flows.close_datagrams(old);
        }
        let ends = remote.map(|remote| Ends::of(local, remote));
        let flow = ends.and_then(|ends| self.env.flows.open_datagrams(&ends));
        if let Some(socket) = self.env.socket(owner) {
            socket.set_bound(Some(Bound { flow, ..bound }));
        }
        let has_changed = flow.is_some() || bound.flow.is_some();
        if has_changed && let Some(ports) = &self.ports {
            let remote = remote.unwrap_or(ANY);
            ports.steer_flow(local, remote, flow.is_some());
        }
    }

    /// The first send of an unbound socket binds it, as on the kernel.
    pub(crate) fn send_unbound(&mut self, now: Instant, owner: Owner) {
        if self
            .bind_datagram(owner, ANY, UdpOptions::default())
            .is_err()
        {
            self.env.counters.commands_refused += 1;
            return;
        }
        if let Some(socket) = self.env.socket(owner)
            && let Role::Datagram(id) = socket.role
        {
            self.send_datagrams(now, owner, id);
        }
    }

    pub(crate) fn send_datagrams(&mut self, now: Instant, owner: Owner, id: UdpId) {
        let mut payload = core::mem::take(&mut self.scratch);
        for _ in 0..SEND_BUDGET {
            let next = self.env.client(owner.client).and_then(|client| {
                let (socket, end) = client.find(owner.sock)?;
                socket.send.next_datagram(end, owner.sock, &mut payload)
            });
            let Some(envelope) = next else {
                self.scratch = payload;
                return;
            };
            let datagram = DatagramOut {
                payload: &payload,
                dst: envelope.peer,
                src: envelope.local.map(|local| local.ip()),
                tos: envelope.tos,
                ttl: envelope.ttl,
                segment: envelope.segment,
                link: envelope.link,
                mark: envelope.mark,
                class: envelope.class,
            };
            let mut fx = Fx::new(&mut self.env, &mut *self.device);
            let sent = self.stack.udp_send(now, id, &datagram, &mut fx);
            if let Err(error) = sent {
                self.note_refused(owner, error);
            }
        }
        self.scratch = payload;
        self.note_unsent(owner);
    }

    /// The stack has refused a datagram.
    #[cold]
    pub(crate) fn note_refused(&mut self, owner: Owner, error: SocketError) {
        if let Some(reason) = error.of_datagram() {
            self.env.fail(owner, reason, State::NONE);
        }
    }

    #[cold]
    fn note_unsent(&mut self, owner: Owner) {
        let socket = self.env.socket(owner);
        let is_left = socket.is_some_and(|socket| socket.send.head() != socket.send.acked());
        if is_left && !self.env.unsent.contains(&owner) {
            self.env.unsent.push(owner);
            self.env.has_rest = true;
        }
    }

    /// Sends the datagrams that the last turn had no time for.
    #[cold]
    pub(crate) fn send_unsent(&mut self, now: Instant) {
        for owner in core::mem::take(&mut self.env.unsent) {
            self.send_more_of(now, owner);
        }
    }

    /// All that was seen in the ring, before the socket is closed.
    pub(crate) fn send_all_of(&mut self, now: Instant, owner: Owner) {
        while let Some(at) = self.env.unsent.iter().position(|it| *it == owner) {
            self.env.unsent.swap_remove(at);
            self.send_more_of(now, owner);
        }
    }

    fn send_more_of(&mut self, now: Instant, owner: Owner) {
        if let Some(socket) = self.env.socket(owner)
            && let Role::Datagram(id) = socket.role
        {
            self.send_datagrams(now, owner, id);
        }
    }

    pub(crate) fn close_datagram(&mut self, owner: Owner, id: UdpId) {
        self.env.udps.remove(id.index, id.generation);
        let _ = self.stack.udp_close(id);
        if let Some(socket) = self.env.socket(owner) {
            socket.role = Role::None;
        }
        self.leave_group(owner);
        self.drop_binding(owner);
    }
}
