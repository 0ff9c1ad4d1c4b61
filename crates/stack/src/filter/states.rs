//! Dynamic rules: flows that rules with `keep-state` or `limit` have let in.
//!
//! Times are FreeBSD's: a TCP connection is known for long once both sides have sent SYN, and
//! expires soon after both have sent FIN or one RST. FreeBSD probes the two hosts of an idle
//! connection; here the stack itself knows whether it still exists ([`States::sweep`]).

use alloc::collections::BTreeMap;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use slipstack_wire::protocol;
use slipstack_wire::tcp::TcpFlags;

use super::limits::{Alike, Board, Counts};
use super::packet::{NO_PORT, Packet};
use super::ranges::V4;
use crate::time::Instant;
use slipstack_terms::FilterKeep;

const SWEEP_NS: u64 = 1_000_000_000;
/// From so many flows on they are looked through less often.
const MANY: usize = 1024;
const SWEEP_MANY_NS: u64 = 4_000_000_000;

/// Time for which flows are known after their last packet, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateTimes {
    /// An open TCP connection.
    pub ack: Duration,
    /// Lifetime of a flow whose handshake is not complete.
    pub syn: Duration,
    pub fin: Duration,
    pub rst: Duration,
    pub udp: Duration,
    /// All others.
    pub short: Duration,
    /// Most flows of one engine; no more are let in.
    pub max: u32,
    /// An open connection that the stack has is known however long it is idle.
    pub keepalive: bool,
}

impl StateTimes {
    /// FreeBSD's.
    pub const DEFAULT: StateTimes = StateTimes {
        ack: Duration::from_secs(300),
        syn: Duration::from_secs(20),
        fin: Duration::from_secs(1),
        rst: Duration::from_secs(1),
        udp: Duration::from_secs(10),
        short: Duration::from_secs(5),
        max: 16_384,
        keepalive: true,
    };
}

/// The rule that lets a flow in, and how the flow is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeping {
    pub rule: u64,
    pub how: FilterKeep,
}

/// Address as packets have it, and port; [`NO_PORT`] if the protocol has none.
type Host = (u128, u32);

/// A flow in both directions: the lower end first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowOf {
    low: Host,
    high: Host,
    protocol: u8,
}

impl FlowOf {
    /// Returns the flow, and whether the packet goes from the lower end to the higher one.
    fn new(packet: &Packet) -> (FlowOf, bool) {
        let (src, dst) = ((packet.src, packet.ports.0), (packet.dst, packet.ports.1));
        let is_up = src <= dst;
        let (low, high) = if is_up { (src, dst) } else { (dst, src) };
        let flow = FlowOf {
            low,
            high,
            protocol: packet.protocol,
        };
        (flow, is_up)
    }
}

/// One known flow.
#[derive(Clone, Copy, Debug)]
struct State {
    rule: u64,
    /// The first packet went from the lower end to the higher one.
    is_up: bool,
    is_limited: bool,
    /// `None` also if another stack counts the flow.
    alike: Option<Alike>,
    /// TCP flags that each direction has sent, the first packet's first.
    flags: [TcpFlags; 2],
    expires: Instant,
    packets: u64,
    bytes: u64,
}

impl State {
    fn is_open(&self) -> bool {
        let [there, back] = self.flags;
        let is_over = |flags: TcpFlags| flags.is_fin() || flags.is_rst();
        there.is_syn() && back.is_syn() && !is_over(there) && !is_over(back)
    }

    fn note(&mut self, now: Instant, packet: &Packet, is_up: bool, times: &StateTimes) {
        self.packets += 1;
        self.bytes += u64::from(packet.len);
        let way = usize::from(is_up != self.is_up);
        self.flags[way] |= packet.flags;
        self.expires = now.plus_nanos(nanos(self.lifetime(packet.protocol, times)));
    }

