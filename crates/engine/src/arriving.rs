//! Connections on their way between engines, in messages through the inboxes.
//!
//! One that no longer finds its listener goes on to the engine that the steering table names by
//! then, or else to the keeper, which knows the engines that listen at the connection's address and
//! keeps it while a program still means to listen there.

use std::net::SocketAddr;

use slipstack_channel::{
    HOPS_MAX, InboxMessage, PASSED_CHUNK, Passed, PassingHead, Reason, SocketOption, State,
};
use slipstack_device::{Flow, Transport};
use slipstack_stack::{CloseMode, ConnId, ConnectionImage, HalfOpenImage, Instant, SocketError};

use crate::effects::Fx;
use crate::engine::Engine;
use crate::owners::Owner;
use crate::partial::{BYTES_MAX, Conveyed, Partial};
use crate::passing::{Moving, Untouched};
use crate::yielding::Listening;

/// Connections whose messages are incomplete; beyond this limit those of dead senders are dropped.
const ARRIVING_MAX: usize = 256;
/// The keeper's inbox.
const KEEPER: usize = 0;
/// Bits of a message's tag below the number of the slot that it comes from; the keeper's is 0.
const SLOT_SHIFT: u32 = 48;

impl Engine {
    /// The engine that the steering names for new connections takes it, or the keeper.
    pub(crate) fn give_away(&mut self, moving: Moving, untouched: Untouched<'_>) -> bool {
        let taker = self.find_taker(moving.ends);
        if taker.is_none() {
            return false;
        }
        let Some(conveyed) = self.detach_moving(moving, untouched.reason) else {
            return false;
        };
        let partial = Partial {
            hops: 0,
            is_bare: false,
            conveyed,
            state: untouched.state,
            urgent: untouched.urgent,
            bytes: untouched.bytes.to_vec(),
            len: untouched.bytes.len(),
        };
        let is_sent = self.post_on(taker, moving.ends, &partial);
        // Until now the keeper would have passed it on if this process had been killed. The other
        // engine wakes up, which is a system call, only then: the process may be killed there.
        if let Some(conn) = moving.conn {
            self.env.flows.close(conn);
        }
        self.wake(taker);
        is_sent
    }

    /// Takes a connection out of the stack, if it is there.
    fn detach_moving(&mut self, moving: Moving, reason: Option<Reason>) -> Option<Conveyed> {
        let Some(conn) = moving.conn else {
            return reason.map(|reason| Conveyed::Ended {
                ends: moving.ends,
                link: moving.link,
                reason,
            });
        };
        let image = self.stack.tcp_detach(conn)?;
        self.env.conns.remove(conn.index, conn.generation);
        Some(Conveyed::Open(Box::new(image.without_ranges())))
    }

    /// Returns the slot whose inbox the connection goes to, or `None` if no other engine may take
    /// it.
    fn find_taker(&self, (local, remote): (SocketAddr, SocketAddr)) -> Option<usize> {
        let flow = Flow {
            proto: Transport::Tcp,
            local,
            remote,
        };
        let interconnect = self.env.local.interconnect.as_ref()?;
        let slot = interconnect.find_route(&flow);
        (slot != interconnect.own_slot()).then_some(usize::from(slot))
    }

    fn next_head(
        &mut self,
        ends: (SocketAddr, SocketAddr),
        link: u16,
        hops: u8,
    ) -> Option<PassingHead> {
        let interconnect = self.env.local.interconnect.as_ref()?;
        self.arriving.next_tag += 1;
        Some(PassingHead {
            hops,
            link,
            tag: u64::from(interconnect.own_slot()) << SLOT_SHIFT | self.arriving.next_tag,
            local: ends.0,
            remote: ends.1,
        })
    }

