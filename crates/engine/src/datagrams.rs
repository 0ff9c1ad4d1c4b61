//! UDP sockets.

use std::net::SocketAddr;

use slipstack_channel::{CloseMode, Ends, Reply, SocketError, State};
use slipstack_stack::{DatagramOut, Instant, UdpId, UdpOptions};

use crate::client::{Bound, Role};
use crate::commands::Answer;
use crate::effects::Fx;
use crate::engine::Engine;
use crate::environment::Environment;
use crate::late::of_ring;
use crate::owners::Owner;
use crate::streams::ANY;

/// Datagrams sent for one socket per command; the rest leaves in the next turn.
const SEND_BUDGET: usize = 4096;
/// Cost of the datagrams that a waiting socket sends in its turn.
const QUANTUM: i64 = 16 * 1024;
/// Turns of waiting sockets in a turn of the engine.
const ROUNDS_MAX: usize = 256;
/// Bytes of unread datagrams that go to another program; those of a socket with more are lost.
const UNREAD_BYTES_MAX: usize = 8 << 20;
/// Number of these datagrams.
const UNREAD_MAX: usize = 16 << 10;

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
        self.env.note_sharer(owner);
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
        let bound = self.bind_datagram(owner, ANY, UdpOptions::default());
        if bound.is_err() {
            self.env.counters.commands_refused += 1;
            return;
        }
        self.send_more_of(now, owner, i64::MAX);
    }

    /// Sends datagrams up to the cost `quantum`, as far as there is room; those that are left leave
    /// in the socket's turn.
    pub(crate) fn send_datagrams(&mut self, now: Instant, owner: Owner, id: UdpId, quantum: i64) {
        let mut payload = core::mem::take(&mut self.scratch);
        let stop = self.env.waiting.room_after(quantum);
        for _ in 0..SEND_BUDGET {
            let mut is_held = false;
            let Environment {
                clients, waiting, ..
            } = &mut self.env;
            let client = clients.get_mut(owner.client.0 as usize);
            let next = client.and_then(Option::as_mut).and_then(|client| {
                let (socket, end) = client.find(owner.sock)?;
                let may_go = |len| {
                    let may_go = waiting.take_room(len);
                    is_held = !may_go;
                    may_go
                };
                socket
                    .send
                    .next_datagram(end, owner.sock, &mut payload, may_go)
            });
            let Some(envelope) = next else {
                if !is_held {
                    self.scratch = payload;
                    return;
                }
                // In its turn a socket has the room that there is.
                if quantum < i64::MAX || !self.finds_room(now, owner, id) {
                    break;
                }
                continue;
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
            if self.env.waiting.is_down_to(stop) {
                break;
            }
        }
        self.scratch = payload;
        self.note_unsent(owner);
    }

    /// Asks the device for room, if that is due. Returns whether there is any.
    #[cold]
    fn asks_for_room(&mut self, now: Instant) -> bool {
        let waiting = &mut self.env.waiting;
        if waiting.is_due(now) {
            let room = self.device.datagram_room(now.0, waiting.taken());
            waiting.on_answer(now, room);
        }
        waiting.has_room()
    }

    /// Looks for room for a socket's next datagram: new room is for those that wait already. One
    /// for ourselves, or for nobody, needs none.
    #[cold]
    fn finds_room(&mut self, now: Instant, owner: Owner, id: UdpId) -> bool {
        if self.env.waiting.is_empty() && self.asks_for_room(now) {
            return true;
        }
        let client = self.env.client(owner.client);
        let peer = client.and_then(|client| {
            let (socket, end) = client.find(owner.sock)?;
            socket.send.next_peer(end)
        });
        let to = peer.or_else(|| self.stack.udp_remote(id));
        let stays_here = to.is_none_or(|to| self.stack.is_own(to.ip()));
        if stays_here {
            self.env.waiting.admit_one();
        }
        stays_here
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
        let Some(socket) = self.env.socket(owner) else {
            return;
        };
        let is_left = socket.send.head() != socket.send.acked();
        if is_left && !core::mem::replace(&mut socket.waits_to_send, true) {
            if !core::mem::replace(&mut socket.has_turn, true) {
                self.env.waiting.push(owner);
            }
            self.env.has_rest = true;
        }
    }

    /// Lets the waiting sockets send by turns while there is room.
    #[cold]
    pub(crate) fn send_unsent(&mut self, now: Instant) {
        for _ in 0..ROUNDS_MAX {
            if !self.env.waiting.has_room() && !self.asks_for_room(now) {
                break;
            }
            let Some(owner) = self.env.waiting.pop() else {
                return;
            };
            let Some(socket) = self.env.socket(owner) else {
                continue;
            };
            socket.has_turn = false;
            if core::mem::take(&mut socket.waits_to_send) {
                self.send_more_of(now, owner, QUANTUM);
                self.end_if_closed(owner);
            }
        }
        self.env.has_rest |= !self.env.waiting.is_empty();
    }

    /// Sends all that waits, whatever room there is: the engine ends.
    #[cold]
    pub(crate) fn send_all_waiting(&mut self, now: Instant) {
        self.env.waiting.let_all_go();
        while !self.env.waiting.is_empty() {
            self.send_unsent(now);
        }
    }

    /// All that was seen in the ring, before the socket is closed, as far as there is room.
    pub(crate) fn send_all_of(&mut self, now: Instant, owner: Owner) {
        while self.env.waiting.has_room()
            && let Some(socket) = self.env.socket(owner)
            && core::mem::take(&mut socket.waits_to_send)
        {
            self.send_more_of(now, owner, i64::MAX);
        }
    }

    fn send_more_of(&mut self, now: Instant, owner: Owner, quantum: i64) {
        if let Some(socket) = self.env.socket(owner)
            && let Role::Datagram(id) = socket.role
        {
            self.send_datagrams(now, owner, id, quantum);
        }
    }

    /// Closes a socket. It receives nothing more and gives its port back; its datagrams that wait
    /// still leave, as those in the kernel's queue do, unless `mode` is an abort.
    pub(crate) fn close_datagram(&mut self, owner: Owner, id: UdpId, mode: CloseMode) {
        let unread = self.take_unread(owner, id);
        self.env.forget_sharer(owner);
        let _ = self.resume_datagrams(owner);
        self.env.udps.remove(id.index, id.generation);
        let _ = self.stack.udp_retire(id);
        self.leave_group(owner);
        self.drop_binding(owner);
        for (link, frame) in unread {
            self.on_local(self.env.now, link, &frame);
        }
        let socket = self.env.socket(owner);
        let waits = socket.is_some_and(|socket| socket.waits_to_send);
        if !waits || mode == CloseMode::Abort {
            self.end_datagram(owner, id);
        }
    }

    /// Ends a socket that was closed before its last datagram could leave.
    fn end_if_closed(&mut self, owner: Owner) {
        if let Some(socket) = self.env.socket(owner)
            && socket.is_closing
            && !socket.waits_to_send
            && let Role::Datagram(id) = socket.role
        {
            self.end_datagram(owner, id);
        }
    }

    pub(crate) fn end_datagram(&mut self, owner: Owner, id: UdpId) {
        let _ = self.stack.udp_close(id);
        if let Some(socket) = self.env.socket(owner) {
            socket.role = Role::None;
        }
        self.release(owner);
    }

    /// Returns the frames of the datagrams that another program is to read, with their links. They
    /// find its socket as those that arrive later do: here, or by the keeper. Those to a group have
    /// their other readers already, and are lost.
    fn take_unread(&mut self, owner: Owner, id: UdpId) -> Vec<(u16, Vec<u8>)> {
        let client = self.env.client(owner.client);
        let Some((socket, end)) = client.and_then(|client| client.find(owner.sock)) else {
            return Vec::new();
        };
        if !socket.options.as_deref().is_some_and(|it| it.leaves_unread) {
            return Vec::new();
        }
        let unread = socket
            .receive
            .unread_datagrams(end, owner.sock, UNREAD_BYTES_MAX);
        let Some(queue) = self.queue_of(owner, id) else {
            return Vec::new();
        };
        let datagrams = unread
            .iter()
            .map(|(envelope, payload)| of_ring(envelope, payload));
        let sound = datagrams.filter(|it| queue.takes(it, &self.stack));
        sound
            .flat_map(|it| self.frames_of(&it))
            .take(UNREAD_MAX)
            .collect()
    }
}
