//! Connections that nobody accepted when their listener closed, and that another listener of the
//! same address takes: one of this engine, or one of the engine that the steering names now.
//!
//! Between engines a connection travels as messages in the inbox, which look like frames of an
//! EtherType that no other sender uses there: a head with the stack's image, then the bytes
//! received so far, each message tagged with the sender's slot and a number.

use std::collections::HashMap;
use std::net::SocketAddr;

use slipstack_channel::State;
use slipstack_device::{Flow, Proto};
use slipstack_stack::{CloseMode, ConnId, ConnectionImage, Instant, ListenerId};

use crate::client::Role;
use crate::effects::Fx;
use crate::engine::Engine;
use crate::local::syn_to;
use crate::world::{Deferred, Owner};

/// IEEE's local experimental EtherType 1; only engines write to inboxes.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// EtherType's place and the end of the pretended link header.
const TYPE_AT: usize = 12;
const TAG_AT: usize = 14;
const BODY_AT: usize = TAG_AT + 8;
/// Received bytes that travel with a connection at most.
const BYTES_MAX: usize = 16 * 1024;
const CHUNK: usize = 1800;
/// Engines that a connection visits at most.
const HOPS_MAX: u8 = 8;
/// Frames taken from the device when a shared listener closes.
const DRAIN_BUDGET: usize = 4096;
/// Connections whose messages are incomplete; beyond it those of dead senders go.
const ARRIVING_MAX: usize = 256;

/// Whether an inbox's frame is one of ours.
pub(crate) fn is_message(frame: &[u8]) -> bool {
    frame.get(TYPE_AT..TAG_AT) == Some(&ETHERTYPE)
}

/// A connection of which messages are still to come.
#[derive(Debug)]
struct Partial {
    /// Engines that had no listener for it.
    hops: u8,
    image: ConnectionImage,
    state: State,
    bytes: Vec<u8>,
    len: usize,
}

/// Connections on their way in.
#[derive(Debug, Default)]
pub(crate) struct Arriving {
    partial: HashMap<u64, Partial>,
    /// Of connections sent: numbers their messages.
    next_tag: u64,
}

impl Engine {
    /// The program has not taken this connection and will not. Its listener is usually about to
    /// close; the flow leaves the directory so that the steering lets go of it too.
    pub(crate) fn pass_later(&mut self, now: Instant, owner: Owner, conn: ConnId) {
        self.world.flows.close(conn);
        let Some(client) = self.world.client(owner.client) else {
            return;
        };
        let listener = client.find(owner.sock).and_then(|(s, _)| s.listener);
        let is_open = listener
            .and_then(|sock| client.find(sock))
            .is_some_and(|(socket, _)| matches!(socket.role, Role::Listener(_)));
        if is_open {
            client.passing.push(owner.sock);
        } else {
            self.pass(now, owner);
        }
    }

    /// A listener has been closed: its connections go to others.
    pub(crate) fn pass_waiting(&mut self, now: Instant, listener: Owner) {
        let Some(client) = self.world.client(listener.client) else {
            return;
        };
        for sock in core::mem::take(&mut client.passing) {
            let owner = Owner {
                client: listener.client,
                sock,
            };
            self.pass(now, owner);
        }
    }

    /// Takes what the device has while a shared listener of this port closes: handshakes are
    /// completed, and who asks for a new connection is sent on to the listener that has the flow
    /// now. Returns the connections that came about; their bytes are left to the peer to send
    /// again, to whoever takes them.
    pub(crate) fn drain(&mut self, listener: ListenerId, port: u16) -> Vec<ConnId> {
        if self.world.local.fabric.is_none() {
            return Vec::new();
        }
        self.world.drained = Some((listener, Vec::new()));
        let now = self.world.now;
        let Engine {
            stack,
            device,
            world,
            ..
        } = self;
        device.rx(DRAIN_BUDGET, &mut |frame, meta| {
            let fabric = world.local.fabric.as_ref();
            let taker = fabric.and_then(|fabric| {
                let slot = fabric.find_taker(&syn_to(frame, port)?)?;
                Some((fabric, slot))
            });
            if let Some((fabric, slot)) = taker {
                fabric.post(slot, frame);
                return;
            }
            let mut fx = Fx {
                world: &mut *world,
                device: None,
            };
            stack.on_frame(now, frame, meta, &mut fx);
        });
        self.world.drain_queue(&mut *self.device);
        self.run_deferred(now);
        let drained = self.world.drained.take();
        drained.map_or_else(Vec::new, |(_, conns)| conns)
    }

