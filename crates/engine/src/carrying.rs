//! A connection goes from one engine of a process to another, whose thread uses it.
//!
//! Only one that nobody has read from or written to goes: it has just been accepted. The program opens a socket for it
//! there, and closes the one that it leaves.

use std::net::SocketAddr;

use slipstack_channel::{Ends, Kind, SockId, State};
use slipstack_stack::{ConnectionImage, Instant};

use crate::client::{ClientId, Role};
use crate::effects::Fx;
use crate::engine::Engine;
use crate::owners::{Deferred, Owner};

/// Received bytes that go along at most.
const BYTES_MAX: usize = 256 * 1024;

/// Bits of a socket's state that hold wherever it is.
const CARRIED: [State; 4] = [State::CONNECTED, State::BOUND, State::FIN, State::RDHUP];
/// With any of these it stays and ends where it is.
const ENDED: [State; 4] = [State::HUP, State::ERR, State::CLOSED, State::SHUT];

/// One on its way.
#[derive(Debug)]
pub(crate) struct Carried {
    image: ConnectionImage,
    state: State,
    bytes: Vec<u8>,
}

impl Engine {
    /// The only program of an engine in a process.
    fn owner_of(&self, sock: SockId) -> Option<Owner> {
        let client: ClientId = self.world.client_ids().next()?;
        Some(Owner { client, sock })
    }

    /// Takes a connection out; the socket is left without one.
    pub(crate) fn carry_out(&mut self, now: Instant, sock: SockId) -> Option<Box<Carried>> {
        self.commands(now);
        let owner = self.owner_of(sock)?;
        let client = self.world.client(owner.client)?;
        let (socket, end) = client.find(sock)?;
        let Role::Stream(conn) = socket.role else {
            return None;
        };
        let state = socket.state;
        let has_ended = ENDED.iter().any(|bit| state.contains(*bit));
        if has_ended || socket.is_closing || !state.contains(State::CONNECTED) {
            return None;
        }
        if socket.send.look(end, sock).upto != 0 || socket.receive.look(end, sock) != 0 {
            return None;
        }
        let bytes = socket.receive.untouched(end, BYTES_MAX)?;
        let image = self.stack.tcp_detach(conn)?.without_ranges();
        self.world.conns.remove(conn.index, conn.generation);
        self.world.flows.close(conn);
        if let Some(socket) = self.world.socket(owner) {
            socket.role = Role::None;
        }
        self.world.counters.carried_out += 1;
        Some(Box::new(Carried {
            image,
            state,
            bytes,
        }))
    }

    /// Takes a connection in as a socket that the program has opened, or to which it comes back. Its ends.
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
        let may_take = |it: &crate::client::Socket| it.kind == Kind::Tcp && it.role == Role::None;
        let Some(owner) = self.owner_of(sock) else {
            return Err(carried);
        };
        if !self.world.socket(owner).is_some_and(|it| may_take(it)) {
            return Err(carried);
        }
        let mut fx = Fx::new(&mut self.world, &mut *self.device);
        let Ok(conn) = self.stack.tcp_adopt(now, &carried.image, &mut fx) else {
            return Err(carried);
        };
        let Some(ends) = self.stack.tcp_endpoints(conn) else {
            return Err(carried);
        };
        self.world.conns.set(conn.index, conn.generation, owner);
        self.world.flows.open(conn, &Ends::of(ends.0, ends.1));
        let (sndbuf, rcvbuf) = (self.stack.tcp_sndbuf(conn), self.stack.tcp_rcvbuf(conn));
        let mut is_whole = true;
        if let Some(client) = self.world.client(owner.client)
            && let Some((socket, end)) = client.find(sock)
        {
            socket.role = Role::Stream(conn);
            end.set_addrs(sock, Some(ends.0), Some(ends.1));
            end.set_sndbuf(sock, sndbuf);
            end.set_rcvbuf(sock, rcvbuf);
            let (step, bytes) = (socket.step, &carried.bytes);
            // Back where it came from they are still there.
            let is_new = socket.receive.head() == 0;
            if is_new && !bytes.is_empty() {
                is_whole = socket.receive.store(end, sock, 0, bytes);
                if is_whole {
                    let upto = bytes.len() as u64;
                    socket.receive.publish(end, sock, upto, step);
                }
            }
            client.list_holder(sock);
        }
        if !is_whole {
            // The peer has been told that they arrived: without them the connection is worthless.
            self.world.deferred.push(Deferred::Abort(conn));
        }
        let carried = CARRIED
            .into_iter()
            .filter(|bit| carried.state.contains(*bit));
        let bits = carried.fold(State::NONE, |all, bit| all | bit);
        self.world.set_bits(owner, bits, State::NONE);
        self.world.counters.carried_in += 1;
        self.run_deferred(now);
        self.finish(now, false);
        Ok(ends)
    }

    /// Frames of a connection that has come from another engine come here from now on.
    pub(crate) fn steer_carried(&mut self, (local, remote): (SocketAddr, SocketAddr)) {
        if let Some(ports) = &self.ports {
            ports.bring_flow(local, remote);
        }
    }
}
