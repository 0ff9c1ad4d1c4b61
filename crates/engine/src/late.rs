//! Datagrams that lie unread at a process which has its socket with others: it computes, is busy
//! with the one before, or stopped.
//!
//! On the kernel they are whoever's that waits. Here they are taken back, unless their program
//! reads them at that moment ([`slipstack_channel::ReceiveRing::take_back`]), and go to a
//! process of this engine that waits, or to other engines, to which the port's later datagrams go
//! too until the program waits again.

use std::net::SocketAddr;

use slipstack_channel::{Envelope, InboxMessage, Reply, SocketError, State, Transport};
use slipstack_mem::MpscInbox;
use slipstack_stack::{Choice, DatagramIn, Ends as Macs, Instant, Stack, UdpId};

use crate::client::{Role, Yields};
use crate::commands::Answer;
use crate::engine::Engine;
use crate::environment::Environment;
use crate::owners::{Called, Owner};
use crate::sharers::Late;
use crate::streams::ANY;

/// Datagrams that are taken back at once, and their bytes: a quarter of another engine's inbox.
const BATCH: usize = 32;
const BATCH_BYTES: usize = slipstack_channel::INBOX_CELLS / 8 * MpscInbox::CELL_BYTES;

/// Datagrams that arrive joined in one (UDP_MAX_SEGMENTS).
const PIECES_MAX: usize = 128;
/// Attempts to take datagrams back from a program that reads them at the same time.
const WITHDRAW_TRIES: usize = 4;
/// Time for an engine that has been called to begin a turn.
const ANSWER_NS: u64 = 1_000_000;
/// Time after which it is called again.
const CALL_NS: u64 = 30_000_000;

impl Engine {
    /// Gives unread datagrams to others. Returns whether there were any.
    #[cold]
    pub(crate) fn tend_sharers(&mut self, now: Instant) -> bool {
        let mut progress = false;
        for late in self.env.find_late() {
            if late.here == 0 {
                progress |= self.leave_to_engines(now, &late);
                continue;
            }
            let count = if late.is_long { BATCH } else { late.here };
            for datagram in self.withdraw_datagrams(late.owner, count, true) {
                match datagram {
                    Withdrawn::Frame(link, frame) => self.on_local(now, link, &frame),
                    Withdrawn::Common(envelope, payload) => {
                        self.env.give_to_sharer(late.owner, envelope, &payload);
                    }
                }
                progress = true;
            }
        }
        progress
    }

    /// Gives unread datagrams to the other engines of their port, if there are any.
    fn leave_to_engines(&mut self, now: Instant, late: &Late) -> bool {
        let yields = self.env.socket(late.owner).map(|socket| socket.yields);
        if yields != Some(Yields::Away) && !self.begin_to_yield_datagrams(late) {
            return false;
        }
        let takers = self.env.find_running(late.port);
        if takers.is_empty() {
            return false;
        }
        let withdrawn = self.withdraw_datagrams(late.owner, BATCH, false);
        let frames = withdrawn.into_iter().filter_map(|datagram| match datagram {
            Withdrawn::Frame(link, frame) => Some((link, frame)),
            Withdrawn::Common(..) => None,
        });
        let frames: Vec<_> = frames.collect();
        for ((link, frame), slot) in frames.iter().zip(takers.into_iter().cycle()) {
            let message = InboxMessage::Frame { link: *link, frame };
            let interconnect = self.env.local.interconnect.as_ref();
            if !interconnect.is_some_and(|it| it.post(slot, &message)) {
                self.on_local(now, *link, frame);
            }
        }
        !frames.is_empty()
    }

