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

use super::packet::{NO_PORT, Packet};
use super::ranges::V4;
use crate::time::Instant;
use slipstack_terms::{FilterKeep, LimitBy};

const SWEEP_NS: u64 = 1_000_000_000;
/// From so many flows on they are looked through less often.
const MANY: usize = 1024;
const SWEEP_MANY_NS: u64 = 4_000_000_000;

/// How long flows are known after their last packet, and how many.
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
    /// And whether the packet goes from the lower end to the higher one.
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

/// The fields by which flows of one rule with `limit` are counted together; zeros for those that do
/// not matter.
type Alike = (u64, Host, Host);

/// One known flow.
#[derive(Clone, Copy, Debug)]
struct State {
    rule: u64,
    /// The first packet went from the lower end to the higher one.
    is_up: bool,
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
        let lifetime = self.lifetime(packet.protocol, times);
        let lifetime = u64::try_from(lifetime.as_nanos()).unwrap_or(u64::MAX);
        self.expires = now.plus_nanos(lifetime);
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
    alike: BTreeMap<Alike, u32>,
    pub times: StateTimes,
    sweep_at: Instant,
}

impl Default for States {
    fn default() -> Self {
        States {
            flows: BTreeMap::new(),
            alike: BTreeMap::new(),
            times: StateTimes::DEFAULT,
            sweep_at: Instant::ZERO,
        }
    }
}

impl States {
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
        Some(state.rule)
    }

    /// Makes a packet's flow known.
    pub fn add(
        &mut self,
        now: Instant,
        packet: &Packet,
        (rule, keeping): (u64, FilterKeep),
    ) -> Result<(), Full> {
        if self.flows.len() >= self.times.max as usize {
            self.sweep(now, |_, _| true);
        }
        if self.flows.len() >= self.times.max as usize {
            return Err(Full);
        }
        let mut alike = None;
        if let FilterKeep::Limit { by, max } = keeping {
            let key = alike_of(rule, by, packet);
            if self.alike.get(&key).is_some_and(|count| *count >= max) {
                self.sweep(now, |_, _| true);
            }
            if self.alike.get(&key).is_some_and(|count| *count >= max) {
                return Err(Full);
            }
            alike = Some(key);
        }
        self.insert(now, packet, rule, alike);
        Ok(())
    }

    /// Makes the flow of an open connection known that has come from another stack.
    pub fn adopt(&mut self, now: Instant, setup: &Packet, (rule, keeping): (u64, FilterKeep)) {
        let alike = match keeping {
            FilterKeep::State => None,
            FilterKeep::Limit { by, .. } => Some(alike_of(rule, by, setup)),
        };
        self.insert(now, setup, rule, alike);
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

    fn insert(&mut self, now: Instant, packet: &Packet, rule: u64, alike: Option<Alike>) {
        let (flow, is_up) = FlowOf::new(packet);
        self.remove(&flow);
        let mut state = State {
            rule,
            is_up,
            alike,
            flags: [TcpFlags::NONE; 2],
            expires: now,
            packets: 0,
            bytes: 0,
        };
        state.note(now, packet, is_up, &self.times);
        if let Some(key) = alike {
            *self.alike.entry(key).or_default() += 1;
        }
        self.flows.insert(flow, state);
    }

    fn remove(&mut self, flow: &FlowOf) {
        let gone = self.flows.remove(flow);
        if let Some(key) = gone.and_then(|state| state.alike) {
            forget(&mut self.alike, &key);
        }
    }

    #[inline]
    pub fn is_sweep_due(&self, now: Instant) -> bool {
        now >= self.sweep_at && !self.flows.is_empty()
    }

    /// Removes expired flows. `has` returns whether an open connection between two ends still
    /// exists.
    pub fn sweep(&mut self, now: Instant, mut has: impl FnMut(SocketAddr, SocketAddr) -> bool) {
        let interval = match self.flows.len() > MANY {
            true => SWEEP_MANY_NS,
            false => SWEEP_NS,
        };
        self.sweep_at = now.plus_nanos(interval);
        let (times, alike) = (self.times, &mut self.alike);
        self.flows.retain(|flow, state| {
            if state.expires >= now {
                return true;
            }
            if times.keepalive
                && flow.protocol == protocol::TCP
                && state.is_open()
                && has(address(flow.low), address(flow.high))
            {
                let lifetime = u64::try_from(times.ack.as_nanos()).unwrap_or(u64::MAX);
                state.expires = now.plus_nanos(lifetime);
                return true;
            }
            if let Some(key) = state.alike {
                forget(alike, &key);
            }
            false
        });
    }

    /// Removes the flows of rules for which `is_there` returns false.
    pub fn retain(&mut self, mut is_there: impl FnMut(u64) -> bool) {
        let alike = &mut self.alike;
        self.flows.retain(|_, state| {
            let is_kept = is_there(state.rule);
            if !is_kept && let Some(key) = state.alike {
                forget(alike, &key);
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
                is_limited: state.alike.is_some(),
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

fn forget(alike: &mut BTreeMap<Alike, u32>, key: &Alike) {
    if let Some(count) = alike.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            alike.remove(key);
        }
    }
}

fn alike_of(rule: u64, by: LimitBy, packet: &Packet) -> Alike {
    let part = |is_it: bool, value: u128| if is_it { value } else { 0 };
    let port = |is_it: bool, value: u32| if is_it { value } else { 0 };
    (
        rule,
        (
            part(by.source, packet.src),
            port(by.source_port, packet.ports.0),
        ),
        (
            part(by.destination, packet.dst),
            port(by.destination_port, packet.ports.1),
        ),
    )
}

fn address((bits, port): Host) -> SocketAddr {
    let ip: IpAddr = match bits >> 32 == V4 >> 32 {
        true => Ipv4Addr::from_bits(bits as u32).into(),
        false => Ipv6Addr::from_bits(bits).into(),
    };
    let port = if port == NO_PORT { 0 } else { port };
    SocketAddr::new(ip, u16::try_from(port).unwrap_or(0))
}