    pub(crate) fn pass_drained(&mut self, conns: Vec<ConnId>) {
        for conn in conns {
            self.world.flows.close(conn);
            let given = self.stack.tcp_endpoints(conn).is_some_and(|ends| {
                self.give_here(conn, ends, State::NONE, &[])
                    || self.give_away(conn, ends, State::NONE, &[])
            });
            self.world.counters.passed_out += u64::from(given);
            if !given {
                self.world.deferred.push(Deferred::Abort(conn));
            }
        }
        self.run_deferred(self.world.now);
    }

    /// Gives the connection to another listener, or resets it.
    fn pass(&mut self, now: Instant, owner: Owner) {
        let Some(client) = self.world.client(owner.client) else {
            return;
        };
        let Some((socket, end)) = client.find(owner.sock) else {
            return;
        };
        let Role::Stream(conn) = socket.role else {
            client.release(owner.sock);
            return;
        };
        let state = socket.state;
        let bytes = socket.receive.untouched(end, BYTES_MAX);
        let endpoints = self.stack.tcp_endpoints(conn);
        let passed = match (bytes, endpoints) {
            (Some(bytes), Some(ends)) => {
                self.give_here(conn, ends, state, &bytes)
                    || self.give_away(conn, ends, state, &bytes)
            }
            _ => false,
        };
        self.world.counters.passed_out += u64::from(passed);
        let Some(client) = self.world.client(owner.client) else {
            return;
        };
        if passed {
            client.release(owner.sock);
            return;
        }
        if let Some((socket, _)) = client.find(owner.sock) {
            socket.is_closing = true;
        }
        let mut fx = Fx {
            world: &mut self.world,
            device: Some(&mut *self.device),
        };
        self.stack
            .tcp_close(now, conn, CloseMode::Abort, true, &mut fx);
        self.run_deferred(now);
    }

    /// Another listener of this engine takes it.
    fn give_here(
        &mut self,
        conn: ConnId,
        (local, remote): (SocketAddr, SocketAddr),
        state: State,
        bytes: &[u8],
    ) -> bool {
        let Some(listener) = self.find_listener(local) else {
            return false;
        };
        let sndbuf = self.stack.tcp_sndbuf(conn);
        let ends = (Some(local), Some(remote));
        let Some(owner) = self.world.offer(listener, conn, ends, sndbuf) else {
            return false;
        };
        if let Some(socket) = self.world.socket(listener) {
            socket.passed_in += 1;
        }
        self.world.conns.set(conn.index, conn.generation, owner);
        self.world.flows.open(conn, local, remote);
        if let Some(client) = self.world.client(owner.client)
            && let Some((socket, end)) = client.find(owner.sock)
        {
            let step = socket.step;
            if !bytes.is_empty() && socket.receive.store(end, owner.sock, 0, bytes) {
                let upto = bytes.len() as u64;
                socket.receive.publish(end, owner.sock, upto, step);
            }
            client.list_holder(owner.sock);
        }
        let kept = [State::RDHUP, State::HUP, State::ERR, State::CLOSED];
        let carried = kept.into_iter().filter(|bit| state.contains(*bit));
        let bits = carried.fold(State::NONE, |all, bit| all | bit);
        if bits != State::NONE {
            self.world.set_bits(owner, bits, State::NONE);
        }
        self.world.counters.passed_in += 1;
        true
    }

    /// A listening socket that serves this address.
    fn find_listener(&mut self, local: SocketAddr) -> Option<Owner> {
        for id in self.world.client_ids() {
            let Some(client) = self.world.client(id) else {
                continue;
            };
            for sock in client.listeners.clone() {
                let bound = client.find(sock).and_then(|(socket, _)| socket.bound);
                let serves = bound.is_some_and(|bound| {
                    bound.addr.port() == local.port()
                        && (bound.addr.ip().is_unspecified() || bound.addr.ip() == local.ip())
                });
                if serves {
                    return Some(Owner { client: id, sock });
                }
            }
        }
        None
    }

    /// The engine that the steering names for new connections takes it.
    fn give_away(
        &mut self,
        conn: ConnId,
        ends: (SocketAddr, SocketAddr),
        state: State,
        bytes: &[u8],
    ) -> bool {
        if self.find_taker(ends).is_none() {
            return false;
        }
        let Some(image) = self.stack.tcp_detach(conn) else {
            return false;
        };
        self.world.conns.remove(conn.index, conn.generation);
        let partial = Partial {
            hops: 0,
            image,
            state,
            bytes: bytes.to_vec(),
            len: bytes.len(),
        };
        self.send_on(ends, &partial)
    }