    fn begin_to_yield_datagrams(&mut self, late: &Late) -> bool {
        let interconnect = self.env.local.interconnect.as_ref();
        let has_others =
            interconnect.is_some_and(|it| it.other_slots(Transport::Udp, late.port) != 0);
        let bound = self
            .env
            .socket(late.owner)
            .and_then(|socket| socket.bound());
        let is_announced = bound.is_some_and(|bound| bound.is_announced);
        let ports = self.ports.as_ref().filter(|_| has_others && is_announced);
        let is_away = ports.is_some_and(|it| it.listen_yield(late.port, Transport::Udp, true));
        if is_away {
            if let Some(socket) = self.env.socket(late.owner) {
                socket.yields = Yields::Away;
            }
            self.env.set_bits(late.owner, State::YIELDS, State::NONE);
        }
        is_away
    }

    /// Handles a thread that waits for datagrams again, or the close of the socket.
    pub(crate) fn resume_datagrams(&mut self, owner: Owner) -> Answer {
        let socket = self.env.socket(owner).ok_or(SocketError::UnknownId)?;
        let is_away = core::mem::replace(&mut socket.yields, Yields::No) == Yields::Away;
        let port = socket.bound().map(|bound| bound.addr.port());
        if socket.state.contains(State::YIELDS) {
            self.env.set_bits(owner, State::NONE, State::YIELDS);
            self.env.set_passive(owner, None);
        }
        if is_away {
            // The others have all but the peer's of one that is connected.
            let ports = self
                .ports
                .as_ref()
                .filter(|_| !self.env.is_connected(owner));
            if let (Some(port), Some(ports)) = (port, ports) {
                ports.listen_yield(port, Transport::Udp, false);
            }
        }
        Ok(Reply::Done)
    }

    /// Takes the oldest unread datagrams back: at most `count`. `is_for_sharers`: those that only a
    /// sharer on this engine may have, too.
    fn withdraw_datagrams(
        &mut self,
        owner: Owner,
        count: usize,
        is_for_sharers: bool,
    ) -> Vec<Withdrawn> {
        let role = self.env.socket(owner).map(|socket| socket.role);
        let Some(Role::Datagram(id)) = role else {
            return Vec::new();
        };
        let Some(queue) = self.queue_of(owner, id) else {
            return Vec::new();
        };
        for _ in 0..WITHDRAW_TRIES {
            let Some((socket, end)) = self
                .env
                .client(owner.client)
                .and_then(|client| client.find(owner.sock))
            else {
                break;
            };
            let (from, oldest) = socket
                .receive
                .oldest_datagrams(end, owner.sock, BATCH_BYTES);
            let (mut found, mut upto) = (Vec::new(), from);
            for (envelope, payload, at) in &oldest {
                let datagram = of_ring(envelope, payload);
                let has_room = found.is_empty() || found.len() + pieces_of(&datagram) <= count;
                let is_common = is_for_sharers && pieces_of(&datagram) == 1;
                // The program keeps a datagram that others cannot have, and those behind it.
                match queue.takes(&datagram, &self.stack) {
                    _ if !has_room => break,
                    true => {
                        let frames = self.frames_of(&datagram).into_iter();
                        found.extend(frames.map(|(link, frame)| Withdrawn::Frame(link, frame)));
                    }
                    false if is_common && queue.holds(&datagram) => {
                        found.push(Withdrawn::Common(*envelope, payload.clone()));
                    }
                    false => break,
                }
                upto = *at;
            }
            if upto == from {
                break;
            }
            if self.env.take_back(owner, from, upto) {
                return found;
            }
        }
        Vec::new()
    }

    /// Returns what a socket's ring may have in it.
    pub(crate) fn queue_of(&mut self, owner: Owner, id: UdpId) -> Option<Queue> {
        let remote = self.stack.udp_remote(id);
        let socket = self.env.socket(owner)?;
        let bound = socket.bound()?;
        Some(Queue {
            port: bound.addr.port(),
            span: bound.span(),
            link: socket.link(),
            remote,
        })
    }

    /// Returns a datagram as frames, as it arrived, with their link.
    pub(crate) fn frames_of(&self, datagram: &DatagramIn<'_>) -> Vec<(u16, Vec<u8>)> {
        let macs = Macs::new([0; 6], self.env.mac);
        let frames = slipstack_stack::datagram_frames(datagram, macs);
        frames.map(|frame| (datagram.link, frame)).collect()
    }
}