    /// The engine to which a connection goes whose listener is not here: [`Engine::find_taker`], or
    /// the keeper, if steering names this one although it does not listen at the address.
    fn find_next(&self, ends: (SocketAddr, SocketAddr), link: u16) -> Option<usize> {
        let local = ends.0;
        let takes = |it: Listening| it.bound.span().takes(local.ip()) && it.link == link;
        let has_listener = self.env.listeners_on(local.port()).any(takes);
        let has_keeper = self.env.local.interconnect.is_some();
        let keeper = (has_keeper && !has_listener).then_some(KEEPER);
        self.find_taker(ends).or(keeper)
    }

    fn wake(&self, slot: Option<usize>) {
        if let (Some(slot), Some(interconnect)) = (slot, &self.env.local.interconnect) {
            interconnect.wake(slot);
        }
    }

    /// Posts the messages of a connection to an engine, or to the keeper, without waking it.
    /// Returns `false` if there is none.
    fn post_on(
        &mut self,
        slot: Option<usize>,
        ends: (SocketAddr, SocketAddr),
        partial: &Partial,
    ) -> bool {
        let Some(slot) = slot else {
            return false;
        };
        let Some(head) = self.next_head(ends, partial.conveyed.link(), partial.hops) else {
            return false;
        };
        let (len, urgent) = (partial.len as u32, partial.urgent);
        let image;
        let first = match &partial.conveyed {
            Conveyed::Open(it) => {
                image = it.to_bytes();
                Passed::Open {
                    len,
                    has_fin: partial.state.contains(State::RDHUP),
                    urgent,
                    image: &image,
                }
            }
            Conveyed::Ended { reason, .. } => Passed::Ended {
                len,
                has_fin: partial.state.contains(State::FIN),
                urgent,
                reason: *reason,
            },
        };
        let chunks = partial.bytes.chunks(PASSED_CHUNK).map(Passed::Bytes);
        let messages = std::iter::once(first).chain(chunks);
        self.post_all(
            slot,
            messages.map(|passed| InboxMessage::Passing(head, passed)),
        );
        true
    }

    /// Sends a handshake in progress to the engine that may complete it. If there is none, a
    /// listener of this engine does, although it yields.
    pub(crate) fn send_half_open(&mut self, image: &HalfOpenImage, link: u16, hops: u8) {
        if let Some(ends) = image.endpoints()
            && let Some(slot) = self.find_next(ends, link)
            && let Some(head) = self.next_head(ends, link, hops)
        {
            let image = image.to_bytes();
            let message = InboxMessage::Passing(head, Passed::HalfOpen(&image));
            self.post_all(slot, std::iter::once(message));
            // As in `take_in`, if it has come by the inbox.
            self.release_inbox(false);
            self.wake(Some(slot));
            self.env.counters.half_open_out += 1;
        } else if self.stack.tcp_adopt_half_open(self.env.now, image).is_err() {
            self.env.counters.half_open_refused += 1;
        }
    }

