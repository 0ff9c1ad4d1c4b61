//! The keeper's own stack on slot 0: it answers ARP and ICMP for all engines, resets segments to
//! closed ports, completes the connections of programs that have ended, and resets those of
//! programs that died.

mod address_probes;
mod announced;
mod backlogs;
mod effects;
mod errors;
mod flows;
mod fragments;
mod frame_input;
mod intents;
mod orphan_table;
mod orphans;
mod parked;
mod rebuilt;
mod routers;
mod servers;
mod stray_search;
mod strays;
mod unread;

use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use slipstack_channel::{INBOX_CELLS, InboxMessage, Passed, PassingHead, SlotGroup};
use slipstack_device::{Device, Flow, RxMeta, Steering, Transport};
use slipstack_engine::HeldFilter;
use slipstack_mem::{InboxReader, MpscInbox};
use slipstack_stack::{GroupFilter, Instant, LinkedGroup, Stack, StackConfig, TcpConfig};
use tracing::warn;

use crate::conflict::Wanted;
use crate::limits::LimitTable;
use crate::neighbours::Neighbours;
use crate::network::Network;
use crate::orphans::Orphans;
use crate::regions::Inboxes;
use address_probes::AddressProbes;
use announced::{Announced, tune};
use effects::NetEffects;
pub(crate) use flows::{datagram_port, is_request};
use frame_input::{FrameSource, local_by};
use orphan_table::OrphanTable;
use parked::Untaken;

/// Frames per turn.
const BUDGET: usize = 256;
/// Time at which the probes of a dead program's flow are sent, in ns after its death: one may be
/// lost.
const PROBE_AT_NS: [u64; 3] = [0, 200_000_000, 600_000_000];
/// Probes per turn.
const PROBE_BURST: usize = 512;

/// A flow of a dead program that is being reset.
#[derive(Clone, Copy, Debug)]
struct Reset {
    flow: Flow,
    began: u64,
    probes_sent: usize,
}

/// A message received in a turn.
enum Arrival {
    /// A frame of the device.
    Frame(Vec<u8>, RxMeta),
    /// A message of an engine.
    Message(Vec<u8>),
}

/// State that the keeper shares with engines and with its successor.
pub struct Shared {
    pub inboxes: Inboxes,
    pub neighbours: Neighbours,
    pub records: Orphans,
    /// See `StackConfig::sequence_key`.
    pub sequence_key: [u64; 2],
    pub limits: LimitTable,
}

/// The stack of slot 0 and its device.
pub struct Net {
    stack: Stack,
    effects: NetEffects,
    inbox: Option<InboxReader>,
    /// Buffer for inbox messages.
    inbox_message: Vec<u8>,
    resets: Vec<Reset>,
    arrivals: Vec<Arrival>,
    /// Messages in inboxes of a kind or version that is not known here.
    inbox_refused: u64,
    /// Connections that waited here and were given up.
    parked_reset: u64,
    announced: Announced,
    address_probes: AddressProbes,
    filter: HeldFilter,
}

impl Net {
    pub fn new(
        network: &Network,
        device: Box<dyn Device>,
        steering: Option<Steering>,
        shared: Shared,
        seed: [u8; 32],
        now: u64,
    ) -> Net {
        let Shared {
            inboxes,
            neighbours,
            records,
            sequence_key,
            limits,
        } = shared;
        let config = StackConfig {
            tcp: TcpConfig {
                resets_per_second: 100_000,
                ..TcpConfig::default()
            },
            seed,
            sequence_key: Some(sequence_key),
            ..network.stack_config()
        };
        let inbox = inboxes.inbox(0).map(InboxReader::new);
        let mut stack = Stack::new(config, Instant(now));
        stack.share_limits(Arc::new(limits));
        tune(&mut stack, &network.tunables);
        tune(&mut stack, &network.state.tunables);
        let mut device = device;
        device.set_vlans(&network.state.further_links());
        let mut effects = NetEffects::new(
            device,
            network,
            steering,
            inboxes,
            neighbours,
            OrphanTable::new(records),
        );
        stack.announce(Instant(now), &mut effects);
        effects.device.flush();
        Net {
            stack,
            inbox,
            inbox_message: vec![0; MpscInbox::FRAME_MAX],
            effects,
            resets: Vec::new(),
            arrivals: Vec::new(),
            inbox_refused: 0,
            parked_reset: 0,
            announced: Announced::default(),
            address_probes: AddressProbes::default(),
            filter: HeldFilter::default(),
        }
    }

