//! Unaccepted and half-open connections of a closed listener that another listener of the same
//! address takes: one of this engine, or one of the engine that the steering table names. Their
//! transfer is in `arriving.rs`.

use std::net::SocketAddr;

use slipstack_channel::{Ends, InboxMessage, SockId, State, UrgentAhead};
use slipstack_stack::{CloseMode, ConnId, HalfOpenImage, Instant, ListenerId, RxMeta};

use crate::client::{Role, Yields};
use crate::drained::{Completed, Drained};
use crate::effects::Fx;
use crate::engine::Engine;
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
}

impl Engine {
    /// Schedules a connection that the program has not taken and will not take. Its listener is
    /// usually about to close; in the directory the flow is leaving, so that steering releases it
    /// too.
    pub(crate) fn pass_later(&mut self, now: Instant, owner: Owner, conn: ConnId) {
        self.env.flows.leave(conn);
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
            };
            let given = self.stack.tcp_endpoints(conn).is_some_and(|ends| {
                self.give_here(conn, ends, untouched)
                    || self.give_away(conn, ends, untouched)
                    || self.give_back(conn, ends, untouched, None)
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
        let Role::Stream(conn) = socket.role else {
            client.release(owner.sock);
            return;
        };
        let state = socket.state;
        let from = socket.listener.map(|sock| Owner { sock, ..owner });
        let bytes = socket.receive.untouched(end, BYTES_MAX);
        let urgent = socket.receive.urgent_ahead(end, owner.sock);
        let endpoints = self.stack.tcp_endpoints(conn);
        let passed = match (bytes, endpoints) {
            (Some(bytes), Some(ends)) => {
                let untouched = Untouched {
                    state,
                    bytes: &bytes,
                    urgent,
                };
                self.give_here(conn, ends, untouched)
                    || self.give_away(conn, ends, untouched)
                    || self.give_back(conn, ends, untouched, from)
            }
            _ => false,
        };
        self.env.counters.passed_out += u64::from(passed);
        let Some(client) = self.env.client(owner.client) else {
            return;
        };
        if passed {
            client.release(owner.sock);
            return;
        }
        if let Some((socket, _)) = client.find(owner.sock) {
            socket.is_closing = true;
        }
        let mut fx = Fx::new(&mut self.env, &mut *self.device);
        self.stack
            .tcp_close(now, conn, CloseMode::Abort, true, &mut fx);
        self.run_deferred(now);
    }

    /// Another listener of this engine takes it.
    pub(crate) fn give_here(
        &mut self,
        conn: ConnId,
        (local, remote): (SocketAddr, SocketAddr),
        untouched: Untouched<'_>,
    ) -> bool {
        let listener = self.find_listener(local, self.stack.tcp_link(conn));
        listener.is_some_and(|it| self.give_to(it, conn, (local, remote), untouched))
    }

    /// Finds a listener for an unwanted connection: one that listens although its program does not
    /// accept at the moment, or the one it came from. One that has been bound to an interface since
    /// keeps what came before.
    pub(crate) fn give_back(
        &mut self,
        conn: ConnId,
        ends: (SocketAddr, SocketAddr),
        untouched: Untouched<'_>,
        from: Option<Owner>,
    ) -> bool {
        let link = self.stack.tcp_link(conn);
        let serves = |it: &Listening| it.bound.span().takes(ends.0.ip());
        let all: Vec<Listening> = self
            .env
            .listeners_on(ends.0.port())
            .filter(serves)
            .collect();
        let of_link = |link_of: fn(&Listening) -> u16| {
            let owners = all.iter().filter(|it| link_of(it) == link);
            owners.map(|it| it.owner).collect::<Vec<Owner>>()
        };
        let mut owners = of_link(|it| it.link);
        if owners.is_empty() {
            owners = of_link(|it| it.bound.link);
        }
        let other = owners.iter().find(|owner| Some(**owner) != from);
        let found = other.or(owners.first()).copied();
        found.is_some_and(|owner| self.give_to(owner, conn, ends, untouched))
    }

    fn give_to(
        &mut self,
        listener: Owner,
        conn: ConnId,
        (local, remote): (SocketAddr, SocketAddr),
        untouched: Untouched<'_>,
    ) -> bool {
        let ends = Ends::of(local, remote);
        let Untouched {
            state,
            bytes,
            urgent,
        } = untouched;
        let Some(owner) = self.env.offer(listener, conn, &ends) else {
            return false;
        };
        if let Some(socket) = self.env.socket(listener)
            && let Some(queue) = &mut socket.queue
        {
            queue.on_passed_in();
        }
        self.env.conns.set(conn.index, conn.generation, owner);
        let (sndbuf, rcvbuf) = (self.stack.tcp_sndbuf(conn), self.stack.tcp_rcvbuf(conn));
        if let Some(client) = self.env.client(owner.client)
            && let Some((socket, end)) = client.find(owner.sock)
        {
            end.set_sndbuf(owner.sock, sndbuf);
            end.set_rcvbuf(owner.sock, rcvbuf);
            let step = socket.step;
            let is_stored = bytes.is_empty() || socket.receive.store(end, owner.sock, 0, bytes);
            socket.receive.restore_urgent(end, owner.sock, urgent);
            if is_stored && !bytes.is_empty() {
                let upto = bytes.len() as u64;
                socket.receive.publish(end, owner.sock, upto, step);
            }
            client.list_holder(owner.sock);
            if !is_stored {
                // The bytes have been acknowledged to the peer: without them the connection is
                // useless.
                self.env.deferred.push(Deferred::Abort(conn));
            }
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
        if bits != State::NONE {
            self.env.set_bits(owner, bits, State::NONE);
        }
        // Last, because the keeper would look into the new socket from now on.
        let origin = self.stack.tcp_origin(conn);
        self.env.flows.stay(conn, &ends, owner, origin.as_ref());
        self.env.counters.passed_in += 1;
        true
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