/// An unread datagram that was taken back.
enum Withdrawn {
    /// As it arrived, with its link.
    Frame(u16, Vec<u8>),
    /// One to a group, a broadcast or foreign address: each socket there has had it.
    Common(Envelope, Vec<u8>),
}

/// A socket, as far as it says which datagrams can lie in its ring. The program can write into it:
/// it could send to others in anybody's name.
pub(crate) struct Queue {
    port: u16,
    span: slipstack_stack::Bound,
    link: u16,
    remote: Option<SocketAddr>,
}

impl Queue {
    /// Whether a datagram may have come, and can come again: it went to one of our addresses.
    pub(crate) fn takes(&self, it: &DatagramIn<'_>, stack: &Stack) -> bool {
        self.holds(it) && stack.is_own(it.to.ip()) && pieces_of(it) <= PIECES_MAX
    }

    /// Whether a datagram may have come.
    fn holds(&self, it: &DatagramIn<'_>) -> bool {
        let is_here = it.to.port() == self.port && self.span.takes(it.to.ip());
        let is_peer = |remote: SocketAddr| {
            remote == it.from || remote.port() == 0 && remote.ip() == it.from.ip()
        };
        is_here
            && self.remote.is_none_or(is_peer)
            && (self.link == 0 || self.link == Choice::link_of(it.link))
    }
}

/// Number of datagrams that have been joined in one.
fn pieces_of(it: &DatagramIn<'_>) -> usize {
    let size = it.segment.map(|size| usize::from(size.get()));
    size.map_or(1, |size| it.payload.len().div_ceil(size))
}

/// A datagram that lies in a ring.
pub(crate) fn of_ring<'a>(envelope: &Envelope, payload: &'a [u8]) -> DatagramIn<'a> {
    DatagramIn {
        from: envelope.peer.unwrap_or(ANY),
        to: envelope.local.unwrap_or(ANY),
        payload,
        tos: envelope.tos.unwrap_or(0),
        ttl: envelope.ttl.unwrap_or(0),
        segment: envelope.segment,
        link: envelope.link.unwrap_or(0),
        is_to_group: false,
        is_copy: false,
    }
}

impl Environment {
    /// Takes datagrams back from a socket's ring; `false`: its program has read one meanwhile.
    fn take_back(&mut self, owner: Owner, from: u64, upto: u64) -> bool {
        let Some(client) = self.client(owner.client) else {
            return false;
        };
        let Some((socket, end)) = client.find(owner.sock) else {
            return false;
        };
        let is_ours = socket.receive.take_back(end, owner.sock, from, upto);
        if is_ours {
            client.list_holder(owner.sock);
            self.set_passive(owner, Some(upto));
            self.set_bits(owner, State::YIELDS, State::NONE);
        }
        is_ours
    }

    /// Returns the other engines of a port that have begun a turn since they were last called, and
    /// calls those that have not: they may be stopped, and what is in their inbox then stays there.
    fn find_running(&mut self, port: u16) -> Vec<usize> {
        let Environment { local, shared, .. } = self;
        let Some(interconnect) = &local.interconnect else {
            return Vec::new();
        };
        let now = self.now;
        shared.called.retain(|it| now.0 - it.at.0 < CALL_NS);
        let mut left = interconnect.other_slots(Transport::Udp, port);
        let mut running = Vec::new();
        while left != 0 {
            let slot = left.trailing_zeros() as usize;
            left &= left - 1;
            let Some(beats) = interconnect.beats(slot) else {
                continue;
            };
            match shared.called.iter().position(|it| it.slot == slot) {
                Some(at) if shared.called[at].beats != beats => {
                    shared.called.swap_remove(at);
                    running.push(slot);
                }
                Some(_) => {}
                None => {
                    shared.called.push(Called {
                        slot,
                        beats,
                        at: now,
                    });
                    interconnect.wake(slot);
                    shared.due_at = shared.due_at.min(Instant(now.0 + ANSWER_NS));
                }
            }
        }
        running
    }
}
