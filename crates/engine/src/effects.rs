//! The stack's effects on the clients' rings and the device.

use std::net::{IpAddr, SocketAddr};

use slipstack_channel::{Ends, Envelope, Returned, ReturnedRing, State, Transport};
use slipstack_device::{Device, ProgramMap, Rest};
use slipstack_stack::{
    Absent, ConnId, ConnectionOrigin, DatagramIn, Effects, Event, FrameOut, GroupFilter,
    IcmpDetails, IpMeta, LinkedGroup, ListenerId, Member, Reason, UdpId,
};

use crate::accept_queue::AcceptQueue;
use crate::client::Role;
use crate::environment::Environment;
use crate::owners::{Deferred, Owner};

/// The effects of an engine's stack: on the environment, and on the device while it takes frames.
pub(crate) struct Fx<'a> {
    pub(crate) env: &'a mut Environment,
    device: Option<&'a mut dyn Device>,
    /// The part of the frame at hand that the device has not fetched.
    rest: Option<&'a mut dyn Rest>,
}

impl<'a> Fx<'a> {
    #[inline(always)]
    pub(crate) fn new(env: &'a mut Environment, device: &'a mut dyn Device) -> Fx<'a> {
        Fx {
            env,
            device: Some(device),
            rest: None,
        }
    }

    /// Effects while the device delivers received frames.
    #[inline(always)]
    pub(crate) fn receiving(env: &'a mut Environment) -> Fx<'a> {
        Fx {
            env,
            device: None,
            rest: None,
        }
    }

    /// While the device hands over a frame that it has not fetched yet.
    pub(crate) fn fetching(env: &'a mut Environment, rest: &'a mut dyn Rest) -> Fx<'a> {
        Fx {
            env,
            device: None,
            rest: Some(rest),
        }
    }
}

