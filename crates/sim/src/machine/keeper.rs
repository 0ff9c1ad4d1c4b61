//! The keeper's side: strays are passed on, held or refused, and flows of dead engines are reset
//! knowing only their keys.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use slipstack_stack::{Ends, Instant, IpMeta, RxMeta, stray_frame};

use super::flow::{FLAGS_AT, Flow, KEEPER, STRAY_BYTES_MAX};
use super::inbox::Message;
use super::search::{Search, WaitingSegment};
use super::steering::Steering;

const SYN: u8 = 0x02;
const SYN_ACK_RST_FIN: u8 = 0x17;
/// Time at which the probes of a dead program's flow are sent, in ns after its death: one may be
/// lost.
const PROBE_AT_NS: [u64; 3] = [0, 200_000_000, 600_000_000];
/// Time for which a flow is searched for in the directories of the engines.
const ASTRAY_NS: u64 = 1_000_000_000;
/// Time for which the flows of the dead are known.
const DOOMED_NS: u64 = 1_200_000_000;

/// Source of the frame that the stack is processing.
#[derive(Clone, Copy, Debug)]
pub struct FrameSource {
    pub now: Instant,
    /// The engine that does not know it, and lives.
    pub origin: Option<u16>,
    /// The frame was steered to an engine, and may be another's.
    pub is_astray: bool,
    pub waits: u8,
}

impl FrameSource {
    pub fn from_the_wire(now: Instant) -> Self {
        Self {
            now,
            origin: None,
            is_astray: false,
            waits: 0,
        }
    }
}

/// A flow of a dead program that is being reset.
#[derive(Clone, Copy, Debug)]
struct Reset {
    flow: Flow,
    began: Instant,
    probes_sent: usize,
}

impl Reset {
    fn due(&self) -> Instant {
        let after = PROBE_AT_NS.get(self.probes_sent).unwrap_or(&DOOMED_NS);
        self.began.plus_nanos(*after)
    }
}

#[derive(Debug)]
pub struct Keeper {
    pub steering: Steering,
    /// The machine's link-layer address.
    mac: [u8; 6],
    pub search: Search,
    /// Flows of dead programs that are being reset here.
    pub flows_of_dead: BTreeSet<Flow>,
    resets: Vec<Reset>,
    /// Flows whose segments went to the wrong engine, and the time of the first.
    astray: BTreeMap<Flow, Instant>,
    pub coming: Option<FrameSource>,
    /// Whether probes are sent at all: a fault that a test can set.
    pub probes: bool,
}

enum Verdict {
    Pass(u16),
    Hold,
    /// No engine has it: a reset.
    Answer,
}

impl Keeper {
    pub fn new(steering: Steering, mac: [u8; 6]) -> Self {
        Self {
            steering,
            mac,
            search: Search::default(),
            flows_of_dead: BTreeSet::new(),
            resets: Vec::new(),
            astray: BTreeMap::new(),
            coming: None,
            probes: true,
        }
    }

    /// Handles a segment without a connection here. `None`: it is to be answered with a reset.
    pub fn stray(&mut self, ip: &IpMeta, segment: &[u8]) -> Option<Option<(u16, Message)>> {
        let coming = self.coming?;
        let flow = Flow::of_segment(ip, segment)?;
        let verdict = self.judge(&flow, segment, coming);
        let frame = stray_frame(ip, segment, Ends::new([0; 6], self.mac), STRAY_BYTES_MAX)?;
        match verdict {
            Verdict::Answer => None,
            Verdict::Pass(slot) => {
                let origin = None;
                let meta = RxMeta::LOCAL;
                let message = Message::Frame {
                    frame,
                    meta,
                    origin,
                };
                Some(Some((slot, message)))
            }
            Verdict::Hold => {
                self.search
                    .hold(frame, coming.origin, coming.waits, coming.now);
                Some(None)
            }
        }
    }

    fn judge(&mut self, flow: &Flow, segment: &[u8], coming: FrameSource) -> Verdict {
        let FrameSource { now, origin, .. } = coming;
        let flags = segment.get(FLAGS_AT).copied().unwrap_or(0);
        let is_syn = flags & SYN_ACK_RST_FIN == SYN;
        let is_moving = self.search.is_moving(flow.local.port(), now);
        let route = self.steering.find_route(flow);
        if is_syn {
            // A peer that starts over has no use for the reset of its former connection.
            self.flows_of_dead.remove(flow);
            if route != KEEPER && Some(route) != origin {
                return Verdict::Pass(route);
            }
            return match is_moving {
                true => Verdict::Hold,
                false => Verdict::Answer,
            };
        }
        let is_ours = !coming.is_astray && route == KEEPER && !is_moving;
        if self.flows_of_dead.contains(flow) || is_ours {
            return Verdict::Answer;
        }
        self.astray.entry(*flow).or_insert(now);
        let first = self.steering.find_slot(flow);
        match self.search.next_slot(segment, (first, origin), now) {
            Some(slot) => Verdict::Pass(slot),
            None if is_moving => Verdict::Hold,
            None => Verdict::Answer,
        }
    }

    /// Begins to reset flows of which nothing but their keys is known.
    pub fn reset(&mut self, flows: impl IntoIterator<Item = Flow>, now: Instant) {
        for flow in flows {
            self.flows_of_dead.insert(flow);
            self.resets.push(Reset {
                flow,
                began: now,
                probes_sent: 0,
            });
        }
    }

    /// Returns the flows whose peers are to be probed now, and forgets expired ones.
    pub fn due_probes(&mut self, now: Instant) -> Vec<(SocketAddr, SocketAddr)> {
        let flows_of_dead = &mut self.flows_of_dead;
        // Except those whose peers have started over.
        self.resets
            .retain(|reset| flows_of_dead.contains(&reset.flow));
        let mut due = Vec::new();
        for reset in self.resets.iter_mut().filter(|reset| reset.due() <= now) {
            if reset.probes_sent < PROBE_AT_NS.len() && self.probes {
                due.push((reset.flow.local, reset.flow.remote));
            }
            reset.probes_sent += 1;
        }
        self.resets.retain(|reset| {
            let is_over = reset.probes_sent > PROBE_AT_NS.len();
            if is_over {
                flows_of_dead.remove(&reset.flow);
            }
            !is_over
        });
        due
    }

    /// An engine may have taken a stray flow in: from now on its frames go there at once.
    pub fn follow_strays(&mut self, now: Instant, find_owner: impl Fn(&Flow) -> Option<u16>) {
        self.astray
            .retain(|_, began| now.nanos_since(*began) < ASTRAY_NS);
        for flow in self.astray.keys() {
            if let Some(slot) = find_owner(flow)
                && self.steering.find_slot(flow) != slot
            {
                self.steering.except(*flow, slot);
            }
        }
    }

    pub fn take_held(&mut self, now: Instant) -> Vec<WaitingSegment> {
        self.search.take_due(now)
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let probe = self.resets.iter().map(Reset::due).min();
        probe.into_iter().chain(self.search.next_due()).min()
    }
}
