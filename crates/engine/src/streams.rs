//! TCP sockets: binding, listening, connecting, closing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use slipstack_channel::{CloseMode, Limits, Reply, SocketError, State, Transport};
use slipstack_stack::{ConnId, Instant, ListenOptions, PortHold, PortRange};

use crate::authority::PortClaim;
use crate::client::{Bound, Role, Socket, step_for};
use crate::commands::Answer;
use crate::effects::Fx;
use crate::engine::Engine;
use crate::owners::Owner;

pub(crate) const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Looks at the device for acknowledgements that let more of connections leave before their reset,
/// and those in a row after which one is reset because there was none. Other frames count too.
pub(crate) const LOOKS_BEFORE_RESET_MAX: usize = 1024;
const IDLE_LOOKS_BEFORE_RESET: usize = 64;
const FRAMES_OF_A_LOOK: usize = 16;

impl Engine {
    pub(crate) fn bind_stream(
        &mut self,
        owner: Owner,
        addr: SocketAddr,
        is_v6_only: bool,
        reuse_addr: bool,
        reuse_port: bool,
    ) -> Answer {
        let socket = self.env.socket(owner).ok_or(SocketError::UnknownId)?;
        if socket.bound().is_some() || socket.role != Role::None {
            return Err(SocketError::InvalidArgument);
        }
        let hold = PortHold {
            ip: addr.ip(),
            is_v6_only,
            link: socket.options.as_deref().map_or(0, |it| it.link),
        };
        let options = socket.options.as_deref();
        let is_transparent = options.is_some_and(|options| options.is_transparent);
        if !is_transparent && !addr.ip().is_unspecified() && !self.stack.is_own(addr.ip()) {
            return Err(SocketError::AddrNotAvailable);
        }
        let range = self.port_range(owner);
        let is_shared = reuse_addr || reuse_port;
        let port = self.reserve_port(hold, addr.port(), is_shared, range)?;
        let is_picked = addr.port() == 0;
        let addr = SocketAddr::new(addr.ip(), port);
        let bound = Bound {
            addr,
            is_v6_only,
            is_shared: reuse_port,
            link: hold.link,
            is_reserved: true,
            is_picked,
            is_announced: false,
            flow: None,
        };
        self.note_bound(owner, bound);
        Ok(Reply::Bound { local: addr })
    }

    pub(crate) fn note_bound(&mut self, owner: Owner, bound: Bound) {
        let Some(client) = self.env.client(owner.client) else {
            return;
        };
        if let Some((socket, end)) = client.find(owner.sock) {
            end.set_addrs(owner.sock, Some(bound.addr), None);
            socket.set_bound(Some(bound));
            socket.state |= State::BOUND;
            end.set_state(owner.sock, socket.state, socket.reason, socket.errors);
        }
    }

    /// Asks that frames to this port come here. Those to a leased port do already; its claim is
    /// needed only if the socket `is_for_all`, not for one peer: frames of others may be at the
    /// keeper.
    pub(crate) fn announce(
        &mut self,
        transport: Transport,
        claim: &PortClaim,
        is_for_all: bool,
    ) -> Result<bool, SocketError> {
        let Some(ports) = &self.ports else {
            return Ok(false);
        };
        if !is_for_all && self.is_leased(claim.addr.port()) {
            return Ok(false);
        }
        ports.listen_on(claim, transport)?;
        Ok(true)
    }

    /// A port of our choice, for an unbound socket that listens.
    fn bind_anywhere(&mut self, range: PortRange) -> Result<Bound, SocketError> {
        let port = self.reserve_port(PortHold::of(ANY.ip()), 0, false, range)?;
        Ok(Bound {
            addr: SocketAddr::new(ANY.ip(), port),
            is_v6_only: false,
            is_shared: false,
            link: 0,
            is_reserved: true,
            is_picked: false,
            is_announced: false,
            flow: None,
        })
    }