    pub fn poll_fd(&self) -> RawFd {
        self.effects.device.poll_fd()
    }

    pub fn device_fds(&self) -> Vec<RawFd> {
        self.effects.device.descriptors()
    }

    /// One pass: frames in, timers, frames out. True: there may be more to do at once.
    pub fn turn(&mut self, now: u64) -> bool {
        let mut progress = self.receive(now);
        self.probe(now);
        self.serve_backlogs(now);
        self.retry(now);
        self.retry_datagrams(now);
        self.renew_records();
        self.tell_engines(now);
        self.stack.on_timers(Instant(now), &mut self.effects);
        self.stack.flush(Instant(now), &mut self.effects);
        progress |= self.loop_back(now);
        if let Some(notice) = self.effects.device.take_notice() {
            warn!("{}", notice.sentence);
            if notice.has_new_peer {
                self.stack.announce(Instant(now), &mut self.effects);
            }
        }
        self.effects.device.flush();
        self.effects.orphan_table.drop_released();
        progress
    }

    fn receive(&mut self, now: u64) -> bool {
        let Net {
            effects,
            arrivals,
            inbox,
            inbox_message,
            ..
        } = self;
        effects
            .device
            .rx(BUDGET, &mut |frame: &[u8], meta: RxMeta| {
                arrivals.push(Arrival::Frame(frame.to_vec(), meta))
            });
        while arrivals.len() < 2 * BUDGET
            && let Some(inbox) = inbox
            && let Some(len) = inbox.pop(now, inbox_message)
        {
            arrivals.push(Arrival::Message(inbox_message[..len].to_vec()));
        }
        let received = std::mem::take(&mut self.arrivals);
        for arrival in &received {
            match arrival {
                Arrival::Frame(frame, meta) => {
                    self.address_probes.note(frame, meta.link);
                    self.take(frame, *meta, FrameSource::here(now, None));
                }
                Arrival::Message(bytes) => {
                    self.take_message(bytes, now, |origin| FrameSource::here(now, origin));
                }
            }
        }
        self.arrivals = received;
        let progress = !self.arrivals.is_empty();
        self.arrivals.clear();
        progress
    }

    /// Handles an inbox message; `coming` is the source of a frame that an engine may not know.
    fn take_message(
        &mut self,
        bytes: &[u8],
        now: u64,
        coming: impl Fn(Option<u16>) -> FrameSource,
    ) {
        match InboxMessage::parse(bytes) {
            Ok(InboxMessage::Frame { link, frame }) => {
                self.take(frame, local_by(link), coming(None));
            }
            Ok(InboxMessage::Stray { slot, link, frame }) => {
                self.take(frame, local_by(link), coming(Some(slot)));
            }
            Ok(InboxMessage::Passing(head, passed)) => self.take_passing(&head, passed, now),
            Ok(InboxMessage::Group(group)) => self.take_group(group),
            // A message of our own, left unread by an engine that is gone.
            Ok(
                InboxMessage::NetworkChanged
                | InboxMessage::Inquiry
                | InboxMessage::ChoosersChanged { .. },
            ) => {}
            // The chosen engine is gone: the hash decides among the remaining ones.
            Ok(InboxMessage::Chosen { link, frame, .. }) => {
                self.take(frame, local_by(link), coming(None));
            }
            Err(_) => self.inbox_refused += 1,
        }
    }

