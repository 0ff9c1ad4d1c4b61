//! A program attached to the engine, and its sockets as the engine sees them.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;

use slipstack_channel::{
    Charges, Ends, EngineEnd, Envelope, LazyBox, Limits, Reason, ReceiveRing, ReturnedRing,
    SendSide, SockId, State, Transport, charge_of,
};
use slipstack_mem::Doorbell;
use slipstack_stack::{ConnId, Instant, ListenerId, PortHold, SocketOptions, UdpId};

use crate::accept_queue::AcceptQueue;
use crate::authority::PortClaim;

/// A client's place in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(pub u32);

/// Start of the engine's half of the socket indices.
const ENGINE_HALF: usize = slipstack_channel::SOCKETS / 2;
/// Rings checked per call of [`Client::release_idle`].
const RELEASE_BUDGET: usize = 256;
/// Time for which a socket keeps an empty ring: a stream whose reader keeps up would otherwise free
/// it and grow it again with every burst.
const RING_KEPT_NS: u64 = 50_000_000;
/// Interval of these checks.
const RELEASE_EVERY_NS: u64 = 10_000_000;
/// Datagram bytes that may wait for the program (Linux's `net.core.rmem_default`).
pub(crate) const UDP_RCVBUF: u64 = 212_992;
/// Bytes that the largest datagram takes in a ring, with its header.
const ALONE_MAX: u64 = 1 << 17;
/// Buffers of a datagram socket.
pub(crate) const UDP_LIMITS: Limits = Limits {
    send: UDP_RCVBUF as u32,
    receive: UDP_RCVBUF as u32,
};

/// The stack's object behind a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing yet, or no longer.
    None,
    Listener(ListenerId),
    Stream(ConnId),
    Datagram(UdpId),
}

/// The target of new connections of a listener whose program does not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Yields {
    No,
    /// To another listener of this engine.
    Here,
    /// To other engines.
    Away,
}

/// A local address that a socket holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) addr: SocketAddr,
    /// [::] does not take IPv4 in.
    pub(crate) is_v6_only: bool,
    pub(crate) is_shared: bool,
    /// The link that it was bound to when it took its port; see [`PortHold::link`]. It may have
    /// been bound to another one since: [`Socket::link`].
    pub(crate) link: u16,
    /// The stack keeps the port reserved for this socket.
    pub(crate) is_reserved: bool,
    /// The stack chose the port, and a connection may have another one.
    pub(crate) is_picked: bool,
    /// The port authority steers the port here.
    pub(crate) is_announced: bool,
    /// The directory's entry for a connected datagram socket.
    pub(crate) flow: Option<u32>,
}

impl Bound {
    /// Addresses at which the stack holds the port.
    pub(crate) fn hold(&self) -> PortHold {
        PortHold {
            ip: self.addr.ip(),
            is_v6_only: self.is_v6_only,
            link: self.link,
        }
    }

    /// Whether connections to one are connections to the other, on the same link.
    pub(crate) fn is_same_address(&self, other: &Bound) -> bool {
        (self.addr.ip(), self.is_v6_only) == (other.addr.ip(), other.is_v6_only)
    }

    pub(crate) fn claim(&self, is_reuse_port: bool) -> PortClaim {
        PortClaim {
            addr: self.addr,
            link: self.link,
            is_v6_only: self.is_v6_only,
            is_reuse_port,
        }
    }

    pub(crate) fn span(&self) -> slipstack_stack::Bound {
        slipstack_stack::Bound::new(self.addr.ip(), self.is_v6_only)
    }
}

/// One socket.
#[derive(Debug)]
pub(crate) struct Socket {
    /// 0 = the cell is not in use.
    pub(crate) generation: u32,
    pub(crate) kind: Transport,
    pub(crate) role: Role,
    pub(crate) state: State,
    pub(crate) reason: Option<Reason>,
    pub(crate) errors: u8,
    /// The program has closed it; it lives on until the stack releases it.
    pub(crate) is_closing: bool,
    /// Listed in `Client::ring_holders`; belongs to the index, not to its present use, so that an
    /// index is listed once however often it is used.
    pub(crate) is_listed: bool,
    /// The address and port that it is bound to; accepted connections have none.
    bound: Option<Box<Bound>>,
    /// Options set before the connection exists.
    pub(crate) options: Option<Box<SocketOptions>>,
    /// Place in [`crate::environment::Environment::shared`], if it is there.
    pub(crate) shared_at: Option<u32>,
    /// The listeners to which a listener leaves new connections, or a socket its datagrams.
    pub(crate) yields: Yields,
    /// The listener of an accepted connection.
    pub(crate) listener: Option<SockId>,
    /// The two ends of that connection: those in the channel the program may have changed.
    pub(crate) accepted_ends: Option<Ends>,
    /// Datagrams wait in the send ring, and leave in the socket's turn.
    pub(crate) waits_to_send: bool,
    /// The socket is listed in [`crate::waiting`].
    pub(crate) has_turn: bool,
    /// Connections that wait at a listener.
    pub(crate) queue: Option<Box<AcceptQueue>>,
    /// [`crate::owners::Deferred::TellSent`] is on its way.
    pub(crate) is_tell_due: bool,
    /// The parts that have come of a program that chooses sockets.
    pub(crate) chooser: LazyBox<Vec<u8>>,
    /// The waiting datagrams of a socket whose receive buffer the program has set.
    pub(crate) charges: LazyBox<Charges>,
    /// Datagrams that found no room.
    pub(crate) lost: u32,
    /// Time at which bytes were last received.
    pub(crate) received_at: Instant,
    /// Bytes that the program may read before it notifies.
    pub(crate) step: u64,
    pub(crate) send: SendSide,
    pub(crate) receive: ReceiveRing,
    /// Datagrams that came back with an error.
    pub(crate) returned: Option<Box<ReturnedRing>>,
}