    fn lifetime(&self, number: u8, times: &StateTimes) -> Duration {
        let [there, back] = self.flags;
        match number {
            protocol::UDP => times.udp,
            protocol::TCP if there.is_rst() || back.is_rst() => times.rst,
            protocol::TCP if there.is_fin() && back.is_fin() => times.fin,
            protocol::TCP if there.is_syn() && back.is_syn() => times.ack,
            protocol::TCP => times.syn,
            _ => times.short,
        }
    }
}

/// A known flow for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateRow {
    /// Id of the rule that has let it in.
    pub rule: u64,
    pub is_limited: bool,
    pub protocol: u8,
    /// Source of its first packet; port 0 if there is none.
    pub src: SocketAddr,
    pub dst: SocketAddr,
    pub packets: u64,
    pub bytes: u64,
    /// Time that is left of it.
    pub left: Duration,
}

/// A flow cannot be let in, because the limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Debug)]
pub struct States {
    flows: BTreeMap<FlowOf, State>,
    counts: Counts,
    pub times: StateTimes,
    sweep_at: Instant,
    /// No flow expires earlier.
    earliest: Instant,
}

impl Default for States {
    fn default() -> Self {
        States {
            flows: BTreeMap::new(),
            counts: Counts::default(),
            times: StateTimes::DEFAULT,
            sweep_at: Instant::ZERO,
            earliest: Instant::ZERO,
        }
    }
}

impl States {
    /// Counts the flows of rules with `limit` together with other stacks from now on.
    pub(crate) fn share(&mut self, board: Option<Board>) {
        self.counts.board = board;
    }

    /// Returns the id of the rule that has let a packet's flow in; the packet is counted there.
    pub fn find(&mut self, now: Instant, packet: &Packet) -> Option<u64> {
        let (flow, is_up) = FlowOf::new(packet);
        let state = self.flows.get_mut(&flow)?;
        // Whether an open connection is over is found out by the next sweep.
        if state.expires < now && !state.is_open() {
            self.remove(&flow);
            return None;
        }
        state.note(now, packet, is_up, &self.times);
        self.earliest = self.earliest.min(state.expires);
        Some(state.rule)
    }

    /// Makes a packet's flow known.
    pub fn add(&mut self, now: Instant, packet: &Packet, keeping: Keeping) -> Result<(), Full> {
        if self.flows.len() >= self.times.max as usize {
            self.expire(now);
        }
        if self.flows.len() >= self.times.max as usize {
            return Err(Full);
        }
        let mut alike = None;
        if let FilterKeep::Limit { by, max } = keeping.how {
            let fields = Alike::new(keeping.rule, by, packet);
            let is_counted = self.counts.enter(fields, max)
                || self.expire(now) && self.counts.enter(fields, max);
            if !is_counted {
                return Err(Full);
            }
            alike = Some(fields);
        }
        self.insert(now, packet, keeping, alike);
        Ok(())
    }

    /// Makes the flow of an open connection known that has come from another stack.
    pub fn adopt(&mut self, now: Instant, setup: &Packet, keeping: Keeping) {
        let alike = match keeping.how {
            FilterKeep::State => None,
            FilterKeep::Limit { by, .. } => Some(Alike::new(keeping.rule, by, setup)),
        };
        let alike = alike.filter(|alike| self.counts.enter(*alike, u32::MAX));
        self.insert(now, setup, keeping, alike);
        let (flow, is_up) = FlowOf::new(setup);
        if let Some(state) = self.flows.get_mut(&flow) {
            let answer = Packet {
                flags: TcpFlags::SYN | TcpFlags::ACK,
                len: 0,
                ..*setup
            };
            state.note(now, &answer, !is_up, &self.times);
            (state.packets, state.bytes) = (0, 0);
        }
    }

    /// Leaves the count of a flow to another stack, which takes it; packets of it that still come
    /// here are known for a while.
    pub fn hand_over(&mut self, packet: &Packet) {
        let state = self.flows.get_mut(&FlowOf::new(packet).0);
        if let Some(alike) = state.and_then(|state| state.alike.take()) {
            self.counts.leave(&alike);
        }
    }

