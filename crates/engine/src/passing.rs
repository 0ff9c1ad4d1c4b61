//! Unaccepted and half-open connections of a closed listener that another listener of the same
//! address takes: one of this engine, or one of the engine that the steering table names. Their
//! transfer is in `arriving.rs`.

use std::net::SocketAddr;

use slipstack_channel::{Ends, InboxMessage, Reason, SockId, State, UrgentAhead};
use slipstack_stack::{CloseMode, ConnId, HalfOpenImage, Instant, ListenerId, RxMeta};

use crate::client::{Role, Yields};
use crate::drained::{Completed, Drained};
use crate::effects::Fx;
use crate::engine::Engine;
use crate::environment::Environment;
use crate::local::syn_to;
use crate::owners::{Deferred, Owner};
use crate::partial::BYTES_MAX;
use crate::yielding::Listening;

/// Frames taken from the device at once, and how often, when a shared listener closes.
const DRAIN_BUDGET: usize = 4096;
const DRAIN_ROUNDS: usize = 16;

/// Received parts of a connection that no program has accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Untouched<'a> {
    pub(crate) state: State,
    pub(crate) bytes: &'a [u8],
    pub(crate) urgent: UrgentAhead,
    /// The error that has ended it.
    pub(crate) reason: Option<Reason>,
}

/// A connection that changes its listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moving {
    /// `None`: it has ended, and is in no stack.
    pub(crate) conn: Option<ConnId>,
    /// Local, remote.
    pub(crate) ends: (SocketAddr, SocketAddr),
    /// The link that its listener is bound to.
    pub(crate) link: u16,
}

impl Engine {
    /// Schedules a connection that the program has not taken and will not take. Its listener is
    /// usually about to close; in the directory the flow is leaving, so that steering releases it
    /// too.
    pub(crate) fn pass_later(&mut self, now: Instant, owner: Owner, conn: Option<ConnId>) {
        if let Some(conn) = conn {
            self.env.flows.leave(conn);
        }
        let Some(client) = self.env.client(owner.client) else {
            return;
        };
        let listener = client.find(owner.sock).and_then(|(s, _)| s.listener);
        // One that yields too: while it is open and no other serves the address, the connection
        // would come back to it, and end with it.
        let is_open = listener
            .and_then(|sock| client.find(sock))
            .is_some_and(|(socket, _)| matches!(socket.role, Role::Listener(_)));
        if is_open {
            client.passing.push(owner.sock);
        } else {
            self.pass(now, owner);
        }
    }

    /// A listener has been closed: its connections go to others. Those of other listeners of the
    /// program wait until these are closed.
    pub(crate) fn pass_waiting(&mut self, now: Instant, listener: Owner) {
        let Some(client) = self.env.client(listener.client) else {
            return;
        };
        let waiting = core::mem::take(&mut client.passing);
        let (others, own): (Vec<SockId>, _) = waiting.into_iter().partition(|sock| {
            let socket = client.socket(*sock);
            socket.is_some_and(|it| it.listener != Some(listener.sock))
        });
        client.passing = others;
        for sock in own {
            let owner = Owner {
                client: listener.client,
                sock,
            };
            self.pass(now, owner);
        }
    }

    /// Takes the device's frames while a shared listener of this port closes: handshakes are
    /// completed, and SYNs are sent on to the listener that has the flow now. Returns the completed
    /// connections, with their received data.
    pub(crate) fn drain(&mut self, listener: ListenerId, port: u16) -> Vec<Completed> {
        if self.env.local.interconnect.is_none() {
            return Vec::new();
        }
        self.env.drained = Some(Drained::new(listener));
        let now = self.env.now;
        for _ in 0..DRAIN_ROUNDS {
            if self.drain_once(now, port) == 0 {
                break;
            }
        }
        self.env.drain_queue(&mut *self.device);
        self.run_deferred(now);
        let drained = self.env.drained.take();
        drained.map_or_else(Vec::new, Drained::into_conns)
    }

    /// One burst of [`Engine::drain`]; how many frames there were.
    fn drain_once(&mut self, now: Instant, port: u16) -> usize {
        let Engine {
            stack, device, env, ..
        } = self;
        device.rx(DRAIN_BUDGET, &mut |frame: &[u8], meta: RxMeta| {
            let interconnect = env.local.interconnect.as_ref();
            let taker = interconnect.and_then(|interconnect| {
                let slot = interconnect.find_taker(&syn_to(frame, port)?)?;
                Some((interconnect, slot))
            });
            if let Some((interconnect, slot)) = taker {
                let link = meta.link;
                let is_taken = interconnect.post(slot, &InboxMessage::Frame { link, frame });
                env.counters.local_lost += u64::from(!is_taken);
                return;
            }
            let mut fx = Fx::receiving(env);
            stack.on_frame(now, frame, meta, &mut fx);
        })
    }

