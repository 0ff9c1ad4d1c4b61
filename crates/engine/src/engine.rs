//! The engine and its turn: receive burst, commands, timers, flush, doorbells.

use core::fmt;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use slipstack_channel::{EngineEnd, InboxMessage, Limits, Outgoing};
use slipstack_device::{Device, Rest, Sink};
use slipstack_mem::{Doorbell, MpscInbox, Region};
use slipstack_stack::{CloseMode, ConnId, Instant, RxMeta, Stack, StackConfig};

use crate::authority::{NeighbourTable, PortAuthority};
use crate::client::{Client, ClientId};
use crate::departed::Departed;
use crate::effects::Fx;
use crate::environment::Environment;
use crate::filtering::HeldFilter;
use crate::frames::FrameQueue;
use crate::inquiry::pending::PendingInquiry;
use crate::load::Load;
use crate::local::{Interconnect, Local};
use crate::owners::{Deferred, Flows, LentOffers, Offers, Owners, Shared};
use crate::partial::Arriving;
use crate::stats::EngineCounters;
use crate::waiting::Waiting;

/// Frames taken from the device per turn.
const RX_BUDGET: usize = 256;
/// Consecutive turns with a full burst of frames after which a turn checks the timers: twice the
/// slots of the device's ring.
const FULL_TURNS_MAX: u32 = 16;
/// Frames taken from the inbox per turn.
const INBOX_BUDGET: usize = 256;
/// Rounds in which frames to ourselves are delivered at once.
const LOCAL_ROUNDS: usize = 8;
/// Commands taken from one client per turn.
pub(crate) const COMMAND_BUDGET: usize = 4096;
/// Longest sleep while the keeper resolves a neighbour.
const NEIGHBOUR_POLL_NS: u64 = 1_000_000;
/// Longest sleep while the kernel has no room for our frames.
const TX_RETRY_NS: u64 = 200_000;

/// The parts of an engine.
pub struct Setup {
    pub stack: StackConfig,
    pub device: Box<dyn Device>,
    /// Region whose flow directory lists this engine's flows: the channel's own in-process, one of
    /// its own in an instance.
    pub directory: Option<Region>,
    pub interconnect: Option<Interconnect>,
    pub ports: Option<Box<dyn PortAuthority>>,
    pub neighbours: Option<Box<dyn NeighbourTable>>,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Something was done.
    pub progress: bool,
    /// Frames received from the device.
    pub frames: usize,
}

/// The frames of one turn.
struct Burst<'a> {
    stack: &'a mut Stack,
    env: &'a mut Environment,
    now: Instant,
}

impl Sink for Burst<'_> {
    #[inline]
    fn frame(&mut self, frame: &[u8], meta: RxMeta) {
        let mut fx = Fx::receiving(self.env);
        self.stack.on_burst_frame(self.now, frame, meta, &mut fx);
    }

    fn large(&mut self, beginning: &[u8], meta: RxMeta, rest: &mut dyn Rest) {
        let len = rest.frame_len();
        let mut fx = Fx::fetching(self.env, rest);
        self.stack
            .on_large_frame(self.now, beginning, len, meta, &mut fx);
    }

    fn clock_ns(&self) -> Option<u64> {
        Some(self.now.0)
    }
}

