//! Moves of a connection from one engine to another, whose thread or process uses it, or from one
//! program of an instance to another.
//!
//! Received data that was not read moves with the connection. Sent data that was not acknowledged
//! is in a ring of the program's: between programs, the new one has put a copy into its own ring
//! before it takes the connection; between threads, a connection moves only if there is none. The
//! program opens a socket for it at the new engine, and closes the old one.

use std::net::SocketAddr;

use slipstack_channel::{
    Ends, EngineEnd, InboxMessage, Reply, SockId, SocketError, State, Transport,
};
use slipstack_stack::{ConnectionImage, Instant};

use crate::client::{ClientId, Role, Socket};
use crate::commands::Answer;
use crate::effects::Fx;
use crate::engine::Engine;
use crate::environment::Environment;
use crate::local::Interconnect;
use crate::owners::Owner;

/// Received bytes that go along at most: more than a receive buffer has by default.
const BYTES_MAX: usize = 8 << 20;
/// The first word of an image that goes to another process.
const MAGIC: u64 = u64::from_le_bytes(*b"slipcon1");
/// Most offers that have not been taken up.
const OFFERS_MAX: usize = 1024;

/// Bits of a socket's state that hold wherever it is.
const CARRIED: [State; 6] = [
    State::CONNECTED,
    State::BOUND,
    State::FIN,
    State::RDHUP,
    State::SHUT,
    State::HUP,
];
/// A connection in one of these states does not move.
const ENDED: [State; 2] = [State::ERR, State::CLOSED];

/// One on its way.
#[derive(Debug)]
pub(crate) struct Carried {
    image: ConnectionImage,
    state: State,
    bytes: Vec<u8>,
}

impl Carried {
    /// For an engine of another process.
    fn to_bytes(&self) -> Vec<u8> {
        let bits = (0..)
            .zip(CARRIED)
            .filter(|(_, bit)| self.state.contains(*bit));
        let bits: u64 = bits.map(|(at, _)| 1 << at).sum();
        let mut all = Vec::with_capacity(16 + ConnectionImage::LEN + self.bytes.len());
        all.extend(MAGIC.to_le_bytes());
        all.extend(bits.to_le_bytes());
        all.extend(self.image.to_bytes());
        all.extend(&self.bytes);
        all
    }

    /// `None`: these are no connection's bytes. The stack checks the image.
    fn from_bytes(all: &[u8]) -> Option<Carried> {
        let (magic, rest) = all.split_first_chunk()?;
        let (bits, rest) = rest.split_first_chunk()?;
        let (image, bytes) = rest.split_first_chunk()?;
        let bits = u64::from_le_bytes(*bits);
        let state = (0..).zip(CARRIED).filter(|(at, _)| bits >> at & 1 == 1);
        let carried = Carried {
            image: ConnectionImage::from_bytes(image),
            state: state.fold(State::NONE, |all, (_, bit)| all | bit),
            bytes: bytes.to_vec(),
        };
        (u64::from_le_bytes(*magic) == MAGIC && bytes.len() <= BYTES_MAX).then_some(carried)
    }
}

