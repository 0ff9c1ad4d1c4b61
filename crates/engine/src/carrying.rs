//! Moves of a connection from one engine to another, whose thread or process uses it, or from one
//! program of an instance to another.
//!
//! Received data that was not read moves with the connection. Sent data that was not acknowledged
//! is in a ring of the program's: between programs, the new one has put a copy into its own ring
//! before it takes the connection; between threads, a connection moves only if there is none. The
//! program opens a socket for it at the new engine, and closes the old one.
//!
//! A connection that both sides have ended, or that has failed, is in no stack any more: its unread
//! bytes and its state move.

mod form;

pub(crate) use form::Carried;
pub use form::carried_head;
use form::{BYTES_MAX, Whereabouts};

use std::net::SocketAddr;

use slipstack_channel::{
    Ends, EngineEnd, InboxMessage, Reply, SockId, SocketError, State, Transport, UrgentAhead,
};
use slipstack_stack::{ConnectionImage, Instant};

use crate::client::{ClientId, Role, Socket};
use crate::commands::Answer;
use crate::effects::Fx;
use crate::engine::Engine;
use crate::environment::Environment;
use crate::local::Interconnect;
use crate::owners::Owner;

/// Most offers that have not been taken up.
const OFFERS_MAX: usize = 1024;

impl Engine {
    /// The only program of an engine in a process.
    fn owner_of(&self, sock: SockId) -> Option<Owner> {
        let client: ClientId = self.env.client_ids().next()?;
        Some(Owner { client, sock })
    }

    /// Takes a connection out; the socket is left without one.
    pub(crate) fn carry_out(&mut self, now: Instant, sock: SockId) -> Option<Box<Carried>> {
        self.commands(now);
        let owner = self.owner_of(sock)?;
        self.take_out(now, owner, 0, None)
    }

    /// Takes a connection out if the peer has not acknowledged at most `unacked_max` sent bytes, so
    /// many as the new socket has or gets, and if the program has written no more than `upto`.
    pub(crate) fn take_out(
        &mut self,
        now: Instant,
        owner: Owner,
        unacked_max: u64,
        upto: Option<u64>,
    ) -> Option<Box<Carried>> {
        let client = self.env.client(owner.client)?;
        let (socket, end) = client.find(owner.sock)?;
        let state = socket.state;
        if socket.is_closing || !state.contains(State::CONNECTED) {
            return None;
        }
        let Role::Stream(conn) = socket.role else {
            // Threads share it where it is.
            return upto.and_then(|_| self.take_ended_out(owner));
        };
        if state.intersects(State::ERR | State::CLOSED) {
            return None;
        }
        let sent = socket.send.look(end, owner.sock);
        let has_more = upto.is_some_and(|upto| upto != sent.upto);
        if has_more || sent.upto - socket.send.acked() > unacked_max {
            return None;
        }
        self.stack.tcp_written(conn, sent.upto, sent.more);
        let read = socket.receive.look(end, owner.sock);
        let bytes = socket.receive.rest(end, BYTES_MAX)?;
        let urgent = socket.receive.urgent_ahead(end, owner.sock);
        if upto.is_none() && urgent != UrgentAhead::default() {
            return None;
        }
        if let Some(rcvbuf) = self.stack.tcp_consumed(now, conn, read) {
            self.note_rcvbuf(owner, rcvbuf);
        }
        let image = self.stack.tcp_detach(conn)?.without_ranges();
        self.env.conns.remove(conn.index, conn.generation);
        self.env.flows.close(conn);
        if let Some(socket) = self.env.socket(owner) {
            socket.role = Role::None;
        }
        self.env.counters.carried_out += 1;
        Some(Box::new(Carried {
            place: Whereabouts::Transit(Box::new(image)),
            state,
            reason: None,
            urgent,
            bytes,
        }))
    }

    /// As [`Engine::take_out`], for a connection that is in no stack any more.
    #[cold]
    fn take_ended_out(&mut self, owner: Owner) -> Option<Box<Carried>> {
        let (socket, end) = self.env.client(owner.client)?.find(owner.sock)?;
        if socket.role != Role::None || !socket.state.contains(State::CLOSED) {
            return None;
        }
        let (local, remote) = end.addrs(owner.sock)?;
        socket.receive.look(end, owner.sock);
        let carried = Carried {
            place: Whereabouts::Nowhere(local, remote),
            state: socket.state,
            reason: socket.reason,
            urgent: socket.receive.urgent_ahead(end, owner.sock),
            bytes: socket.receive.rest(end, BYTES_MAX)?,
        };
        self.env.counters.carried_out += 1;
        Some(Box::new(carried))
    }