/// One stack on one slot, with its clients.
pub struct Engine {
    pub(crate) stack: Stack,
    pub(crate) device: Box<dyn Device>,
    pub(crate) env: Environment,
    pub(crate) ports: Option<Box<dyn PortAuthority>>,
    /// Leased blocks of outgoing ports; the last is the one in use.
    pub(crate) port_blocks: Vec<(u16, u16)>,
    /// Neighbours that were unresolved at the last check.
    pub(crate) unresolved: Vec<IpAddr>,
    /// Number of moves of neighbours at the last look.
    pub(crate) moves: u64,
    /// Buffer for datagrams on their way out.
    pub(crate) scratch: Vec<u8>,
    /// Buffer for inbox messages, made for the first one.
    inbox_frame: Vec<u8>,
    /// Turns in a row in which the device had all that one takes.
    full_turns: u32,
    pub(crate) arriving: Arriving,
    /// Set once the device is wrapped: see `alone.rs`.
    pub(crate) is_alone: Option<Arc<AtomicBool>>,
    /// List for the responses of clients that live on this thread.
    pub(crate) outgoing: Outgoing,
    /// An operator's question while it is being answered.
    pub(crate) pending_inquiry: Option<Box<PendingInquiry>>,
    pub(crate) filter: HeldFilter,
    /// Time at which its rules are fetched again.
    pub(crate) filter_due: Option<Instant>,
    pub(crate) has_chores: bool,
    /// Connections take ports that the card's map of its queues brings to this engine's.
    pub(crate) is_homing: bool,
    /// Number of times that the device has been another one.
    pub(crate) device_renewals: u32,
    /// SYN-ACKs that another engine has taken from its queue and handed over.
    pub(crate) answers_handed_over: u64,
    load: Load,
    is_sleeping: bool,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("clients", &self.env.clients.len())
            .finish_non_exhaustive()
    }
}

impl Engine {
    pub fn new(setup: Setup, now: Instant) -> Engine {
        let env = Environment {
            clients: Vec::new(),
            owned: Vec::new(),
            has_responses: false,
            conns: Owners::default(),
            listeners: Owners::default(),
            udps: Owners::default(),
            flows: Flows::new(setup.directory.as_ref()),
            queue: FrameQueue::default(),
            local: Local::new(setup.interconnect),
            departed: Departed::default(),
            offers: Offers::default(),
            lent_offers: LentOffers::default(),
            maps: Vec::new(),
            shared: Shared::default(),
            deferred: Vec::new(),
            waiting: Waiting::default(),
            drained: None,
            has_rest: false,
            left_at: Instant::FAR_FUTURE,
            counters: EngineCounters::default(),
            now,
            mac: setup.stack.mac,
            has_tx_checksum: setup.device.info().tx_checksum,
            initial: Limits {
                send: setup.stack.tcp.sndbuf_initial,
                receive: setup.stack.tcp.rcvbuf_initial,
            },
            neighbours: setup.neighbours,
            doubted: Vec::new(),
        };
        let mut engine = Engine {
            port_blocks: vec![setup.stack.ephemeral],
            stack: Stack::new(setup.stack, now),
            device: setup.device,
            env,
            ports: setup.ports,
            unresolved: Vec::new(),
            moves: 0,
            scratch: Vec::new(),
            inbox_frame: Vec::new(),
            full_turns: 0,
            arriving: Arriving::default(),
            is_alone: None,
            outgoing: Outgoing::default(),
            pending_inquiry: None,
            filter: HeldFilter::default(),
            filter_due: None,
            has_chores: false,
            is_homing: false,
            device_renewals: 0,
            answers_handed_over: 0,
            load: Load::default(),
            is_sleeping: false,
        };
        if engine.env.flows.records_time_waits() {
            engine.stack.tcp_note_time_waits();
        }
        engine.begin_homing();
        engine
    }

    /// Takes a program in. `bell` wakes it; none when it drives this engine itself.
    pub fn attach_client(&mut self, end: EngineEnd, bell: Option<Doorbell>) -> ClientId {
        self.env.counters.clients_attached += 1;
        end.set_network_revision(self.network().revision);
        let region = end.region().clone();
        let client = Some(Client::new(end, bell));
        let clients = &mut self.env.clients;
        let at = clients.iter().position(Option::is_none).unwrap_or_else(|| {
            clients.push(None);
            clients.len() - 1
        });
        clients[at] = client;
        let id = ClientId(at as u32);
        if self.env.flows.note_client(id, &region) {
            self.stack.tcp_note_half_open();
        }
        id
    }