impl Socket {
    pub(crate) const FREE: Socket = Socket {
        generation: 0,
        kind: Transport::Tcp,
        role: Role::None,
        state: State::NONE,
        reason: None,
        errors: 0,
        is_closing: false,
        is_listed: false,
        bound: None,
        options: None,
        shared_at: None,
        yields: Yields::No,
        listener: None,
        accepted_ends: None,
        waits_to_send: false,
        has_turn: false,
        queue: None,
        is_tell_due: false,
        chooser: LazyBox::NONE,
        charges: LazyBox::NONE,
        lost: 0,
        received_at: Instant(0),
        step: STEP,
        send: SendSide::NEW,
        receive: ReceiveRing::NEW,
        returned: None,
    };

    pub(crate) fn bound(&self) -> Option<Bound> {
        self.bound.as_deref().copied()
    }

    pub(crate) fn set_bound(&mut self, bound: Option<Bound>) {
        self.bound = bound.map(Box::new);
    }

    pub(crate) fn take_bound(&mut self) -> Option<Bound> {
        self.bound.take().map(|bound| *bound)
    }

    /// The link that it is bound to now, as [`PortHold::link`].
    pub(crate) fn link(&self) -> u16 {
        self.options.as_deref().map_or(0, |options| options.link)
    }

    /// Bytes of datagrams that may wait.
    pub(crate) fn datagrams_max(&self) -> u64 {
        self.asked_rcvbuf().unwrap_or(UDP_RCVBUF)
    }

    fn asked_rcvbuf(&self) -> Option<u64> {
        let asked = self.options.as_deref().and_then(|options| options.rcvbuf);
        asked.map(u64::from)
    }

    /// Puts a datagram into the receive ring, if there is room for it.
    pub(crate) fn push_datagram(
        &mut self,
        end: &mut EngineEnd,
        sock: SockId,
        envelope: &Envelope,
        payload: &[u8],
    ) -> bool {
        match self.asked_rcvbuf() {
            None => self
                .receive
                .push_datagram(end, sock, envelope, payload, UDP_RCVBUF),
            Some(rcvbuf) => self.push_charged(end, sock, (envelope, payload), rcvbuf),
        }
    }

    fn push_charged(
        &mut self,
        end: &mut EngineEnd,
        sock: SockId,
        (envelope, payload): (&Envelope, &[u8]),
        rcvbuf: u64,
    ) -> bool {
        let charge = match envelope.segment {
            None => charge_of(payload.len()),
            Some(size) => {
                let pieces = payload.chunks(size.get().into());
                pieces.map(|piece| charge_of(piece.len())).sum()
            }
        };
        let consumed = self.receive.head() - self.receive.unread(end, sock);
        let charges = self.charges.make();
        if !charges.has_room(consumed, charge, rcvbuf) {
            return false;
        }
        // Less than what the kernel counts, but for one that waits alone.
        let limit = rcvbuf.max(ALONE_MAX);
        let is_taken = self
            .receive
            .push_datagram(end, sock, envelope, payload, limit);
        if is_taken {
            charges.add(self.receive.head(), charge);
        }
        is_taken
    }

    /// The buffers that a connection of this socket's begins with.
    pub(crate) fn limits(&self, initial: Limits) -> Limits {
        self.options.as_deref().map_or(initial, |options| Limits {
            send: options.sndbuf.unwrap_or(initial.send),
            receive: options.rcvbuf.unwrap_or(initial.receive),
        })
    }

    /// The options to be, made when first touched.
    pub(crate) fn options_mut(&mut self) -> &mut SocketOptions {
        self.options.get_or_insert_default()
    }
}