    /// Handshakes that the peers of a closed listener are about to complete.
    pub(crate) fn pass_half_open(&mut self, now: Instant, images: Vec<HalfOpenImage>, link: u16) {
        for image in images {
            if self.stack.tcp_adopt_half_open(now, &image).is_err() {
                self.send_half_open(&image, link, 0);
            }
        }
    }

    pub(crate) fn pass_drained(&mut self, conns: Vec<Completed>) {
        for Completed {
            conn,
            bytes,
            has_fin,
            urgent,
        } in conns
        {
            self.env.flows.leave(conn);
            let state = match has_fin {
                true => State::FIN | State::RDHUP,
                false => State::NONE,
            };
            let untouched = Untouched {
                state,
                bytes: &bytes,
                urgent,
                reason: None,
            };
            let given = self.look_at_moving(conn).is_some_and(|it| {
                self.give_here(it, untouched)
                    || self.give_away(it, untouched)
                    || self.give_back(it, untouched, None)
            });
            self.env.counters.passed_out += u64::from(given);
            if !given {
                self.env.deferred.push(Deferred::Abort(conn));
            }
        }
        self.run_deferred(self.env.now);
    }

    /// Gives the connection to another listener, or resets it.
    pub(crate) fn pass(&mut self, now: Instant, owner: Owner) {
        let Some(client) = self.env.client(owner.client) else {
            return;
        };
        let Some((socket, end)) = client.find(owner.sock) else {
            return;
        };
        let conn = match socket.role {
            Role::Stream(conn) => Some(conn),
            _ => None,
        };
        let (state, reason) = (socket.state, socket.reason);
        let listener = socket.listener;
        let bytes = socket.receive.untouched(end, BYTES_MAX);
        let urgent = socket.receive.urgent_ahead(end, owner.sock);
        let moving = match conn {
            Some(conn) => self.look_at_moving(conn),
            None => self.look_at_ended(owner),
        };
        let from = listener.map(|sock| Owner { sock, ..owner });
        let passed = match (bytes, moving) {
            (Some(bytes), Some(moving)) => {
                let untouched = Untouched {
                    state,
                    bytes: &bytes,
                    urgent,
                    reason,
                };
                self.give_here(moving, untouched)
                    || self.give_away(moving, untouched)
                    || self.give_back(moving, untouched, from)
            }
            _ => false,
        };
        self.env.counters.passed_out += u64::from(passed);
        let Some(client) = self.env.client(owner.client) else {
            return;
        };
        let Some(conn) = conn.filter(|_| !passed) else {
            client.release(owner.sock);
            return;
        };
        if let Some((socket, _)) = client.find(owner.sock) {
            socket.is_closing = true;
        }
        let mut fx = Fx::new(&mut self.env, &mut *self.device);
        self.stack
            .tcp_close(now, conn, CloseMode::Abort, true, &mut fx);
        self.run_deferred(now);
    }

    pub(crate) fn look_at_moving(&self, conn: ConnId) -> Option<Moving> {
        Some(Moving {
            conn: Some(conn),
            ends: self.stack.tcp_endpoints(conn)?,
            link: self.stack.tcp_link(conn),
        })
    }

    /// Returns a socket's connection that has ended by an error.
    fn look_at_ended(&mut self, owner: Owner) -> Option<Moving> {
        let socket = self.env.socket(owner)?;
        let (ends, listener) = (socket.accepted_ends?.addrs(), socket.listener?);
        socket.reason?;
        let sock = listener;
        let listener = self.env.socket(Owner { sock, ..owner });
        Some(Moving {
            conn: None,
            ends,
            link: listener.map_or(0, |socket| socket.link()),
        })
    }

    /// Another listener of this engine takes it.
    pub(crate) fn give_here(&mut self, it: Moving, untouched: Untouched<'_>) -> bool {
        let listener = self.find_listener(it.ends.0, it.link);
        listener.is_some_and(|listener| self.give_to(listener, it, untouched))
    }