    /// One pass over everything, bounded, never blocking (but for rare questions to the port
    /// authority).
    #[inline(always)]
    pub fn turn(&mut self, now: Instant) -> Turn {
        // Another thread's turn may have read the clock later.
        let now = now.max(self.env.now);
        self.env.now = now;
        self.set_sleeping(false);
        self.env.local.beat();
        self.env.counters.turns += 1;
        self.pause(now);
        self.take_rest(now);
        let frames = self.receive(now);
        let mut progress = frames > 0;
        progress |= self.receive_inbox(now);
        progress |= self.run_owners(now);
        progress |= self.run_commands(now);
        if self.has_read(frames) {
            progress |= self.run_timers(now);
        }
        progress |= self.tend_listeners(now);
        progress |= self.has_chores && self.are_chores_due(now) && self.do_chores(now);
        self.finish(now);
        if progress {
            self.load.on_work(now);
        } else {
            self.env.counters.turns_idle += 1;
            for client in self.env.clients.iter_mut().flatten() {
                client.release_idle(now, false);
            }
        }
        Turn { progress, frames }
    }

    /// Ends the period of counted work: the driver runs the next turn, or is about to sleep.
    #[inline]
    pub fn pause(&mut self, now: Instant) {
        self.env.counters.busy_ns += self.load.take(now);
    }

    /// Runs a turn for a program that is away: received data is acknowledged at once.
    pub fn stand_in(&mut self, now: Instant) -> Turn {
        let is_owed = self.stack.leave_unattended(now);
        let mut turn = self.turn(now);
        turn.progress |= is_owed;
        self.stack.attend();
        turn
    }

    /// Runs only the commands of programs, and sends the result.
    pub fn commands(&mut self, now: Instant) {
        self.env.now = now;
        if self.run_commands(now) {
            self.load.on_work(now);
            self.finish(now);
        }
    }

    /// Returns whether the device has been emptied, as far as the count of frames shows: after a
    /// full burst there may be more, acknowledgments among them. A device that is never empty
    /// delays the timers only for some turns.
    #[inline]
    fn has_read(&mut self, frames: usize) -> bool {
        if frames < RX_BUDGET {
            self.full_turns = 0;
            return true;
        }
        self.full_turns = self.full_turns.wrapping_add(1);
        self.full_turns.is_multiple_of(FULL_TURNS_MAX)
    }

    pub(crate) fn receive(&mut self, now: Instant) -> usize {
        let Engine {
            stack, device, env, ..
        } = self;
        let frames = device.rx(RX_BUDGET, &mut Burst { stack, env, now });
        if frames > 0 {
            let mut fx = Fx::receiving(env);
            stack.end_burst(now, &mut fx);
            self.env.drain_queue(&mut *self.device);
            self.run_deferred(now);
        }
        frames
    }

    fn receive_inbox(&mut self, now: Instant) -> bool {
        match &self.env.local.interconnect {
            Some(interconnect) if interconnect.has_frames() => self.take_inbox(now),
            _ => false,
        }
    }

    #[inline(never)]
    fn take_inbox(&mut self, now: Instant) -> bool {
        if !self.env.local.has_work() {
            return false;
        }
        let mut frame = core::mem::take(&mut self.inbox_frame);
        frame.resize(MpscInbox::FRAME_MAX, 0);
        let mut frames = 0;
        while frames < INBOX_BUDGET {
            let Some(interconnect) = &mut self.env.local.interconnect else {
                break;
            };
            let Some(len) = interconnect.reader().take(now.0, &mut frame) else {
                break;
            };
            frames += 1;
            self.on_message(now, &frame[..len]);
            self.release_inbox(false);
        }
        self.release_inbox(true);
        self.inbox_frame = frame;
        self.env.counters.local_received += frames as u64;
        frames > 0
    }

    fn on_message(&mut self, now: Instant, bytes: &[u8]) {
        match InboxMessage::parse(bytes) {
            Ok(InboxMessage::Frame { link, frame }) => {
                self.note_handed_over(frame);
                self.on_local(now, link, frame);
            }
            Ok(InboxMessage::Passing(head, passed)) => self.on_passed(now, &head, passed),
            Ok(InboxMessage::NetworkChanged) => self.on_network_changed(now),
            Ok(InboxMessage::Inquiry) => self.on_inquiry(now),
            Ok(InboxMessage::ChoosersChanged { port }) => self.on_choosers_changed(port),
            Ok(InboxMessage::Chosen { link, rank, frame }) => {
                self.on_chosen(now, rank, (link, frame));
            }
            // Both are for the keeper alone.
            Ok(InboxMessage::Stray { .. } | InboxMessage::Group(_)) | Err(_) => {
                self.env.counters.inbox_refused += 1;
            }
        }
    }

