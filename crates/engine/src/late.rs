//! Datagrams that lie unread at a process which has its socket with others: it computes, is busy
//! with the one before, or stopped.
//!
//! On the kernel they are whoever's that waits. Here they are taken back, unless their program
//! reads them at that moment ([`slipstack_channel::ReceiveRing::withdraw_datagrams`]), and go to a
//! process of this engine that waits, or to other engines, to which the port's later datagrams go
//! too until the program waits again.

use slipstack_channel::{Envelope, InboxMessage, Reply, SocketError, State, Transport};
use slipstack_mem::MpscInbox;
use slipstack_stack::{Instant, UdpId};

use crate::client::{Role, Yields};
use crate::commands::Answer;
use crate::engine::Engine;
use crate::environment::Environment;
use crate::owners::{Called, Owner};
use crate::sharers::Late;

/// Datagrams that are taken back at once, and their bytes: a quarter of another engine's inbox.
const BATCH: usize = 32;
const BATCH_BYTES: usize = slipstack_channel::INBOX_CELLS / 8 * MpscInbox::CELL_BYTES;

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
            progress |= match late.waiting {
                0 => self.leave_to_engines(&late),
                waiting => {
                    let count = if late.is_long { BATCH } else { waiting };
                    let unread = self.withdraw_datagrams(late.owner, count);
                    let frames = self.frames_of(late.owner, &unread);
                    for (link, frame) in &frames {
                        self.on_local(now, *link, frame);
                    }
                    !frames.is_empty()
                }
            };
        }
        progress
    }

    /// Gives unread datagrams to the other engines of their port, if there are any.
    fn leave_to_engines(&mut self, late: &Late) -> bool {
        let yields = self.env.socket(late.owner).map(|socket| socket.yields);
        if yields != Some(Yields::Away) && !self.begin_to_yield_datagrams(late) {
            return false;
        }
        let takers = self.env.find_running(late.port);
        if takers.is_empty() {
            return false;
        }
        let unread = self.withdraw_datagrams(late.owner, BATCH);
        let frames = self.frames_of(late.owner, &unread);
        for ((link, frame), slot) in frames.iter().zip(takers.into_iter().cycle()) {
            let message = InboxMessage::Frame { link: *link, frame };
            let interconnect = self.env.local.interconnect.as_ref();
            if !interconnect.is_some_and(|it| it.post(slot, &message)) {
                self.env.counters.local_lost += 1;
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
        if core::mem::replace(&mut socket.yields, Yields::No) == Yields::Away {
            let port = socket.bound().map(|bound| bound.addr.port());
            self.env.set_bits(owner, State::NONE, State::YIELDS);
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

    fn withdraw_datagrams(&mut self, owner: Owner, count: usize) -> Vec<(Envelope, Vec<u8>)> {
        let client = self.env.client(owner.client);
        let Some((socket, end)) = client.and_then(|client| client.find(owner.sock)) else {
            return Vec::new();
        };
        socket
            .receive
            .withdraw_datagrams(end, owner.sock, (count, BATCH_BYTES))
    }

    /// The datagram socket of the stack that belongs to an owner.
    fn datagram_of(&mut self, owner: Owner) -> Option<UdpId> {
        match self.env.socket(owner)?.role {
            Role::Datagram(id) => Some(id),
            _ => None,
        }
    }

    fn frames_of(&mut self, owner: Owner, unread: &[(Envelope, Vec<u8>)]) -> Vec<(u16, Vec<u8>)> {
        match self.datagram_of(owner) {
            Some(id) => self.unread_frames(owner, id, unread),
            None => Vec::new(),
        }
    }
}

impl Environment {
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