/// Returns the part before the received bytes of a connection that does not come from another
/// engine ([`slipstack_channel::Driver::carry_in`]).
pub fn carried_head(image: ConnectionImage, has_fin: bool) -> Vec<u8> {
    let end = match has_fin {
        true => State::FIN | State::RDHUP,
        false => State::NONE,
    };
    let carried = Carried {
        image,
        state: State::CONNECTED | State::BOUND | end,
        bytes: Vec::new(),
    };
    carried.to_bytes()
}

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
    fn take_out(
        &mut self,
        now: Instant,
        owner: Owner,
        unacked_max: u64,
        upto: Option<u64>,
    ) -> Option<Box<Carried>> {
        let client = self.env.client(owner.client)?;
        let (socket, end) = client.find(owner.sock)?;
        let Role::Stream(conn) = socket.role else {
            return None;
        };
        let state = socket.state;
        let has_ended = ENDED.iter().any(|bit| state.contains(*bit));
        if has_ended || socket.is_closing || !state.contains(State::CONNECTED) {
            return None;
        }
        let sent = socket.send.look(end, owner.sock);
        let has_more = upto.is_some_and(|upto| upto != sent.upto);
        if has_more || sent.upto - socket.send.acked() > unacked_max {
            return None;
        }
        self.stack.tcp_written(conn, sent.upto, sent.more);
        let read = socket.receive.look(end, owner.sock);
        let bytes = socket.receive.rest(end, owner.sock, BYTES_MAX)?;
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
            image,
            state,
            bytes,
        }))
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

    fn put_in(
        &mut self,
        now: Instant,
        owner: Owner,
        carried: Box<Carried>,
    ) -> Result<(SocketAddr, SocketAddr), Box<Carried>> {
        let Some((is_new, written)) = self.env.look_at_taker(owner) else {
            return Err(carried);
        };
        let image = match is_new {
            true => carried.image.renumbered(written),
            false => Some(carried.image.clone()),
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
            if is_new && !carried.bytes.is_empty() {
                let (upto, step) = (carried.bytes.len() as u64, socket.step);
                socket.receive.publish(end, sock, upto, step);
            }
            client.list_holder(sock);
        }
        let state = carried.state;
        let bits = CARRIED.into_iter().filter(|bit| state.contains(*bit));
        let bits = bits.fold(State::NONE, |all, bit| all | bit);
        self.env.set_bits(owner, bits, State::NONE);
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
        if let Some(ends) = carried.image.endpoints() {
            self.env.departed.begin(ends, now);
        }
        Some(carried.to_bytes())
    }

    /// As [`Engine::carry_in`], for the output of [`Engine::carry_off`] of this or another engine.
    /// Returns both ends.
    pub(crate) fn carry_on(
        &mut self,
        now: Instant,
        sock: SockId,
        bytes: &[u8],
    ) -> Option<(SocketAddr, SocketAddr)> {
        let carried = Box::new(Carried::from_bytes(bytes)?);
        let ends = self.carry_in(now, sock, carried).ok()?;
        for (link, frame) in self.env.departed.come_back(ends) {
            self.on_local(now, link, &frame);
        }
        self.finish(now);
        Some(ends)
    }

    /// Notes that the connection of [`Engine::carry_off`] is on the engine of `slot`.
    pub(crate) fn on_carried(&mut self, bytes: &[u8], slot: u16) {
        let ends = Carried::from_bytes(bytes).and_then(|it| it.image.endpoints());
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
    /// Returns whether a socket without a connection has not had one, and the number of bytes that
    /// its program has put into its send ring.
    fn look_at_taker(&mut self, owner: Owner) -> Option<(bool, u64)> {
        let (socket, end) = self.client(owner.client)?.find(owner.sock)?;
        let may_take = socket.kind == Transport::Tcp && socket.role == Role::None;
        let is_new = socket.receive.head() == 0 && socket.send.acked() == 0;
        may_take.then(|| (is_new, socket.send.look(end, owner.sock).upto))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_moves_to_another_process_keeps_its_state() {
        let carried = Carried {
            image: ConnectionImage::from_bytes(&[7; ConnectionImage::LEN]),
            state: State::CONNECTED | State::FIN,
            bytes: b"received".to_vec(),
        };
        let bytes = carried.to_bytes();
        let came = Carried::from_bytes(&bytes).unwrap();
        assert_eq!(came.image, carried.image);
        assert_eq!(came.state, carried.state);
        assert_eq!(came.bytes, carried.bytes);
        for len in 0..16 + ConnectionImage::LEN {
            assert!(Carried::from_bytes(&bytes[..len]).is_none(), "{len}");
        }
        assert!(Carried::from_bytes(&[0; 1000]).is_none());
    }
}