impl Effects for Fx<'_> {
    fn is_elsewhere(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        !self.env.local.has_flow(local, remote)
    }

    #[inline]
    fn transmit(&mut self, frame: FrameOut<'_>) {
        if frame.local {
            self.env.send_local(&frame);
            return;
        }
        match &mut self.device {
            Some(device) => self.env.send(&mut **device, &frame),
            None => {
                if !self.env.queue.push(&frame) {
                    self.env.counters.tx_full += 1;
                }
            }
        }
    }

    #[inline]
    fn store(&mut self, conn: ConnId, offset: u64, bytes: &[u8]) -> bool {
        let now = self.env.now;
        let Some(owner) = self.env.conn_owner(conn) else {
            return self.env.store_drained(conn, offset, bytes);
        };
        let Some(client) = self.env.client(owner.client) else {
            return false;
        };
        let Some((socket, end)) = client.find(owner.sock) else {
            return false;
        };
        socket.received_at = now;
        if socket.is_closing {
            // The data will not be read; the stack answers it as the RFC requires.
            return true;
        }
        let stored = socket.receive.store(end, owner.sock, offset, bytes);
        if !socket.is_listed && socket.receive.has_ring() {
            client.list_holder(owner.sock);
        }
        if !stored {
            self.env.counters.rx_no_room += 1;
            return self.store_after_release(owner, offset, bytes);
        }
        true
    }

    fn fetch(&mut self, conn: ConnId, offset: u64, absent: Absent) -> bool {
        let Some(rest) = self.rest.take() else {
            return false;
        };
        let now = self.env.now;
        let Some(owner) = self.env.conn_owner(conn) else {
            return false;
        };
        let Some(client) = self.env.client(owner.client) else {
            return false;
        };
        let Some((socket, end)) = client.find(owner.sock) else {
            return false;
        };
        if socket.is_closing {
            return false;
        }
        socket.received_at = now;
        let at = (offset, absent.len);
        let is_stored = socket
            .receive
            .store_with(end, owner.sock, at, |into| rest.fetch(absent.from, into));
        if !socket.is_listed && socket.receive.has_ring() {
            client.list_holder(owner.sock);
        }
        is_stored
    }

    fn find_neighbour(&self, ip: IpAddr) -> Option<[u8; 6]> {
        self.env.find_neighbour(ip)
    }

    fn datagram(&mut self, udp: UdpId, datagram: &DatagramIn<'_>) {
        let now = self.env.now;
        if datagram.is_to_group && !datagram.is_copy {
            self.env.shared.served.clear();
        }
        let Some(owner) = self.env.udp_owner(udp) else {
            return;
        };
        if !self.env.owned.is_empty() && self.env.hand_over(owner, datagram) {
            return;
        }
        let Some(owner) = self.env.choose_sharer(owner, datagram) else {
            return;
        };
        let envelope = Envelope {
            peer: Some(datagram.from),
            local: Some(datagram.to),
            tos: Some(datagram.tos),
            ttl: Some(datagram.ttl),
            segment: datagram.segment,
            time_ns: now.0,
            lost: 0,
            link: Some(datagram.link),
            mark: None,
            class: None,
        };
        self.env.push_datagram(owner, envelope, datagram.payload);
    }

    #[inline]
    fn event(&mut self, event: Event) {
        let env = &mut *self.env;
        match event {
            Event::Received { conn, upto } => env.on_received(conn, upto),
            Event::Acked { conn, upto } => env.on_acked(conn, upto),
            Event::SendLimit { conn, bytes } => env.on_send_limit(conn, bytes),
            Event::Accepted {
                listener,
                conn,
                local,
                remote,
                origin,
            } => env.on_accepted(listener, conn, &Ends::of(local, remote), origin),
            Event::Connected { conn } => env.on_connected(conn),
            Event::Opening { conn } => env.on_opening(conn),
            Event::Failed { conn, reason } => env.on_failed(conn, reason),
            Event::Urgent { conn, at, byte } => env.on_urgent(conn, at, byte),
            Event::Fin { conn } => env.on_fin(conn),
            Event::Released { conn } => env.on_released(conn),
            Event::FlowOpened {
                conn,
                local,
                remote,
            } => {
                env.flows.open(conn, &Ends::of(local, remote));
            }
            Event::UdpFailed { udp, reason } => {
                if let Some(owner) = env.udp_owner(udp) {
                    env.fail(owner, reason, State::NONE);
                }
            }
            // The keeper handles neighbours; the stack keeps those that it learns by itself.
            Event::Neighbour { .. } | Event::Conflict { .. } => {}
        }
    }

    fn group(&mut self, group: LinkedGroup, filter: &GroupFilter) {
        self.env.tell_group(group, filter);
    }

    fn returned(&mut self, udp: UdpId, to: SocketAddr, reason: Reason, details: &IcmpDetails<'_>) {
        let now = self.env.now;
        let Some(owner) = self.env.udp_owner(udp) else {
            return;
        };
        let Some(client) = self.env.client(owner.client) else {
            return;
        };
        let Some((socket, end)) = client.find(owner.sock) else {
            return;
        };
        if socket.returned.is_none() {
            socket.returned = ReturnedRing::new(end, owner.sock).map(Box::new);
        }
        let it = Returned {
            reason,
            to,
            offender: details.offender,
            kind: details.kind,
            code: details.code,
            info: details.info,
            local: details.local,
            time_ns: now.0,
            tos: details.tos,
            ttl: details.ttl,
            len: details.payload.len(),
        };
        let ring = socket.returned.as_mut();
        if !ring.is_some_and(|ring| ring.push(end, owner.sock, &it, details.payload)) {
            self.env.counters.returned_lost += 1;
        }
    }

    fn stray(&mut self, ip: &IpMeta, segment: &[u8]) -> bool {
        self.env.send_stray(ip, segment)
    }

    fn stray_datagram(&mut self, datagram: &DatagramIn<'_>, is_to_group: bool) -> bool {
        // The keeper sends multicast datagrams to all engines.
        !is_to_group && self.env.send_stray_datagram(datagram)
    }

    fn chosen_datagram(&mut self, member: Member, datagram: &DatagramIn<'_>) -> bool {
        self.env.send_chosen_datagram(member, datagram)
    }

    fn key_len(&self, map: u32) -> Option<usize> {
        self.env.map(map).map(ProgramMap::key_len)
    }

    fn look_up(&mut self, map: u32, key: &[u8]) -> Option<Vec<u8>> {
        self.env.map(map)?.look_up(key)
    }

    fn monotonic_ns(&self) -> u64 {
        slipstack_mem::now_ns()
    }

    fn processor(&self) -> u32 {
        u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(0)
    }

    fn has_unread(&mut self, conn: ConnId) -> bool {
        let Some(owner) = self.env.conn_owner(conn) else {
            return false;
        };
        let Some(client) = self.env.client(owner.client) else {
            return false;
        };
        client
            .find(owner.sock)
            .is_some_and(|(socket, end)| socket.receive.has_unread(end, owner.sock))
    }
}