    fn find_taker(&self, (local, remote): (SocketAddr, SocketAddr)) -> Option<usize> {
        let flow = Flow {
            proto: Proto::Tcp,
            local,
            remote,
        };
        self.world.local.fabric.as_ref()?.find_taker(&flow)
    }

    /// Sends the messages of a connection. `false` when nobody is there to take it.
    fn send_on(&mut self, ends: (SocketAddr, SocketAddr), partial: &Partial) -> bool {
        let (Some(slot), Some(fabric)) = (self.find_taker(ends), &self.world.local.fabric) else {
            return false;
        };
        self.arriving.next_tag += 1;
        let tag = u64::from(fabric.own_slot()) << 48 | self.arriving.next_tag;
        let mut message = vec![0; BODY_AT];
        message[TYPE_AT..TAG_AT].copy_from_slice(&ETHERTYPE);
        message[TAG_AT..BODY_AT].copy_from_slice(&tag.to_le_bytes());
        let mut head = message.clone();
        head.push(u8::from(partial.state.contains(State::RDHUP)));
        head.push(partial.hops);
        head.extend_from_slice(&(partial.len as u32).to_le_bytes());
        head.extend_from_slice(&partial.image.to_bytes());
        let mut posted = fabric.post(slot, &head);
        for chunk in partial.bytes.chunks(CHUNK) {
            message.truncate(BODY_AT);
            message.extend_from_slice(chunk);
            posted = posted && fabric.post(slot, &message);
        }
        self.world.counters.local_lost += u64::from(!posted);
        true
    }

    /// A message of [`Engine::give_away`] of another engine.
    pub(crate) fn on_passed(&mut self, now: Instant, message: &[u8]) {
        let Some((tag, body)) = split(message) else {
            return;
        };
        if let Some(partial) = self.arriving.partial.get_mut(&tag) {
            let room = partial.len - partial.bytes.len();
            partial
                .bytes
                .extend_from_slice(&body[..body.len().min(room)]);
        } else if let Some(partial) = parse_head(body) {
            if self.arriving.partial.len() >= ARRIVING_MAX {
                self.arriving.partial.clear();
            }
            self.arriving.partial.insert(tag, partial);
        }
        let is_whole = |partial: &Partial| partial.bytes.len() == partial.len;
        if self.arriving.partial.get(&tag).is_some_and(is_whole)
            && let Some(partial) = self.arriving.partial.remove(&tag)
        {
            self.take_in(now, partial);
        }
    }

    fn take_in(&mut self, now: Instant, mut partial: Partial) {
        // Our own listener may have closed meanwhile, and the next one too.
        if let Some(ends) = partial.image.endpoints()
            && partial.hops < HOPS_MAX
            && self.find_listener(ends.0).is_none()
        {
            partial.hops += 1;
            if self.send_on(ends, &partial) {
                return;
            }
        }
        let Ok(conn) = self.stack.tcp_adopt(now, &partial.image) else {
            return;
        };
        let taken = self
            .stack
            .tcp_endpoints(conn)
            .is_some_and(|ends| self.give_here(conn, ends, partial.state, &partial.bytes));
        if !taken {
            let mut fx = Fx {
                world: &mut self.world,
                device: Some(&mut *self.device),
            };
            self.stack
                .tcp_close(now, conn, CloseMode::Abort, true, &mut fx);
            self.run_deferred(now);
        }
    }
}

fn split(message: &[u8]) -> Option<(u64, &[u8])> {
    let tag = message.get(TAG_AT..BODY_AT)?.try_into().ok()?;
    Some((u64::from_le_bytes(tag), message.get(BODY_AT..)?))
}

fn parse_head(body: &[u8]) -> Option<Partial> {
    let (&has_fin, rest) = body.split_first()?;
    let (&hops, rest) = rest.split_first()?;
    let (len, rest) = rest.split_at_checked(4)?;
    let len = u32::from_le_bytes(len.try_into().ok()?) as usize;
    let image: &[u8; ConnectionImage::LEN] = rest.try_into().ok()?;
    (len <= BYTES_MAX).then(|| Partial {
        hops,
        image: ConnectionImage::from_bytes(image),
        state: if has_fin == 1 {
            State::RDHUP
        } else {
            State::NONE
        },
        bytes: Vec::new(),
        len,
    })
}