    pub(crate) fn on_listen(&mut self, owner: Owner, backlog: u32) -> Answer {
        let socket = self.env.socket(owner).ok_or(SocketError::UnknownId)?;
        let backlog = backlog.min(self.stack.config().tcp.backlog_max);
        match socket.role {
            Role::Listener(id) => {
                let set = self.stack.tcp_set_backlog(id, backlog);
                return set.map(|()| Reply::Done);
            }
            Role::None if !socket.state.contains(State::CLOSED) => {}
            _ => return Err(SocketError::InvalidArgument),
        }
        let options = ListenOptions {
            backlog,
            reuse_port: socket.bound().is_some_and(|bound| bound.is_shared),
            is_v6_only: socket.bound().is_some_and(|bound| bound.is_v6_only),
            socket: socket.options.as_deref().cloned().unwrap_or_default(),
        };
        let mut bound = match socket.bound() {
            Some(bound) => bound,
            None => self.bind_anywhere(options.socket.port_range)?,
        };
        // The listener holds the port from here on.
        if bound.is_reserved {
            self.stack
                .tcp_release_port(&bound.hold(), bound.addr.port());
            bound.is_reserved = false;
        }
        bound.link = options.socket.link;
        let step = options.socket.rcvbuf.map_or(u64::MAX, step_for);
        let shared = options.reuse_port;
        let listened = self.stack.tcp_listen(bound.addr, options);
        let id = match listened {
            Ok(id) => id,
            Err(error) => {
                let (hold, range) = (bound.hold(), PortRange::default());
                let reserved = self
                    .stack
                    .tcp_reserve_port(hold, bound.addr.port(), true, range);
                bound.is_reserved = reserved.is_ok();
                self.note_bound(owner, bound);
                return Err(error);
            }
        };
        match self.announce(Transport::Tcp, &bound.claim(shared), true) {
            Ok(is_announced) => bound.is_announced = is_announced,
            Err(refusal) => {
                self.stack.tcp_unlisten(id).ok();
                self.note_bound(owner, bound);
                return Err(refusal);
            }
        }
        self.note_bound(owner, bound);
        self.env.listeners.set(id.index, id.generation, owner);
        if let Some(socket) = self.env.socket(owner) {
            socket.role = Role::Listener(id);
            socket.queue.get_or_insert_default();
            socket.step = socket.step.min(step);
        }
        if let Some(client) = self.env.client(owner.client) {
            client.listeners.push(owner.sock);
        }
        self.env.set_bits(owner, State::LISTENING, State::NONE);
        Ok(Reply::Bound { local: bound.addr })
    }

    pub(crate) fn on_unlisten(&mut self, owner: Owner) -> Answer {
        let socket = self.env.socket(owner).ok_or(SocketError::UnknownId)?;
        let Role::Listener(id) = socket.role else {
            return Err(SocketError::InvalidState);
        };
        let (bound, link) = (socket.bound(), socket.link());
        socket.role = Role::None;
        if let Some(client) = self.env.client(owner.client) {
            client.listeners.retain(|sock| *sock != owner.sock);
        }
        // First the frames stop coming, then the listener ends: frames received until then are
        // served.
        self.drop_binding(owner);
        let drained = match bound {
            Some(bound) if bound.is_shared => self.drain(id, bound.addr.port()),
            _ => Vec::new(),
        };
        let half_open = self.stack.tcp_detach_half_open(id);
        self.env.listeners.remove(id.index, id.generation);
        self.stack.tcp_unlisten(id).ok();
        self.pass_half_open(self.env.now, half_open, link);
        self.pass_drained(drained);
        self.record_half_open();
        self.env.set_bits(owner, State::NONE, State::LISTENING);
        Ok(Reply::Done)
    }

    /// Gives the socket's port back.
    pub(crate) fn drop_binding(&mut self, owner: Owner) {
        self.unbind(owner, false);
    }

    /// As [`Engine::drop_binding`]; `is_over`: its attempt or connection has ended.
    pub(crate) fn unbind(&mut self, owner: Owner, is_over: bool) {
        let Some(socket) = self.env.socket(owner) else {
            return;
        };
        let kind = socket.kind;
        let Some(bound) = socket.take_bound() else {
            return;
        };
        if bound.is_reserved {
            self.stack
                .tcp_release_port(&bound.hold(), bound.addr.port());
        }
        if let Some(flow) = bound.flow {
            self.env.flows.close_datagrams(flow);
        }
        if bound.is_announced
            && let Some(ports) = &self.ports
        {
            ports.listen_off((bound.addr, bound.link), kind, is_over);
        }
    }