impl Fx<'_> {
    /// The arena is full or the ring at its largest: takes idle rings back and tries once more.
    #[cold]
    fn store_after_release(&mut self, owner: Owner, offset: u64, bytes: &[u8]) -> bool {
        let now = self.env.now;
        let Some(client) = self.env.client(owner.client) else {
            return false;
        };
        client.release_idle(now, true);
        let Some((socket, end)) = client.find(owner.sock) else {
            return false;
        };
        let stored = socket.receive.store(end, owner.sock, offset, bytes);
        client.list_holder(owner.sock);
        stored
    }
}

impl Environment {
    #[inline]
    fn on_received(&mut self, conn: ConnId, upto: u64) {
        let Some(owner) = self.conn_owner(conn) else {
            return;
        };
        if let Some(client) = self.client(owner.client)
            && let Some((socket, end)) = client.find(owner.sock)
            && !socket.is_closing
        {
            socket.receive.publish(end, owner.sock, upto, socket.step);
        }
    }

    #[inline]
    fn on_acked(&mut self, conn: ConnId, upto: u64) {
        let Some(owner) = self.conn_owner(conn) else {
            return;
        };
        if let Some(client) = self.client(owner.client)
            && let Some((socket, end)) = client.find(owner.sock)
        {
            let is_watched = socket.send.on_acked(end, owner.sock, upto);
            if is_watched && !socket.is_tell_due {
                socket.is_tell_due = true;
                self.deferred.push(Deferred::TellSent(conn));
            }
        }
    }

    fn on_send_limit(&mut self, conn: ConnId, bytes: u32) {
        let Some(owner) = self.conn_owner(conn) else {
            return;
        };
        if let Some(client) = self.client(owner.client)
            && let Some((socket, end)) = client.find(owner.sock)
        {
            end.set_sndbuf(owner.sock, bytes);
            socket.send.wake_writer(end, owner.sock);
        }
    }

    fn on_accepted(
        &mut self,
        listener: ListenerId,
        conn: ConnId,
        ends: &Ends,
        origin: Option<ConnectionOrigin>,
    ) {
        let place = self.flows.open(conn, ends);
        if let Some(drained) = &mut self.drained
            && drained.take(listener, conn)
        {
            return;
        }
        let listener_owner = self.listener_owner(listener);
        let accepted = listener_owner.and_then(|owner| self.offer_to_idle(owner, conn, ends));
        match accepted {
            Some(owner) => {
                self.conns.set(conn.index, conn.generation, owner);
                self.counters.accepted += 1;
                if let (Some(place), Some(origin)) = (place, origin) {
                    self.flows.describe(owner, place, &origin);
                }
            }
            None => {
                self.counters.accept_refused += 1;
                if let Some(owner) = self.listener_owner(listener)
                    && let Some(client) = self.client(owner.client)
                    && let Some((socket, _)) = client.find(owner.sock)
                    && let Some(queue) = &mut socket.queue
                {
                    queue.on_refused();
                    client.has_waiting = true;
                    self.has_rest = true;
                }
                self.deferred.push(Deferred::Abort(conn));
            }
        }
    }

    /// As [`Environment::offer`], to a listener that waits.
    fn offer_to_idle(&mut self, listener: Owner, conn: ConnId, ends: &Ends) -> Option<Owner> {
        let taker = self.find_idle(listener);
        let accepted = self.offer(taker, Role::Stream(conn), ends)?;
        if taker != listener {
            for (owner, note) in [
                (listener, AcceptQueue::on_refused as fn(&mut AcceptQueue)),
                (taker, AcceptQueue::on_passed_in),
            ] {
                if let Some(socket) = self.socket(owner)
                    && let Some(queue) = &mut socket.queue
                {
                    note(queue);
                }
            }
            if let Some(client) = self.client(listener.client) {
                client.has_waiting = true;
            }
        }
        Some(accepted)
    }