    /// Takes a connection in as a socket that the program has opened, or to which it comes back.
    /// Its ends.
    ///
    /// # Errors
    /// There is no place for it here.
    pub(crate) fn carry_in(
        &mut self,
        now: Instant,
        sock: SockId,
        carried: Box<Carried>,
    ) -> Result<(SocketAddr, SocketAddr), Box<Carried>> {
        self.commands(now);
        let Some(owner) = self.owner_of(sock) else {
            return Err(carried);
        };
        let ends = self.put_in(now, owner, carried)?;
        self.run_deferred(now);
        self.finish(now);
        Ok(ends)
    }

    pub(crate) fn put_in(
        &mut self,
        now: Instant,
        owner: Owner,
        carried: Box<Carried>,
    ) -> Result<(SocketAddr, SocketAddr), Box<Carried>> {
        let Some((is_new, written)) = self.env.look_at_taker(owner) else {
            return Err(carried);
        };
        let image = match &carried.place {
            Whereabouts::Transit(image) => image,
            Whereabouts::Nowhere(local, remote) => {
                let ends = (*local, *remote);
                return self.env.put_ended_in(owner, carried, is_new).map(|()| ends);
            }
        };
        let image = match is_new {
            true => image.renumbered(written),
            false => Some(ConnectionImage::clone(image)),
        };
        let Some(image) = image else {
            return Err(carried);
        };
        // The bytes have been acknowledged to the peer: without them the connection is useless.
        // They are still in the ring of the old engine if it comes back there.
        if is_new && !self.env.store_carried(owner, &carried.bytes) {
            return Err(carried);
        }
        let mut fx = Fx::new(&mut self.env, &mut *self.device);
        let Ok(conn) = self.stack.tcp_adopt(now, &image, &mut fx) else {
            return Err(carried);
        };
        let Some(ends) = self.stack.tcp_endpoints(conn) else {
            return Err(carried);
        };
        self.env.conns.set(conn.index, conn.generation, owner);
        self.env.flows.open(conn, &Ends::of(ends.0, ends.1));
        self.describe(conn);
        let (sndbuf, rcvbuf) = (self.stack.tcp_sndbuf(conn), self.stack.tcp_rcvbuf(conn));
        if let Some(client) = self.env.client(owner.client)
            && let Some((socket, end)) = client.find(owner.sock)
        {
            let sock = owner.sock;
            socket.role = Role::Stream(conn);
            end.set_addrs(sock, Some(ends.0), Some(ends.1));
            end.set_sndbuf(sock, sndbuf);
            end.set_rcvbuf(sock, rcvbuf);
            if let Some((acked, _)) = image.send_offsets().filter(|_| is_new) {
                socket.send.on_acked(end, sock, acked);
            }
            if is_new {
                socket.receive.restore_urgent(end, sock, carried.urgent);
            }
            if is_new && !carried.bytes.is_empty() {
                let (upto, step) = (carried.bytes.len() as u64, socket.step);
                socket.receive.publish(end, sock, upto, step);
            }
            client.list_holder(sock);
        }
        self.env.set_bits(owner, carried.bits(), State::NONE);
        self.env.counters.carried_in += 1;
        Ok(ends)
    }

    /// The device's slot that this engine has.
    pub(crate) fn slot(&self) -> Option<u16> {
        let interconnect = self.env.local.interconnect.as_ref();
        interconnect.map(Interconnect::own_slot)
    }

    /// Frames of a connection that has come from another engine come here from now on.
    pub(crate) fn steer_carried(&mut self, (local, remote): (SocketAddr, SocketAddr)) {
        if let Some(ports) = &self.ports {
            ports.bring_flow(local, remote);
        }
    }

    /// As [`Engine::carry_out`], for an engine of another process whose program has a copy of the
    /// bytes before `upto`. Frames of the connection wait here.
    pub(crate) fn carry_off(&mut self, now: Instant, sock: SockId, upto: u64) -> Option<Vec<u8>> {
        self.commands(now);
        let owner = self.owner_of(sock)?;
        let carried = self.take_out(now, owner, u64::MAX, Some(upto))?;
        if let Some(ends) = carried.endpoints() {
            self.env.departed.begin(ends, now);
        }
        Some(carried.to_bytes())
    }

    /// As [`Engine::carry_in`], for the output of [`Engine::carry_off`] of this or another engine.
    /// Returns both ends if its frames are to come here.
    pub(crate) fn carry_on(
        &mut self,
        now: Instant,
        sock: SockId,
        bytes: &[u8],
    ) -> Option<Option<(SocketAddr, SocketAddr)>> {
        let carried = Box::new(Carried::from_bytes(bytes)?);
        let has_frames = carried.endpoints().is_some();
        let ends = self.carry_in(now, sock, carried).ok()?;
        if !has_frames {
            return Some(None);
        }
        for (link, frame) in self.env.departed.come_back(ends) {
            self.on_local(now, link, &frame);
        }
        self.finish(now);
        Some(Some(ends))
    }