    pub(crate) fn on_connect(&mut self, now: Instant, owner: Owner, remote: SocketAddr) -> Answer {
        let socket = self.env.socket(owner).ok_or(SocketError::UnknownId)?;
        match socket.role {
            Role::None if !socket.state.intersects(State::CONNECTED | State::LISTENING) => {}
            Role::None | Role::Listener(_) => return Err(SocketError::InvalidState),
            Role::Stream(_) | Role::Datagram(_) => return Err(SocketError::AlreadyConnected),
        }
        let options = socket.options.as_deref().cloned().unwrap_or_default();
        let mut bound = socket.bound();
        if let Some(bound) = &mut bound {
            if bound.is_reserved {
                self.stack
                    .tcp_release_port(&bound.hold(), bound.addr.port());
                bound.is_reserved = false;
            }
            if !bound.is_announced && !bound.is_picked {
                bound.is_announced = self.announce(Transport::Tcp, &bound.claim(true), false)?;
            }
        }
        if let Some(socket) = self.env.socket(owner) {
            socket.set_bound(bound);
            // A new attempt after a failed one begins clean.
            socket.state = socket
                .state
                .without(State::HUP | State::RDHUP | State::CLOSED);
        }
        // A connection that ends may still have the port that was reserved, with the same peer.
        let local = bound.map(|bound| match bound.is_picked {
            true => SocketAddr::new(bound.addr.ip(), 0),
            false => bound.addr,
        });
        if local.is_some_and(|local| self.is_on_other_engine(local, remote)) {
            return Err(SocketError::AddrNotAvailable);
        }
        let conn = self.connect_from(now, owner, local, remote, &options)?;
        self.env.conns.set(conn.index, conn.generation, owner);
        let (local, remote) = self.stack.tcp_endpoints(conn).unwrap_or((ANY, remote));
        if options.is_transparent {
            self.take_answers(local, remote);
        }
        let limits = Limits {
            send: self.stack.tcp_sndbuf(conn),
            receive: self.stack.tcp_rcvbuf(conn),
        };
        if let Some(client) = self.env.client(owner.client)
            && let Some((socket, end)) = client.find(owner.sock)
        {
            socket.role = Role::Stream(conn);
            end.set_addrs(owner.sock, Some(local), Some(remote));
            if limits.send > 0 {
                end.set_sndbuf(owner.sock, limits.send);
                end.set_rcvbuf(owner.sock, limits.receive);
            }
        }
        self.env
            .set_bits(owner, State::CONNECTING | State::BOUND, State::NONE);
        self.run_deferred(now);
        Ok(Reply::Bound { local })
    }

    /// Has the answers to an address that is not ours come here. They cannot come before the SYN
    /// has left, which is at the end of this turn.
    #[cold]
    fn take_answers(&self, local: SocketAddr, remote: SocketAddr) {
        if let Some(ports) = &self.ports
            && !self.stack.is_own(local.ip())
        {
            ports.take_flow(local, remote);
        }
    }

    /// Returns whether another engine has the connection that an attempt from this address would
    /// be.
    pub(crate) fn is_on_other_engine(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let own = match local.ip().is_unspecified() {
            true => self.stack.find_source(remote.ip().to_canonical()),
            false => Some(local.ip()),
        };
        own.is_some_and(|ip| {
            let local = SocketAddr::new(ip, local.port());
            self.env.local.is_on_other_engine(local, remote)
        })
    }

    pub(crate) fn on_close(&mut self, now: Instant, owner: Owner, mode: CloseMode, unread: bool) {
        let Some(client) = self.env.client(owner.client) else {
            return;
        };
        if let Some((socket, end)) = client.find(owner.sock)
            && let (Role::Stream(conn), false) = (socket.role, mode == CloseMode::Pass)
        {
            if socket.is_closing {
                return;
            }
            socket.is_closing = true;
            // Bytes written just before the close are still to be sent.
            let before = socket.send.head();
            let sent = socket.send.look(end, owner.sock);
            socket.receive.release(end, owner.sock);
            if sent.upto != before {
                self.stack.tcp_written(conn, sent.upto, sent.more);
            }
            self.close_stream(now, conn, mode, unread);
            return;
        }
        self.close_other(now, owner, mode);
    }