    /// Takes one frame of the own slot, or an engine's.
    fn take(&mut self, frame: &[u8], meta: RxMeta, coming: FrameSource) {
        if let Some(fragments) = self.effects.pass_fragment_on(frame, meta, coming.now) {
            for (frame, meta) in fragments {
                self.look_at(&frame, meta, coming);
            }
        } else if !self.effects.pass_group_on(frame, meta)
            && !self.effects.pass_error_on(frame, meta.link)
            && !self.effects.pass_extended_on(frame, meta)
        {
            self.look_at(frame, meta, coming);
        }
    }

    fn look_at(&mut self, frame: &[u8], meta: RxMeta, coming: FrameSource) {
        if self.effects.backlogs.is_listening() {
            self.verify_backlog(frame, coming.now);
        }
        self.effects.coming = Some(coming);
        self.stack
            .on_frame(Instant(coming.now), frame, meta, &mut self.effects);
        self.effects.coming = None;
        self.note_heard(frame);
    }

    /// Records the multicast memberships of an engine, which are reported to routers here together
    /// with the others'.
    fn take_group(&mut self, announced: SlotGroup) {
        if self.effects.strays.has_engine(announced.slot) {
            let filter = GroupFilter {
                is_exclude: announced.is_exclude,
                sources: announced.sources,
            };
            let group = LinkedGroup {
                group: announced.group,
                link: announced.link,
            };
            self.stack.set_slot_group(announced.slot, group, filter);
        }
    }

    /// Removes the memberships of an engine that is gone.
    pub fn forget_groups(&mut self, slot: u16) {
        self.stack.forget_slot_groups(slot);
    }

    fn take_passing(&mut self, head: &PassingHead, passed: Passed<'_>, now: u64) {
        if !self.effects.on_passing(head, passed)
            && let Some(untaken) = Untaken::of(head, passed)
        {
            self.refuse(&untaken, now);
        }
    }

    /// Retries waiting segments and connections, and drops those whose listener is no longer
    /// expected.
    fn retry(&mut self, now: u64) {
        for held in self.effects.strays.take_due(now) {
            let coming = FrameSource {
                now,
                origin: None,
                is_astray: true,
                waits: held.waits,
            };
            self.look_at(&held.frame, held.meta, coming);
        }
        for port in self.effects.parked.ports_to_ask(now) {
            self.on_new_route(port, now);
            for untaken in self.effects.give_up_parked(port, now) {
                self.refuse(&untaken, now);
            }
        }
    }

    /// Retries datagrams that an engine had no room for, and drops those of closed sockets.
    fn retry_datagrams(&mut self, now: u64) {
        for port in self.effects.unread.due(now) {
            self.effects.send_unread(port, now);
        }
        for port in self.effects.unread.ports_to_ask(now) {
            if !self.effects.dgram_intents.has_port(port, now) {
                self.effects.unread.give_up(port);
            }
        }
    }

    /// The tables name other engines for ports of UDP, or engines to which these are leased have a
    /// socket now. Those may have passed datagrams on until then.
    pub fn on_new_datagram_routes(&mut self, ports: &[u16], now: u64) {
        if ports.is_empty() {
            return;
        }
        ports
            .iter()
            .for_each(|port| self.effects.send_unread(*port, now));
        self.receive(now);
        ports
            .iter()
            .for_each(|port| self.effects.send_unread(*port, now));
    }

    /// A program has left the port, or a connection of it has ended elsewhere.
    pub fn note_left(&mut self, port: u16, is_over: bool, now: u64) {
        let time_wait = self.stack.config().tcp.time_wait;
        self.effects.strays.note_left(port, time_wait, now);
        if !is_over {
            self.note_moving(port, now);
        }
    }

    /// The tables name other engines for the port.
    pub fn on_new_route(&mut self, port: u16, now: u64) {
        self.pass_backlog(port, now);
        self.effects.on_new_route(port);
    }