    fn post_all<'a>(&mut self, slot: usize, messages: impl Iterator<Item = InboxMessage<'a>>) {
        let Some(interconnect) = &self.env.local.interconnect else {
            return;
        };
        let mut lost = 0;
        for message in messages {
            lost += u64::from(!interconnect.post_patiently(slot, &message));
        }
        self.env.counters.local_lost += lost;
    }

    /// Takes a message that another engine has sent about a connection.
    pub(crate) fn on_passed(&mut self, now: Instant, head: &PassingHead, passed: Passed<'_>) {
        match passed {
            Passed::HalfOpen(image) => {
                if let Ok(image) = image.try_into() {
                    self.take_half_open(now, &HalfOpenImage::from_bytes(image), head);
                }
                return;
            }
            Passed::Open { .. } | Passed::Ended { .. } => self.expect(head, passed),
            Passed::Bytes(bytes) => {
                if let Some(partial) = self.arriving.partial.get_mut(&head.tag) {
                    let room = partial.len - partial.bytes.len();
                    let taken = bytes.len().min(room);
                    partial.bytes.extend_from_slice(&bytes[..taken]);
                }
            }
        }
        let is_whole = |partial: &Partial| partial.bytes.len() == partial.len;
        if self.arriving.partial.get(&head.tag).is_some_and(is_whole)
            && let Some(partial) = self.arriving.partial.remove(&head.tag)
        {
            self.take_in(now, partial);
        }
    }

    /// Frees the messages that were taken from the inbox: if this process is killed before, the
    /// keeper finds them there. Those of a connection are kept until all have come, and it is in
    /// the directory, but no longer than until the inbox `is_empty`.
    #[inline]
    pub(crate) fn release_inbox(&mut self, is_empty: bool) {
        if (is_empty || self.arriving.partial.is_empty())
            && let Some(interconnect) = &mut self.env.local.interconnect
        {
            interconnect.reader().release();
        }
    }

    /// Takes the first message of a connection.
    fn expect(&mut self, head: &PassingHead, passed: Passed<'_>) {
        let (len, has_fin, urgent, conveyed) = match passed {
            Passed::Open {
                len,
                has_fin,
                urgent,
                image,
            } => {
                let Ok(image) = image.try_into() else {
                    return;
                };
                let image = Box::new(ConnectionImage::from_bytes(image));
                (len, has_fin, urgent, Conveyed::Open(image))
            }
            Passed::Ended {
                len,
                has_fin,
                urgent,
                reason,
            } => {
                let ends = (head.local, head.remote);
                let link = head.link;
                let ended = Conveyed::Ended { ends, link, reason };
                (len, has_fin, urgent, ended)
            }
            Passed::HalfOpen(_) | Passed::Bytes(_) => return,
        };
        let len = len as usize;
        if len > BYTES_MAX {
            return;
        }
        // An earlier copy that is still incomplete stays so, because its sender was killed.
        let ends = Some((head.local, head.remote));
        let partial = &mut self.arriving.partial;
        partial.retain(|_, partial| partial.conveyed.endpoints() != ends);
        if self.arriving.partial.len() >= ARRIVING_MAX {
            self.arriving.partial.clear();
        }
        let partial = Partial {
            hops: head.hops,
            is_bare: head.tag >> SLOT_SHIFT == 0,
            state: state_of(&conveyed, has_fin),
            conveyed,
            urgent,
            bytes: Vec::new(),
            len,
        };
        self.arriving.partial.insert(head.tag, partial);
    }

    fn take_half_open(&mut self, now: Instant, image: &HalfOpenImage, head: &PassingHead) {
        match self.stack.tcp_adopt_half_open(now, image) {
            Ok(()) => {
                self.env.counters.half_open_in += 1;
                self.record_half_open();
            }
            Err(SocketError::UnknownId) if head.hops < HOPS_MAX => {
                self.send_half_open(image, head.link, head.hops + 1);
            }
            Err(_) => self.env.counters.half_open_refused += 1,
        }
    }

    fn take_in(&mut self, now: Instant, mut partial: Partial) {
        // Our own listener may have closed meanwhile, and the next one too.
        let link = partial.conveyed.link();
        if let Some(ends) = partial.conveyed.endpoints()
            && partial.hops < HOPS_MAX
            && self.find_listener(ends.0, link).is_none()
        {
            partial.hops += 1;
            let next = self.find_next(ends, link);
            if self.post_on(next, ends, &partial) {
                // Waking is a system call, in which this process may be killed: the keeper then
                // must not find here what is already there.
                self.release_inbox(false);
                self.wake(next);
                return;
            }
        }
        let (moving, reason) = match &partial.conveyed {
            Conveyed::Open(image) => (self.adopt_passed(now, image), None),
            Conveyed::Ended { ends, link, reason } => {
                let (conn, ends, link) = (None, *ends, *link);
                (Some(Moving { conn, ends, link }), Some(*reason))
            }
        };
        let Some(moving) = moving else {
            return;
        };
        let listener = self.find_listener(moving.ends.0, moving.link);
        if let (Some(listener), Some(conn), true) = (listener, moving.conn, partial.is_bare) {
            self.inherit(now, conn, listener);
        }
        // The others may all have left the port while the listener here yields to them.
        let untouched = Untouched {
            state: partial.state,
            bytes: &partial.bytes,
            urgent: partial.urgent,
            reason,
        };
        let taken = self.give_here(moving, untouched) || self.give_back(moving, untouched, None);
        if let Some(conn) = moving.conn.filter(|_| !taken) {
            let mut fx = Fx::new(&mut self.env, &mut *self.device);
            self.stack
                .tcp_close(now, conn, CloseMode::Abort, true, &mut fx);
            self.run_deferred(now);
        }
    }

    /// Takes a connection into the stack, or resets it if the stack has no place for it.
    fn adopt_passed(&mut self, now: Instant, image: &ConnectionImage) -> Option<Moving> {
        let mut fx = Fx::new(&mut self.env, &mut *self.device);
        let Ok(conn) = self.stack.tcp_adopt(now, image, &mut fx) else {
            self.stack.tcp_refuse(now, image, &mut fx);
            self.env.counters.passed_refused += 1;
            return None;
        };
        self.look_at_moving(conn)
    }

    /// Gives a connection the options of its listener, as one that the listener makes has them.
    fn inherit(&mut self, now: Instant, conn: ConnId, listener: Owner) {
        let Some(socket) = self.env.socket(listener) else {
            return;
        };
        // One on which nothing was set has defaults, which may not be those of the listener before.
        let options = socket.options.clone().unwrap_or_default();
        let changes = [
            Some(SocketOption::NoDelay(options.no_delay)),
            Some(SocketOption::KeepAlive(options.keep_alive)),
            Some(SocketOption::UserTimeout(options.user_timeout)),
            Some(SocketOption::Linger2(options.linger2)),
            Some(SocketOption::Tos(options.tos)),
            Some(SocketOption::Ttl(options.ttl)),
            Some(SocketOption::TosV6(options.tos_v6)),
            Some(SocketOption::Priority(options.priority)),
            Some(SocketOption::Mark(options.mark)),
            Some(SocketOption::Table(options.table)),
            Some(SocketOption::Link(options.link)),
            Some(SocketOption::TtlV6(options.ttl_v6)),
            Some(SocketOption::RtoMin(options.rto_min_us)),
            Some(SocketOption::RtoMax(options.rto_max_ms)),
            Some(SocketOption::AckDelayMax(options.ack_delay_max_us)),
            Some(SocketOption::Linear(options.is_linear)),
            Some(SocketOption::ResetsAtEnd(options.resets_at_end)),
            Some(SocketOption::HopsMin(options.hops_min)),
            Some(SocketOption::HopsMinV6(options.hops_min_v6)),
            Some(SocketOption::MaxPacingRate(options.max_pacing_rate)),
            options.congestion.map(SocketOption::Congestion),
            options.rcvbuf.map(SocketOption::RcvBuf),
            options.sndbuf.map(SocketOption::SndBuf),
            options.buf_lock.map(SocketOption::BufLock),
        ];
        for option in changes.into_iter().flatten() {
            let mut fx = Fx::new(&mut self.env, &mut *self.device);
            // One that the stack does not take it would not have taken from the program.
            let _ = self.stack.tcp_set_option(now, conn, option, &mut fx);
        }
    }
}

/// Returns what a connection's socket is to show of its end.
fn state_of(conveyed: &Conveyed, has_fin: bool) -> State {
    let fin = match has_fin {
        true => State::FIN | State::RDHUP,
        false => State::NONE,
    };
    match conveyed {
        Conveyed::Open(_) => fin,
        Conveyed::Ended { .. } => fin | State::HUP | State::RDHUP | State::CLOSED,
    }
}