    #[inline(never)]
    pub(crate) fn on_local(&mut self, now: Instant, link: u16, frame: &[u8]) {
        let meta = RxMeta {
            link,
            ..RxMeta::LOCAL
        };
        let mut fx = Fx::new(&mut self.env, &mut *self.device);
        self.stack.on_frame(now, frame, meta, &mut fx);
        self.run_deferred(now);
    }

    fn run_timers(&mut self, now: Instant) -> bool {
        self.stack.has_due(now) && self.fire_timers(now)
    }

    /// Frames that wait at the device arrived before timers that expired since: they may be what
    /// those timers wait for.
    #[inline(never)]
    fn fire_timers(&mut self, now: Instant) -> bool {
        let waiting_since = self.device.waiting_since_ns();
        let due_by = waiting_since.map_or(now, |ns| now.min(Instant(ns)));
        if !self.stack.has_due(due_by) {
            return false;
        }
        let mut fx = Fx::new(&mut self.env, &mut *self.device);
        self.stack.on_timers_due_by(due_by, now, &mut fx);
        self.run_deferred(now);
        true
    }

    /// Emits the connections' segments, delivers frames to ourselves, and rings doorbells.
    /// Neighbours are checked last, so that a sleep after this turn knows which of them are
    /// unresolved.
    #[inline(always)]
    pub(crate) fn finish(&mut self, now: Instant) {
        self.emit(now);
        if self.env.neighbours.is_some() && self.resolve_neighbours(now) {
            self.emit_resolved(now);
        }
        self.device.flush();
        self.settle_clients(now);
    }

    /// Sends frames that waited for a neighbour, which is rare.
    #[cold]
    fn emit_resolved(&mut self, now: Instant) {
        self.emit(now);
    }

    #[inline(always)]
    fn emit(&mut self, now: Instant) {
        for _ in 0..LOCAL_ROUNDS {
            // Before the SYN-ACKs and the last ACKs leave.
            if self.stack.tcp_has_changes() {
                self.record_changes(now);
            }
            if self.stack.has_dirty() {
                let mut fx = Fx::new(&mut self.env, &mut *self.device);
                self.stack.flush(now, &mut fx);
                self.run_deferred(now);
            }
            if self.env.local.is_empty() {
                break;
            }
            while let Some((link, frame)) = self.env.local.pop() {
                self.on_local(now, link, &frame);
                self.env.counters.local_received += 1;
                self.env.local.recycle(frame);
            }
        }
    }

    /// Carries out effects that were deferred while the stack ran.
    #[inline]
    pub(crate) fn run_deferred(&mut self, now: Instant) {
        if !self.env.deferred.is_empty() {
            self.run_all_deferred(now);
        }
    }

    #[cold]
    fn run_all_deferred(&mut self, now: Instant) {
        let mut later = 0;
        while self.env.deferred.len() > later {
            // Data that an ACK has released leaves with the next flush.
            if self.stack.has_dirty() && matches!(self.env.deferred[later], Deferred::TellSent(_)) {
                later += 1;
                continue;
            }
            match self.env.deferred.swap_remove(later) {
                Deferred::TellSent(conn) => self.tell_sent(now, conn),
                Deferred::Describe(conn) => self.describe(conn),
                Deferred::Unbind(owner) => self.unbind(owner, true),
                Deferred::Free(owner) => self.free(owner, true),
                Deferred::Abort(conn) => {
                    let mut fx = Fx::new(&mut self.env, &mut *self.device);
                    self.stack
                        .tcp_close(now, conn, CloseMode::Abort, true, &mut fx);
                }
            }
        }
    }

    /// Completes a connection's entry in the directory.
    pub(crate) fn describe(&mut self, conn: ConnId) {
        if let Some(owner) = self.env.conn_owner(conn)
            && let Some(place) = self.env.flows.find(conn)
            && let Some(origin) = self.stack.tcp_origin(conn)
        {
            self.env.flows.describe(owner, place, &origin);
        }
    }