    /// Notes that the connection of [`Engine::carry_off`] is on the engine of `slot`.
    pub(crate) fn on_carried(&mut self, bytes: &[u8], slot: u16) {
        let ends = Carried::from_bytes(bytes).and_then(|it| it.endpoints());
        let (Some(ends), Some(interconnect)) = (ends, &self.env.local.interconnect) else {
            return;
        };
        for (link, frame) in self.env.departed.arrive(ends, slot) {
            let frame = &frame;
            let message = InboxMessage::Frame { link, frame };
            let is_taken = interconnect.post(usize::from(slot), &message);
            self.env.counters.local_lost += u64::from(!is_taken);
        }
    }

    /// Lets a client that knows `key` take over a connection, if its program writes no more than
    /// `upto`.
    pub(crate) fn on_offer(&mut self, owner: Owner, key: u128, upto: Option<u64>) -> Answer {
        let env = &mut self.env;
        env.socket(owner).ok_or(SocketError::UnknownId)?;
        if env.offers.len() >= OFFERS_MAX {
            let mut offers = std::mem::take(&mut env.offers);
            offers.retain(|_, (owner, _)| env.socket(*owner).is_some());
            env.offers = offers;
            env.forget_withdrawn();
        }
        if env.offers.len() >= OFFERS_MAX || env.offers.contains_key(&key) {
            return Err(SocketError::LimitReached);
        }
        env.offers.insert(key, (owner, upto));
        Ok(Reply::Done)
    }

    /// A program takes a connection that another one has offered.
    pub(crate) fn on_claim(&mut self, now: Instant, owner: Owner, key: u128) -> Answer {
        let from = self.env.offers.remove(&key);
        let (from, upto) = from.ok_or(SocketError::NotPermitted)?;
        if let Some(has) = self.env.lent_offers.remove(&key) {
            return self.on_claim_lent(now, (owner, from), upto, has);
        }
        let (_, written) = self.env.look_at_taker(owner).unwrap_or_default();
        let carried = self
            .take_out(now, from, written, upto)
            .ok_or(SocketError::InvalidState)?;
        match self.put_in(now, owner, carried) {
            Ok(_) => Ok(Reply::Done),
            Err(carried) => {
                let _ = self.put_in(now, from, carried);
                Err(SocketError::LimitReached)
            }
        }
    }
}

impl Environment {
    /// Drops what came with offers that are there no longer.
    pub(crate) fn forget_withdrawn(&mut self) {
        let (lent, offers) = (&mut self.lent_offers, &self.offers);
        lent.retain(|key, _| offers.contains_key(key));
    }

    /// Returns whether a socket without a connection has not had one, and the number of bytes that
    /// its program has put into its send ring.
    pub(crate) fn look_at_taker(&mut self, owner: Owner) -> Option<(bool, u64)> {
        let (socket, end) = self.client(owner.client)?.find(owner.sock)?;
        let may_take = socket.kind == Transport::Tcp && socket.role == Role::None;
        let is_unused = socket.receive.head() == 0 && socket.send.acked() == 0;
        let is_new = is_unused && !socket.state.contains(State::CLOSED);
        may_take.then(|| (is_new, socket.send.look(end, owner.sock).upto))
    }

    /// Makes a new socket, or the one that it has left, one whose connection has ended.
    #[cold]
    fn put_ended_in(
        &mut self,
        owner: Owner,
        carried: Box<Carried>,
        is_new: bool,
    ) -> Result<(), Box<Carried>> {
        let Whereabouts::Nowhere(local, remote) = carried.place else {
            return Err(carried);
        };
        if is_new && !self.store_carried(owner, &carried.bytes) {
            return Err(carried);
        }
        if is_new
            && let Some(client) = self.client(owner.client)
            && let Some((socket, end)) = client.find(owner.sock)
        {
            end.set_addrs(owner.sock, Some(local), Some(remote));
            socket
                .receive
                .restore_urgent(end, owner.sock, carried.urgent);
            let (upto, step) = (carried.bytes.len() as u64, socket.step);
            socket.receive.publish(end, owner.sock, upto, step);
            client.list_holder(owner.sock);
        }
        match carried.reason {
            Some(reason) if is_new => self.fail(owner, reason, carried.bits()),
            _ => self.set_bits(owner, carried.bits(), State::NONE),
        }
        self.counters.carried_in += 1;
        Ok(())
    }

    /// Puts the received bytes of a connection into the ring of the socket that is to have it.
    fn store_carried(&mut self, owner: Owner, bytes: &[u8]) -> bool {
        let found = self.client(owner.client);
        let found = found.and_then(|client| client.find(owner.sock));
        let store = |(socket, end): (&mut Socket, &mut EngineEnd)| {
            socket.receive.store(end, owner.sock, 0, bytes)
        };
        bytes.is_empty() || found.is_some_and(store)
    }
}