/// Largest distance of two notices of consumption.
const STEP: u64 = 32 * 1024;

/// The notice distance for a receive buffer of this size.
pub(crate) fn step_for(rcvbuf: u32) -> u64 {
    (u64::from(rcvbuf) / 4).clamp(1, STEP)
}

/// One attached program.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) end: EngineEnd,
    /// Wakes the program; none when it drives the engine itself.
    pub(crate) bell: Option<Doorbell>,
    /// The client has said goodbye: no commands are read any more, its sockets are completed.
    pub(crate) is_leaving: bool,
    /// Sockets in use.
    pub(crate) live: u32,
    program_half: Vec<Socket>,
    engine_half: Vec<Socket>,
    /// Indices of sockets that may own a receive ring.
    ring_holders: VecDeque<u32>,
    /// Unaccepted connections whose listener is about to close.
    pub(crate) passing: Vec<SockId>,
    /// Time of the last check of the queues.
    looked_at: Instant,
    /// Sockets that listen.
    pub(crate) listeners: Vec<SockId>,
    /// A connection has come to a listener or waits there: the listeners are checked.
    pub(crate) has_waiting: bool,
}

impl Client {
    pub(crate) fn new(end: EngineEnd, bell: Option<Doorbell>) -> Client {
        Client {
            end,
            bell,
            is_leaving: false,
            live: 0,
            program_half: Vec::new(),
            engine_half: Vec::new(),
            ring_holders: VecDeque::new(),
            passing: Vec::new(),
            looked_at: Instant(0),
            listeners: Vec::new(),
            has_waiting: false,
        }
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> Option<&mut Socket> {
        let index = index as usize;
        if index < ENGINE_HALF {
            self.program_half.get_mut(index)
        } else {
            self.engine_half.get_mut(index - ENGINE_HALF)
        }
    }

    /// The socket and the channel's end, if the id is current.
    #[inline]
    pub(crate) fn find(&mut self, sock: SockId) -> Option<(&mut Socket, &mut EngineEnd)> {
        let index = sock.index as usize;
        let socket = if index < ENGINE_HALF {
            self.program_half.get_mut(index)
        } else {
            self.engine_half.get_mut(index - ENGINE_HALF)
        };
        let socket = socket
            .filter(|socket| socket.generation == sock.generation && socket.generation != 0)?;
        Some((socket, &mut self.end))
    }

    /// Returns the socket, if the id is current.
    #[inline]
    pub(crate) fn socket(&self, sock: SockId) -> Option<&Socket> {
        let index = sock.index as usize;
        let socket = if index < ENGINE_HALF {
            self.program_half.get(index)
        } else {
            self.engine_half.get(index - ENGINE_HALF)
        };
        socket.filter(|socket| socket.generation == sock.generation && socket.generation != 0)
    }

    /// Begins the use of a cell. `None` when it is in use.
    pub(crate) fn begin(&mut self, sock: SockId, kind: Transport) -> Option<&mut Socket> {
        let index = sock.index as usize;
        let (half, at) = if index < ENGINE_HALF {
            (&mut self.program_half, index)
        } else {
            (&mut self.engine_half, index - ENGINE_HALF)
        };
        while half.len() <= at {
            half.push(Socket::FREE);
        }
        let socket = &mut half[at];
        if socket.generation != 0 {
            return None;
        }
        *socket = Socket {
            generation: sock.generation,
            kind,
            is_listed: socket.is_listed,
            ..Socket::FREE
        };
        self.live += 1;
        Some(socket)
    }

    /// Ends the use of a cell and notifies the program.
    pub(crate) fn release(&mut self, sock: SockId) {
        let Some((socket, end)) = self.find(sock) else {
            return;
        };
        socket.receive.release(end, sock);
        if let Some(ring) = socket.returned.take() {
            ring.release(end);
        }
        // The rest is written again when the next use begins.
        socket.generation = 0;
        socket.options = None;
        end.released(sock);
        self.live -= 1;
    }

    /// Publishes the socket's state, and notifies the program.
    pub(crate) fn publish(&mut self, sock: SockId) {
        if let Some((socket, end)) = self.find(sock) {
            end.set_state(sock, socket.state, socket.reason, socket.errors);
            end.changed(sock);
        }
    }

    /// Ids of all sockets in use.
    pub(crate) fn sockets(&self) -> Vec<SockId> {
        let ids = |half: &[Socket], base: usize| {
            half.iter()
                .enumerate()
                .filter(|(_, socket)| socket.generation != 0)
                .map(|(at, socket)| SockId {
                    index: (base + at) as u32,
                    generation: socket.generation,
                })
                .collect::<Vec<_>>()
        };
        let mut all = ids(&self.program_half, 0);
        all.extend(ids(&self.engine_half, ENGINE_HALF));
        all
    }

    /// Lists a socket that may have a receive ring now.
    #[inline]
    pub(crate) fn list_holder(&mut self, sock: SockId) {
        if let Some(socket) = self.slot_mut(sock.index)
            && !socket.is_listed
        {
            socket.is_listed = true;
            self.ring_holders.push_back(sock.index);
        }
    }

    /// Frees receive rings that have been empty for a while; checks a bounded number. `is_urgent`:
    /// now, however short the time.
    #[inline]
    pub(crate) fn release_idle(&mut self, now: Instant, is_urgent: bool) {
        if is_urgent || now.0 >= self.looked_at.0 + RELEASE_EVERY_NS {
            self.look_at_holders(now, is_urgent);
        }
    }

    #[cold]
    fn look_at_holders(&mut self, now: Instant, is_urgent: bool) {
        self.looked_at = now;
        for _ in 0..RELEASE_BUDGET.min(self.ring_holders.len()) {
            let Some(index) = self.ring_holders.pop_front() else {
                return;
            };
            let generation = match self.slot_mut(index) {
                Some(socket) if socket.generation == 0 => {
                    socket.is_listed = false;
                    continue;
                }
                Some(socket) => socket.generation,
                None => continue,
            };
            let sock = SockId { index, generation };
            let Some((socket, end)) = self.find(sock) else {
                continue;
            };
            let is_due = is_urgent || now.0.saturating_sub(socket.received_at.0) >= RING_KEPT_NS;
            if is_due {
                // One that is not empty is listed again when the program has read it so.
                socket.receive.release_if_empty(end, sock);
                socket.is_listed = false;
            } else {
                self.ring_holders.push_back(index);
            }
        }
    }

    /// Time at which [`Client::release_idle`] may find something, if nothing is received meanwhile.
    pub(crate) fn release_at(&self) -> Option<Instant> {
        let index = *self.ring_holders.front()? as usize;
        let socket = match index.checked_sub(ENGINE_HALF) {
            None => self.program_half.get(index),
            Some(at) => self.engine_half.get(at),
        };
        let due = socket.map_or(0, |socket| socket.received_at.0) + RING_KEPT_NS;
        Some(Instant(due.max(self.looked_at.0 + RELEASE_EVERY_NS)))
    }

    /// Reads how many connections the program has accepted. Reports the listeners whose queues have
    /// become shorter than last reported, with the number of connections that have left them
    /// (wrapping). Returns when [`Client::find_left`] may find something.
    #[inline]
    pub(crate) fn look_at_queues(
        &mut self,
        now: Instant,
        mut tell: impl FnMut(ListenerId, u32),
    ) -> Instant {
        let mut left_at = Instant::FAR_FUTURE;
        if !self.has_waiting {
            return left_at;
        }
        let mut has_waiting = false;
        for at in 0..self.listeners.len() {
            let sock = self.listeners[at];
            let Some((socket, end)) = self.find(sock) else {
                continue;
            };
            let (Role::Listener(id), Some(queue)) = (socket.role, &mut socket.queue) else {
                continue;
            };
            if let Some(total) = queue.look(end.accept_taken(sock), now) {
                tell(id, total);
            }
            has_waiting |= queue.waiting() > 0;
            left_at = left_at.min(queue.due_at());
        }
        self.has_waiting = has_waiting;
        left_at
    }

    /// The listeners from which the program accepts nothing although something waits.
    pub(crate) fn find_left(&mut self, now: Instant) -> Vec<SockId> {
        if !self.has_waiting {
            return Vec::new();
        }
        let listeners = self.listeners.clone();
        let is_left = |sock: &SockId| {
            let found = self.find(*sock);
            let queue = found.and_then(|(socket, _)| socket.queue.as_mut());
            queue.is_some_and(|queue| queue.is_left(now))
        };
        listeners.into_iter().filter(is_left).collect()
    }

    /// Takes the connections of a listener back that the program has not accepted.
    pub(crate) fn withdraw(&mut self, listener: SockId) -> Vec<SockId> {
        let is_of = |sock: &SockId| {
            let socket = self.socket(*sock);
            socket.is_some_and(|it| it.listener == Some(listener) && !it.is_closing)
        };
        let waiting: Vec<SockId> = self.sockets().into_iter().filter(is_of).collect();
        let is_back = |sock: &SockId| self.end.withdraw(*sock);
        waiting.into_iter().filter(is_back).collect()
    }
}

/// A client that the engine calls itself.
pub(crate) struct Owned {
    pub(crate) client: ClientId,
    pub(crate) owner: Box<dyn slipstack_channel::Owner>,
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owned")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}