    /// Connections that wait for a listener.
    pub fn parked(&self) -> usize {
        self.effects.parked.len() + self.effects.backlogs.len()
    }

    /// Frames from this stack to itself.
    fn loop_back(&mut self, now: u64) -> bool {
        let frames = self.effects.take_local();
        for frame in &frames {
            self.stack
                .on_frame(Instant(now), frame, RxMeta::LOCAL, &mut self.effects);
            self.note_heard(frame);
        }
        if !frames.is_empty() {
            self.renew_records();
            self.stack.flush(Instant(now), &mut self.effects);
        }
        self.effects.has_local()
    }

    /// Sends the probes that are due: the peer answers with its exact numbers, and the closed port
    /// answers that with a reset (RFC 9293 3.10.7.4 and 3.10.7.1).
    fn probe(&mut self, now: u64) {
        let due = |reset: &Reset| {
            PROBE_AT_NS
                .get(reset.probes_sent)
                .is_some_and(|after| now >= reset.began.saturating_add(*after))
        };
        let doomed = &mut self.effects.doomed;
        // Resets of flows whose peers have started over are dropped.
        self.resets.retain(|reset| doomed.contains(&reset.flow));
        let mut budget = PROBE_BURST;
        for reset in &mut self.resets {
            if budget > 0 && due(reset) {
                budget -= 1;
                reset.probes_sent += 1;
                let (local, remote) = (reset.flow.local, reset.flow.remote);
                self.stack
                    .tcp_probe(Instant(now), local, remote, &mut self.effects);
            }
        }
        let last = PROBE_AT_NS[PROBE_AT_NS.len() - 1];
        let doomed = &mut self.effects.doomed;
        self.resets.retain(|reset| {
            let is_due = reset.probes_sent < PROBE_AT_NS.len() || now < reset.began + 2 * last;
            if !is_due {
                doomed.remove(&reset.flow);
            }
            is_due
        });
    }

    /// Begins to reset the flows of a program that has died.
    pub fn reset(&mut self, flows: impl IntoIterator<Item = Flow>, now: u64) {
        for flow in flows {
            // The rest of an earlier connection would answer for this one.
            self.stack.tcp_forget_time_wait(flow.local, flow.remote);
            self.effects.doomed.insert(flow);
            self.resets.push(Reset {
                flow,
                began: now,
                probes_sent: 0,
            });
        }
    }

    /// Handles a frame from the queue of an engine that is gone: its flow is completed or reset
    /// here, or belongs to another engine by now, which may have the same slot.
    pub fn feed(&mut self, frame: &[u8], meta: RxMeta, now: u64) {
        if flows::find_flow(frame).is_some_and(|flow| flow.proto == Transport::Tcp) {
            self.take(frame, meta, FrameSource::to_the_gone(now));
        }
    }

    /// Handles a frame that waits for an engine which does not run.
    pub fn feed_waiting(&mut self, frame: &[u8], meta: RxMeta, now: u64) {
        self.take(frame, meta, FrameSource::to_the_gone(now));
    }

    /// Handles the messages left in the inbox of an engine that is gone.
    pub fn feed_inbox(&mut self, slot: u16, now: u64) {
        let Some(mut inbox) = self.effects.inboxes.inbox(slot).map(InboxReader::new) else {
            return;
        };
        let mut frame = vec![0; MpscInbox::FRAME_MAX];
        for _ in 0..INBOX_CELLS {
            let Some(len) = inbox.pop(now, &mut frame) else {
                break;
            };
            self.take_message(&frame[..len], now, |_| FrameSource::to_the_gone(now));
        }
    }

    /// Sets the slots that engines lease now, the candidates for strays.
    pub fn set_engines(&mut self, slots: Vec<u16>) {
        self.effects.strays.set_engines(slots);
    }

    /// Returns flows whose segments went to the wrong engine recently.
    pub fn stray_flows(&mut self, now: u64) -> Vec<Flow> {
        self.effects.strays.flows(now)
    }