    pub(crate) fn tell_sent(&mut self, now: Instant, conn: ConnId) {
        let (Some(info), Some(owner)) = (self.stack.tcp_info(now, conn), self.env.conn_owner(conn))
        else {
            return;
        };
        if let Some(client) = self.env.client(owner.client)
            && let Some((socket, end)) = client.find(owner.sock)
        {
            socket.is_tell_due = false;
            socket.send.tell_sent(end, owner.sock, info.notsent_bytes);
        }
    }

    /// Returns when a turn is needed without an event: the stack's next deadline, or sooner while
    /// the keeper has to be asked again.
    pub fn next_deadline(&self) -> Option<Instant> {
        let soon = |ns: u64| Some(Instant(self.env.now.0 + ns));
        let polled = if self.device.tx_pending() {
            soon(TX_RETRY_NS)
        } else if self.unresolved.is_empty() {
            None
        } else {
            soon(NEIGHBOUR_POLL_NS)
        };
        let clients = self.env.clients.iter().flatten();
        let released = clients.filter_map(Client::release_at).min();
        let left = Some(self.env.left_at).filter(|at| *at != Instant::FAR_FUTURE);
        let owned = self.owners_deadline();
        [
            self.stack.next_deadline(),
            polled,
            released,
            left,
            owned,
            self.filter_due,
            self.env.waiting.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Returns whether a turn would have work now: frames, commands, inbox messages, left-over
    /// work.
    pub fn has_work(&self) -> bool {
        self.device.has_rx()
            || self.env.waiting.has_work()
            || self.env.local.has_work()
            || self.stack.has_dirty()
            || self.has_owner_work(self.env.now)
            || self.pending_inquiry.is_some()
            || self
                .env
                .clients
                .iter()
                .flatten()
                .any(|client| !client.is_leaving && client.end.has_commands())
    }

    /// Returns whether a program has events that it has not taken, because another thread ran the
    /// turn.
    pub fn has_unread_events(&self) -> bool {
        let clients = self.env.clients.iter().flatten();
        clients
            .into_iter()
            .any(|client| client.end.has_unread_events())
    }

    /// As `set_sleeping(true)`. Returns whether inbox messages or frames arrived meanwhile.
    pub fn announce_sleep(&mut self) -> bool {
        let was_awake = !self.is_sleeping;
        self.set_sleeping(true);
        self.env.local.has_work() || (was_awake && self.device.has_rx())
    }

    /// Announces to clients and other engines that their frames and commands need a doorbell.
    #[inline]
    pub fn set_sleeping(&mut self, sleeping: bool) {
        if sleeping != self.is_sleeping {
            self.change_sleep(sleeping);
        }
    }

    #[inline(never)]
    fn change_sleep(&mut self, sleeping: bool) {
        self.is_sleeping = sleeping;
        self.env.local.set_sleeping(sleeping);
        for client in self.env.clients.iter().flatten() {
            client.end.set_sleeping(sleeping);
        }
    }

    /// Says on which processor this engine is. Returns whether a program was last seen on the same
    /// one.
    pub fn meets_programs(&self, cpu: usize) -> bool {
        let mut meets = false;
        for client in self.env.clients.iter().flatten() {
            meets |= client.end.meet(cpu);
        }
        meets
    }

    pub fn poll_fd(&self) -> RawFd {
        self.device.poll_fd()
    }

    /// Every descriptor of the device.
    pub fn device_fds(&self) -> Vec<RawFd> {
        self.device.descriptors()
    }

    /// Returns whether a client is still attached (it may be leaving).
    pub fn has_client(&self, id: ClientId) -> bool {
        matches!(self.env.clients.get(id.0 as usize), Some(Some(_)))
    }

    /// Returns whether the client of this channel is attached and has not said goodbye. Ids are
    /// reused; the channel's region identifies the client.
    pub fn is_staying(&self, id: ClientId, channel: &Region) -> bool {
        let client = self.env.clients.get(id.0 as usize);
        client
            .and_then(Option::as_ref)
            .is_some_and(|client| !client.is_leaving && client.end.region().is_same(channel))
    }
}