    /// Gives a connection to a listener's program as a new socket. [`Role::None`]: one that has
    /// ended.
    pub(crate) fn offer(&mut self, listener: Owner, role: Role, ends: &Ends) -> Option<Owner> {
        let (initial, now) = (self.initial, self.now);
        let client = self.client(listener.client)?;
        let (socket, end) = client.find(listener.sock)?;
        let step = socket.step;
        let sock = end.accepted(listener.sock, ends, socket.limits(initial))?;
        let due_at = socket.queue.as_mut().map(|queue| queue.on_offered(now));
        let socket = client.begin(sock, Transport::Tcp)?;
        socket.role = role;
        socket.state = State::CONNECTED | State::BOUND;
        socket.step = step;
        socket.listener = Some(listener.sock);
        socket.accepted_ends = Some(*ends);
        client.has_waiting = true;
        self.left_at = due_at.map_or(self.left_at, |at| at.min(self.left_at));
        self.has_rest = true;
        Some(Owner {
            client: listener.client,
            sock,
        })
    }

    fn on_connected(&mut self, conn: ConnId) {
        let Some(owner) = self.conn_owner(conn) else {
            return;
        };
        self.counters.connected += 1;
        let before = State::CONNECTING | State::OPENING;
        self.set_bits(owner, State::CONNECTED, before);
        self.deferred.push(Deferred::Describe(conn));
    }

    #[cold]
    fn on_opening(&mut self, conn: ConnId) {
        if let Some(owner) = self.conn_owner(conn) {
            let now = State::CONNECTED | State::OPENING;
            self.set_bits(owner, now, State::CONNECTING);
        }
    }

    #[cold]
    fn on_urgent(&mut self, conn: ConnId, at: u64, byte: Option<u8>) {
        let Some(owner) = self.conn_owner(conn) else {
            if let Some(drained) = &mut self.drained {
                drained.on_urgent(conn, at, byte);
            }
            return;
        };
        if let Some(client) = self.client(owner.client)
            && let Some((socket, end)) = client.find(owner.sock)
            && !socket.is_closing
        {
            socket.receive.mark_urgent(end, owner.sock, at, byte);
        }
    }

    #[cold]
    fn store_drained(&mut self, conn: ConnId, offset: u64, bytes: &[u8]) -> bool {
        let drained = self.drained.as_mut();
        drained.is_some_and(|it| it.store(conn, offset, bytes))
    }

    fn on_fin(&mut self, conn: ConnId) {
        let Some(owner) = self.conn_owner(conn) else {
            if let Some(drained) = &mut self.drained {
                drained.on_fin(conn);
            }
            return;
        };
        let is_shut = self
            .socket(owner)
            .is_some_and(|socket| socket.state.contains(State::SHUT));
        let bits = if is_shut {
            State::FIN | State::RDHUP | State::HUP
        } else {
            State::FIN | State::RDHUP
        };
        self.set_bits(owner, bits, State::NONE);
    }

    fn on_failed(&mut self, conn: ConnId, reason: Reason) {
        if let Some(owner) = self.conn_owner(conn) {
            let bits = State::HUP | State::RDHUP | State::CLOSED;
            self.fail(owner, reason, bits);
            let bound = self.socket(owner).and_then(|socket| socket.bound());
            if bound.is_some_and(|bound| bound.is_announced) {
                self.deferred.push(Deferred::Unbind(owner));
            }
        }
    }

    /// Notes an error for the program to take.
    pub(crate) fn fail(&mut self, owner: Owner, reason: Reason, bits: State) {
        if let Some(socket) = self.socket(owner) {
            socket.reason = Some(reason);
            // 0 means "no error so far" on the program's side.
            socket.errors = socket.errors.wrapping_add(1).max(1);
        }
        self.set_bits(owner, bits | State::ERR, State::CONNECTING);
    }

    pub(crate) fn set_bits(&mut self, owner: Owner, add: State, remove: State) {
        let Some(client) = self.client(owner.client) else {
            return;
        };
        if let Some((socket, _)) = client.find(owner.sock) {
            socket.state = socket.state.without(remove) | add;
            client.publish(owner.sock);
        }
    }

    fn on_released(&mut self, conn: ConnId) {
        self.flows.close(conn);
        let Some(owner) = self.conn_owner(conn) else {
            return;
        };
        self.conns.remove(conn.index, conn.generation);
        let Some(client) = self.client(owner.client) else {
            return;
        };
        let Some((socket, _)) = client.find(owner.sock) else {
            return;
        };
        socket.role = Role::None;
        if socket.is_closing && socket.bound().is_some_and(|bound| bound.is_announced) {
            self.deferred.push(Deferred::Free(owner));
        } else if socket.is_closing {
            client.release(owner.sock);
        } else {
            self.set_bits(
                owner,
                State::CLOSED | State::HUP | State::RDHUP,
                State::NONE,
            );
        }
    }
}