    pub fn has_strays(&self) -> bool {
        !self.effects.strays.is_empty()
    }

    /// Returns whether a flow is completed here.
    pub fn carries(&self, flow: &Flow) -> bool {
        self.effects.orphan_table.has(flow)
    }

    /// Flows that are completed here.
    pub fn carried(&self) -> impl Iterator<Item = Flow> + '_ {
        self.effects.orphan_table.by_flow.keys().copied()
    }

    /// Returns whether a flow is completed or reset here.
    pub fn has_flow(&self, flow: &Flow) -> bool {
        self.carries(flow) || self.effects.doomed.contains(flow)
    }

    pub fn has_resets(&self) -> bool {
        !self.resets.is_empty()
    }

    pub fn next_deadline(&self) -> Option<u64> {
        let probe = self
            .resets
            .iter()
            .map(|reset| {
                reset.began
                    + PROBE_AT_NS
                        .get(reset.probes_sent)
                        .copied()
                        .unwrap_or(1_200_000_000)
            })
            .min();
        let stack = self.stack.next_deadline().map(|at| at.0);
        let (held, parked) = (
            self.effects.strays.next_due(),
            self.effects.parked.next_deadline(),
        );
        let unread = self.effects.unread.next_deadline();
        let backlogs = self.effects.backlogs.next_deadline();
        [probe, stack, held, parked, unread, backlogs, self.tell_at()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Arms the inbox's doorbell. Returns false if a frame has arrived meanwhile, or a frame to
    /// this stack itself waits.
    pub fn prepare_sleep(&self) -> bool {
        !self.effects.has_local()
            && !self.effects.device.has_rx()
            && self.inbox.as_ref().is_none_or(InboxReader::prepare_sleep)
    }

    pub fn finish_sleep(&self) {
        if let Some(inbox) = &self.inbox {
            inbox.finish_sleep();
        }
    }

    /// Looks for other stations that have these addresses, until [`Net::end_search`].
    pub(crate) fn begin_search(&mut self, wanted: &[Wanted]) {
        for it in wanted {
            self.address_probes.add(*it);
        }
    }

    pub(crate) fn end_search(&mut self, wanted: &[Wanted]) {
        for it in wanted {
            self.address_probes.remove(it);
        }
    }

    pub(crate) fn send_probes(&mut self, wanted: &[Wanted]) {
        for it in wanted {
            it.send_probe(&mut *self.effects.device);
        }
        self.effects.device.flush();
    }

    /// Returns the station that claims an address that is probed for.
    pub(crate) fn owner_of(&self, wanted: &Wanted) -> Option<[u8; 6]> {
        self.address_probes.owner(wanted)
    }

    /// Asks the wire for a neighbour that an engine waits for.
    pub fn resolve(&mut self, address: IpAddr) -> Option<[u8; 6]> {
        self.effects.neighbours.find(address)
    }

    /// Counters that are not zero.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let stack = self
            .stack
            .counters()
            .iter()
            .map(|(counter, value)| (counter.name(), value));
        let device = self.effects.device.counters();
        let strays = &self.effects.strays.counts;
        let own = [
            ("strays-passed-on", strays.passed),
            ("strays-held", strays.held),
            ("strays-given-up", strays.given_up),
            ("strays-lost", strays.lost),
            ("fragments-lost", self.effects.fragment_routes.lost),
            ("group-copies-lost", self.effects.lost_copies),
            ("parked-reset", self.parked_reset),
            ("unattended-opened", self.effects.backlogs.made),
            ("unattended-reset", self.effects.backlogs.reset),
            ("inbox-refused", self.inbox_refused),
            ("datagrams-lost-before-a-wait", self.effects.unread.lost),
        ];
        stack
            .chain(device.rows())
            .chain(own)
            .filter(|(_, value)| *value > 0)
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

#[cfg(test)]
mod tests;