    #[inline]
    fn close_stream(&mut self, now: Instant, conn: ConnId, mode: CloseMode, unread: bool) {
        if mode == CloseMode::Abort || unread {
            self.push_before_reset(now, conn);
        }
        let mut fx = Fx::new(&mut self.env, &mut *self.device);
        self.stack.tcp_close(now, conn, mode, unread, &mut fx);
        self.run_deferred(now);
    }

    /// Sends what a program has written before the reset of a connection, as far as a peer nearby
    /// admits: the kernel sends while the program writes, and such a peer's acknowledgements have
    /// arrived before the write returns. Takes from the number of `looks`.
    #[cold]
    pub(crate) fn send_before_reset(&mut self, now: Instant, owner: Owner, looks: &mut usize) {
        let socket = self.env.socket(owner).filter(|socket| !socket.is_closing);
        let Some(Role::Stream(conn)) = socket.map(|socket| socket.role) else {
            return;
        };
        self.on_send_before_close(now, owner);
        let (mut least, mut idle) = (u64::MAX, 0);
        while *looks > 0 {
            self.push_before_reset(now, conn);
            let unsent = self.stack.tcp_unsent(conn);
            if unsent < least {
                (least, idle) = (unsent, 0);
            }
            if unsent == 0 || idle > IDLE_LOOKS_BEFORE_RESET {
                return;
            }
            let cost = 1 + self.receive(now) / FRAMES_OF_A_LOOK;
            idle += cost;
            *looks = looks.saturating_sub(cost);
        }
    }

    /// Sends data written before the reset, from a ring that is freed after it.
    #[cold]
    fn push_before_reset(&mut self, now: Instant, conn: ConnId) {
        let mut fx = Fx::new(&mut self.env, &mut *self.device);
        if self.stack.tcp_push(now, conn, &mut fx) {
            self.device.flush();
        }
    }

    /// Closes a socket that is not a connection, or one that goes to another listener.
    fn close_other(&mut self, now: Instant, owner: Owner, mode: CloseMode) {
        // Bytes written just before the close are still to be sent.
        self.on_send_before_close(now, owner);
        let Some(socket) = self.env.socket(owner) else {
            return;
        };
        if socket.is_closing {
            return;
        }
        if let (CloseMode::Pass, Role::Stream(conn)) = (mode, socket.role) {
            self.pass_later(now, owner, Some(conn));
            return;
        }
        let has_listener = socket.listener.is_some();
        if mode == CloseMode::Pass && socket.role == Role::None && has_listener {
            self.pass_later(now, owner, None);
            return;
        }
        socket.is_closing = true;
        match socket.role {
            Role::Stream(conn) => self.close_stream(now, conn, mode, true),
            Role::Listener(_) => {
                let _ = self.on_unlisten(owner);
                self.pass_waiting(now, owner);
                self.release(owner);
            }
            Role::Datagram(id) => self.close_datagram(owner, id, mode),
            Role::None => self.free(owner, false),
        }
    }

    pub(crate) fn release(&mut self, owner: Owner) {
        if let Some(client) = self.env.client(owner.client) {
            client.release(owner.sock);
        }
    }

    pub(crate) fn view(
        &self,
        client: crate::client::ClientId,
        socket: &Socket,
    ) -> crate::stats::SocketView {
        let endpoints = match socket.role {
            Role::Stream(conn) => self.stack.tcp_endpoints(conn),
            _ => None,
        };
        let bound = socket.bound().map(|bound| bound.addr);
        crate::stats::SocketView {
            client,
            is_udp: socket.kind == slipstack_channel::Transport::Udp,
            is_listening: matches!(socket.role, Role::Listener(_)),
            state: socket.state,
            local: endpoints.map(|(local, _)| local).or(bound),
            remote: endpoints.map(|(_, remote)| remote),
        }
    }
}
