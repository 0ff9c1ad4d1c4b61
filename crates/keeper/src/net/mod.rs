//! The keeper's own stack on slot 0: it answers ARP and ICMP for everybody, resets segments to closed
//! ports, carries out the connections of programs that have ended, and resets those of programs that
//! died.

mod effects;
mod errors;
mod intents;
mod orphans;
mod strays;

use std::net::IpAddr;
use std::os::fd::RawFd;

use slipstack_device::{Device, Flow, RxMeta, Steering};
use slipstack_mem::{InboxReader, MpscInbox};
use slipstack_stack::{Instant, Role, Stack, StackConfig, TcpConfig};

use crate::neighbours::Neighbours;
use crate::orphans::Orphans;
use crate::regions::Inboxes;
use crate::world::Network;
use effects::World;
use intents::Intents;
use orphans::Care;
use strays::Strays;

/// Frames per turn.
const BUDGET: usize = 256;
/// When the probes of a dead program's flow are sent, in ns after its death: one may be lost.
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

/// The stack of slot 0 and its device.
pub struct Net {
    stack: Stack,
    world: World,
    inbox: Option<InboxReader>,
    resets: Vec<Reset>,
    frames: Vec<(Vec<u8>, RxMeta)>,
    intents: Intents,
    strays: Strays,
    /// SYNs for listeners that are not there yet.
    syns_held: u64,
}

impl Net {
    pub fn new(
        network: &Network,
        device: Box<dyn Device>,
        steering: Option<Steering>,
        inboxes: Inboxes,
        neighbours: Neighbours,
        records: Orphans,
        seed: [u8; 32],
        now: u64,
    ) -> Net {
        let config = StackConfig {
            mac: network.mac,
            mtu: network.mtu,
            addrs: network.addresses.clone(),
            gateways: network.gateways.clone(),
            tso_max: network.tso_max,
            role: Role::Keeper,
            tcp: TcpConfig {
                resets_per_second: 100_000,
                ..TcpConfig::default()
            },
            seed,
            ..StackConfig::default()
        };
        Net {
            stack: Stack::new(config, Instant(now)),
            inbox: inboxes.inbox(0).map(InboxReader::new),
            world: World::new(device, steering, inboxes, neighbours, Care::new(records)),
            resets: Vec::new(),
            frames: Vec::new(),
            intents: Intents::default(),
            strays: Strays::default(),
            syns_held: 0,
        }
    }

    pub fn poll_fd(&self) -> RawFd {
        self.world.device.poll_fd()
    }

    /// One pass: frames in, timers, frames out. True: there may be more to do at once.
    pub fn turn(&mut self, now: u64) -> bool {
        let mut progress = self.receive(now);
        self.renew_records();
        self.probe(now);
        self.stack.on_timers(Instant(now), &mut self.world);
        self.stack.flush(Instant(now), &mut self.world);
        progress |= self.loop_back(now);
        self.world.device.flush();
        self.world.care.drop_released();
        progress
    }

    fn receive(&mut self, now: u64) -> bool {
        let Net {
            world,
            frames,
            inbox,
            ..
        } = self;
        world.device.rx(BUDGET, &mut |frame: &[u8], meta: RxMeta| {
            frames.push((frame.to_vec(), meta))
        });
        let mut cell = [0; MpscInbox::FRAME_MAX];
        while frames.len() < 2 * BUDGET {
            let Some(len) = inbox.as_mut().and_then(|inbox| inbox.pop(now, &mut cell)) else {
                break;
            };
            frames.push((cell[..len].to_vec(), RxMeta::LOCAL));
        }
        let received = std::mem::take(&mut self.frames);
        for (frame, meta) in &received {
            if self.world.pass_error_on(frame) {
                continue;
            }
            if self
                .world
                .pass_stray_on(frame, *meta, &mut self.strays, now)
            {
                continue;
            }
            if self.intents.is_for_intended(frame, now) {
                self.syns_held += 1;
                continue;
            }
            self.take(frame, *meta, now);
        }
        self.frames = received;
        let progress = !self.frames.is_empty();
        self.frames.clear();
        progress
    }