    fn insert(&mut self, now: Instant, packet: &Packet, keeping: Keeping, alike: Option<Alike>) {
        let (flow, is_up) = FlowOf::new(packet);
        self.remove(&flow);
        let mut state = State {
            rule: keeping.rule,
            is_up,
            is_limited: keeping.how != FilterKeep::State,
            alike,
            flags: [TcpFlags::NONE; 2],
            expires: now,
            packets: 0,
            bytes: 0,
        };
        state.note(now, packet, is_up, &self.times);
        self.earliest = match self.flows.is_empty() {
            true => state.expires,
            false => self.earliest.min(state.expires),
        };
        self.flows.insert(flow, state);
    }

    fn remove(&mut self, flow: &FlowOf) {
        let gone = self.flows.remove(flow);
        if let Some(key) = gone.and_then(|state| state.alike) {
            self.counts.leave(&key);
        }
    }

    #[inline]
    pub fn is_sweep_due(&self, now: Instant) -> bool {
        now >= self.sweep_at && !self.flows.is_empty()
    }

    /// Returns when a sweep is due even if no packet comes.
    #[inline]
    pub fn next_sweep(&self) -> Option<Instant> {
        let at = self.earliest.max(self.sweep_at);
        self.counts.is_awaited().then_some(at)
    }

    /// Removes expired flows without looking for connections. Returns `false` if none can have
    /// expired.
    fn expire(&mut self, now: Instant) -> bool {
        let is_due = self.earliest < now;
        if is_due {
            self.sweep(now, |_, _| true);
        }
        is_due
    }

    /// Removes expired flows. `has` returns whether an open connection between two ends still
    /// exists.
    pub fn sweep(&mut self, now: Instant, mut has: impl FnMut(SocketAddr, SocketAddr) -> bool) {
        let interval = match self.flows.len() > MANY {
            true => SWEEP_MANY_NS,
            false => SWEEP_NS,
        };
        self.sweep_at = now.plus_nanos(interval);
        let mut earliest = now.plus_nanos(nanos(self.times.ack));
        let (times, counts) = (self.times, &mut self.counts);
        self.flows.retain(|flow, state| {
            if state.expires < now
                && times.keepalive
                && flow.protocol == protocol::TCP
                && state.is_open()
                && has(address(flow.low), address(flow.high))
            {
                state.expires = now.plus_nanos(nanos(times.ack));
            }
            let is_kept = state.expires >= now;
            if is_kept {
                earliest = earliest.min(state.expires);
            } else if let Some(alike) = &state.alike {
                counts.leave(alike);
            }
            is_kept
        });
        self.earliest = earliest;
    }

    /// Removes the flows of rules for which `is_there` returns false.
    pub fn retain(&mut self, mut is_there: impl FnMut(u64) -> bool) {
        let counts = &mut self.counts;
        self.flows.retain(|_, state| {
            let is_kept = is_there(state.rule);
            if !is_kept && let Some(alike) = &state.alike {
                counts.leave(alike);
            }
            is_kept
        });
    }

    pub fn rows(&self, now: Instant) -> impl Iterator<Item = StateRow> + '_ {
        self.flows.iter().map(move |(flow, state)| {
            let (src, dst) = match state.is_up {
                true => (flow.low, flow.high),
                false => (flow.high, flow.low),
            };
            StateRow {
                rule: state.rule,
                is_limited: state.is_limited,
                protocol: flow.protocol,
                src: address(src),
                dst: address(dst),
                packets: state.packets,
                bytes: state.bytes,
                left: state.expires.saturating_since(now),
            }
        })
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn address((bits, port): Host) -> SocketAddr {
    let ip: IpAddr = match bits >> 32 == V4 >> 32 {
        true => Ipv4Addr::from_bits(bits as u32).into(),
        false => Ipv6Addr::from_bits(bits).into(),
    };
    let port = if port == NO_PORT { 0 } else { port };
    SocketAddr::new(ip, u16::try_from(port).unwrap_or(0))
}