    /// Finds a listener for an unwanted connection: one that listens although its program does not
    /// accept at the moment, or the one it came from. One that has been bound to an interface since
    /// keeps what came before.
    pub(crate) fn give_back(
        &mut self,
        moving: Moving,
        untouched: Untouched<'_>,
        from: Option<Owner>,
    ) -> bool {
        let local = moving.ends.0;
        let serves = |it: &Listening| it.bound.span().takes(local.ip());
        let all: Vec<Listening> = self.env.listeners_on(local.port()).filter(serves).collect();
        let of_link = |link_of: fn(&Listening) -> u16| {
            let owners = all.iter().filter(|it| link_of(it) == moving.link);
            owners.map(|it| it.owner).collect::<Vec<Owner>>()
        };
        let mut owners = of_link(|it| it.link);
        if owners.is_empty() {
            owners = of_link(|it| it.bound.link);
        }
        let other = owners.iter().find(|owner| Some(**owner) != from);
        let found = other.or(owners.first()).copied();
        found.is_some_and(|owner| self.give_to(owner, moving, untouched))
    }

    fn give_to(&mut self, listener: Owner, it: Moving, untouched: Untouched<'_>) -> bool {
        let ends = Ends::of(it.ends.0, it.ends.1);
        let role = it.conn.map_or(Role::None, Role::Stream);
        let Some(owner) = self.env.offer(listener, role, &ends) else {
            return false;
        };
        if let Some(socket) = self.env.socket(listener)
            && let Some(queue) = &mut socket.queue
        {
            queue.on_passed_in();
        }
        let is_stored = self.env.put_untouched(owner, untouched);
        if let Some(conn) = it.conn {
            self.put_moved(owner, conn, &ends);
            if !is_stored {
                // The bytes have been acknowledged to the peer: without them the connection is
                // useless.
                self.env.deferred.push(Deferred::Abort(conn));
            }
        }
        self.env.counters.passed_in += 1;
        true
    }

    /// Makes a connection of the stack that of its new socket.
    fn put_moved(&mut self, owner: Owner, conn: ConnId, ends: &Ends) {
        self.env.conns.set(conn.index, conn.generation, owner);
        let (sndbuf, rcvbuf) = (self.stack.tcp_sndbuf(conn), self.stack.tcp_rcvbuf(conn));
        if let Some(client) = self.env.client(owner.client)
            && let Some((_, end)) = client.find(owner.sock)
        {
            end.set_sndbuf(owner.sock, sndbuf);
            end.set_rcvbuf(owner.sock, rcvbuf);
        }
        // Last, because the keeper would look into the new socket from now on.
        let origin = self.stack.tcp_origin(conn);
        self.env.flows.stay(conn, ends, owner, origin.as_ref());
    }

    /// A listening socket that serves this address, is bound to the link of the connection (or to
    /// none, as that), and does not yield: the narrowest, as for a SYN, and of several one whose
    /// program waits.
    pub(crate) fn find_listener(&self, local: SocketAddr, link: u16) -> Option<Owner> {
        let serves = |it: &Listening| {
            let is_alike = it.bound.span().takes(local.ip()) && it.link == link;
            it.yields == Yields::No && is_alike
        };
        let narrower = |known: Listening, other: Listening| {
            let (one, two) = (other.bound.span(), known.bound.span());
            let is_idler = one == two && other.is_idle && !known.is_idle;
            if one.is_narrower(two) || is_idler {
                other
            } else {
                known
            }
        };
        let found = self.env.listeners_on(local.port()).filter(serves);
        found.reduce(narrower).map(|it| it.owner)
    }
}

impl Environment {
    /// Gives a socket what its connection has at its beginning. Returns `false` if there is no room
    /// for the bytes.
    fn put_untouched(&mut self, owner: Owner, untouched: Untouched<'_>) -> bool {
        let Untouched {
            state,
            bytes,
            urgent,
            reason,
        } = untouched;
        let mut is_stored = false;
        if let Some(client) = self.client(owner.client)
            && let Some((socket, end)) = client.find(owner.sock)
        {
            let step = socket.step;
            is_stored = bytes.is_empty() || socket.receive.store(end, owner.sock, 0, bytes);
            socket.receive.restore_urgent(end, owner.sock, urgent);
            if is_stored && !bytes.is_empty() {
                let upto = bytes.len() as u64;
                socket.receive.publish(end, owner.sock, upto, step);
            }
            client.list_holder(owner.sock);
        }
        let kept = [
            State::FIN,
            State::RDHUP,
            State::HUP,
            State::ERR,
            State::CLOSED,
        ];
        let carried = kept.into_iter().filter(|bit| state.contains(*bit));
        let bits = carried.fold(State::NONE, |all, bit| all | bit);
        match reason {
            Some(reason) => self.fail(owner, reason, bits),
            None if bits != State::NONE => self.set_bits(owner, bits, State::NONE),
            None => {}
        }
        is_stored
    }
}