    fn take(&mut self, frame: &[u8], meta: RxMeta, now: u64) {
        self.stack
            .on_frame(Instant(now), frame, meta, &mut self.world);
        if self.orphans() > 0
            && let Some(flow) = effects::find_flow(frame)
        {
            self.world.care.on_heard(&flow);
        }
    }

    /// Frames from this stack to itself.
    fn loop_back(&mut self, now: u64) -> bool {
        let frames = self.world.take_local();
        for frame in &frames {
            self.take(frame, RxMeta::LOCAL, now);
        }
        if !frames.is_empty() {
            self.renew_records();
            self.stack.flush(Instant(now), &mut self.world);
        }
        self.world.has_local()
    }

    /// Sends the probes that are due: the peer answers with its exact numbers, and the closed port
    /// answers that with a reset (RFC 9293 3.10.7.4 and 3.10.7.1).
    fn probe(&mut self, now: u64) {
        let due = |reset: &Reset| {
            PROBE_AT_NS
                .get(reset.probes_sent)
                .is_some_and(|after| now >= reset.began.saturating_add(*after))
        };
        let mut budget = PROBE_BURST;
        for reset in &mut self.resets {
            if budget > 0 && due(reset) {
                budget -= 1;
                reset.probes_sent += 1;
                let (local, remote) = (reset.flow.local, reset.flow.remote);
                self.stack
                    .tcp_probe(Instant(now), local, remote, &mut self.world);
            }
        }
        let last = PROBE_AT_NS[PROBE_AT_NS.len() - 1];
        self.resets
            .retain(|reset| reset.probes_sent < PROBE_AT_NS.len() || now < reset.began + 2 * last);
    }

    /// Begins to reset the flows of a program that has died.
    pub fn reset(&mut self, flows: impl IntoIterator<Item = Flow>, now: u64) {
        self.resets.extend(flows.into_iter().map(|flow| Reset {
            flow,
            began: now,
            probes_sent: 0,
        }));
    }

    /// A frame from the queue of an engine that is gone, if its flow is carried out or reset here.
    pub fn feed(&mut self, frame: &[u8], meta: RxMeta, now: u64) {
        if effects::find_flow(frame).is_some_and(|flow| self.has_flow(&flow)) {
            self.take(frame, meta, now);
        }
    }

    /// The slots that engines lease now: who may have what another one got by mistake.
    pub fn set_engines(&mut self, slots: Vec<u16>) {
        self.strays.set_engines(slots);
    }

    /// Flows whose segments went to the wrong engine a moment ago.
    pub fn stray_flows(&mut self, now: u64) -> Vec<Flow> {
        self.strays.flows(now)
    }

    pub fn has_strays(&self) -> bool {
        !self.strays.is_empty()
    }

    /// Whether a flow is carried out or reset here.
    pub fn has_flow(&self, flow: &Flow) -> bool {
        self.world.care.has(flow) || self.resets.iter().any(|reset| reset.flow == *flow)
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
        match (probe, stack) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Arms the inbox's doorbell; false: a frame has come meanwhile.
    pub fn prepare_sleep(&self) -> bool {
        !self.world.device.has_rx() && self.inbox.as_ref().is_none_or(InboxReader::prepare_sleep)
    }

    pub fn finish_sleep(&self) {
        if let Some(inbox) = &self.inbox {
            inbox.finish_sleep();
        }
    }

    /// Asks the wire for a neighbour that an engine waits for.
    pub fn resolve(&mut self, address: IpAddr) -> Option<[u8; 6]> {
        self.world.neighbours.find(address)
    }

    /// Counters that are not zero.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let stack = self
            .stack
            .counters()
            .iter()
            .map(|(counter, value)| (counter.name(), value));
        let device = self.world.device.counters();
        let own = [("syns-held-for-listeners", self.syns_held)];
        stack
            .chain(device.rows())
            .chain(own)
            .filter(|(_, value)| *value > 0)
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}
