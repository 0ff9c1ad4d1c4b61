//! Executes a script.

mod calls;
mod code;
mod constants;
mod failure;
mod info;
mod messages;
mod remote;
mod settings;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use slipstack_posix::addr::{Family, Given};

use crate::packet::{self, Flow, LiveBody, LivePacket, PacketBody, PacketSpec};
use crate::script::{Action, Event, Script, Stamp, Time};
use crate::world::World;

use calls::Calls;
pub use calls::listen;
pub use failure::Failure;
pub use remote::PORT;
use remote::remote;
pub use settings::{IpVersion, RunSettings};

const REMOTE_PORT_FIRST: u16 = 40_001;

/// An address of 192.168.0.0/16 for one of the scripts of this process.
pub fn address(number: usize) -> Ipv4Addr {
    let number = (number as u16).wrapping_mul(257) ^ std::process::id() as u16;
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(192, 168, high, low.clamp(3, 254))
}

/// packetdrill chooses the stack's address and passes it only to `bind`: the first address there is
/// ours, if it is in the networks that packetdrill uses.
pub fn adopt(world: &World, addr: &[u8]) {
    let is_v6 = addr
        .first_chunk()
        .is_some_and(|family| u16::from_ne_bytes(*family) == libc::AF_INET6 as u16);
    let family = if is_v6 { Family::V6 } else { Family::V4 };
    let Ok(Given::Addr(given)) = slipstack_posix::addr::parse(addr, family) else {
        return;
    };
    let ip = given.ip().to_canonical();
    let is_drawn = match ip {
        IpAddr::V4(ip) => ip.octets().starts_with(&[192, 168]),
        IpAddr::V6(ip) => ip.segments().starts_with(&[0xfd3d, 0xfa7b, 0xd17d]),
    };
    if is_drawn {
        world.adopt(ip);
    }
}

/// Runs a script from its beginning to its end. Binding `local` reaches the kernel too, which
/// refuses two sockets on one port: scripts that run at the same time need an address each. A
/// packet that leaves after the script's last line is an error unless `ignores_rest`.
///
/// # Errors
/// The first event that did not happen as written.
pub fn run(script: &Script, local: Ipv4Addr, ignores_rest: bool) -> Result<(), Failure> {
    let mut settings = RunSettings::of(script)?;
    settings.ignores_rest = ignores_rest;
    settings.world.local_v4 = local;
    let [_, _, high, low] = local.octets();
    settings.world.local_v6 = Ipv6Addr::new(
        0xfd3d,
        0xfa7b,
        0xd17d,
        0,
        0,
        0,
        0,
        u16::from_be_bytes([high, low]),
    );
    let mut runner = Runner::new(settings);
    for event in &script.events {
        runner.event(event).map_err(|reason| Failure {
            line: event.line,
            reason: format!("{} ({:.6} s)", reason, runner.elapsed_us() as f64 / 1e6),
        })?;
    }
    runner.finish(script.events.last().map_or(0, |event| event.line))
}

struct Runner {
    settings: RunSettings,
    calls: Calls,
    /// Sent packets that no line has matched yet, with the time.
    sent: VecDeque<(u64, LivePacket)>,
    flow: Option<Flow>,
    remote_port: u16,
    /// Zero of the script's clock, on the world's.
    begin_ns: u64,
    /// Time of the event before, of the script's clock.
    last_us: u64,
}

impl Runner {
    fn new(settings: RunSettings) -> Self {
        let world = World::new(settings.world.clone());
        Self {
            begin_ns: world.now_ns(),
            calls: Calls::new(world, &settings),
            settings,
            sent: VecDeque::new(),
            flow: None,
            remote_port: REMOTE_PORT_FIRST,
            last_us: 0,
        }
    }

    fn world(&self) -> &World {
        self.calls.world()
    }

    fn elapsed_us(&self) -> u64 {
        (self.world().now_ns() - self.begin_ns) / 1000
    }

    fn event(&mut self, event: &Event) -> Result<(), String> {
        match &event.action {
            Action::Leaves(spec) => return self.leaves(event.time, spec),
            Action::Call(_) => self.calls.join()?,
            _ => {}
        }
        let at = match event.time {
            Time::At(stamp) | Time::Between(stamp, _) => self.at(stamp),
            Time::Any => self.elapsed_us(),
        };
        self.advance_to(at)?;
        self.last_us = at;
        match &event.action {
            Action::Arrives(spec) => self.arrives(spec)?,
            Action::Call(call) => {
                let end = event.end.map(|end| self.at(end));
                let begin_ns = self.begin_ns;
                let tolerance_us = self.settings.tolerance_us;
                self.calls.begin(call, end, begin_ns, tolerance_us)?;
            }
            Action::Code(text) => self.calls.check_code(text)?,
            Action::Command(text) => self.settings.command(text)?,
            Action::Leaves(_) => {}
        }
        self.collect()
    }

    /// Waits for calls in progress, and checks the sent packets once more: one that no line matches
    /// is an error.
    fn finish(&mut self, line: usize) -> Result<(), Failure> {
        let fail = |reason| Failure { line, reason };
        self.calls.join().map_err(fail)?;
        self.collect().map_err(fail)?;
        match self.sent.front() {
            Some((at, live)) if !self.settings.ignores_rest => Err(fail(format!(
                "after the last line's packets another has left at {:.6} s: {live:?}",
                *at as f64 / 1e6
            ))),
            _ => Ok(()),
        }
    }

    fn at(&self, stamp: Stamp) -> u64 {
        match stamp {
            Stamp::Absolute(us) => us,
            Stamp::Relative(us) => self.last_us + us,
        }
    }

    fn advance_to(&mut self, at_us: u64) -> Result<(), String> {
        let until = self.begin_ns + at_us * 1000;
        loop {
            let is_there = self.world().step(until);
            self.world().settle();
            self.collect()?;
            if is_there {
                return Ok(());
            }
        }
    }

    /// Collects packets sent since the last call.
    fn collect(&mut self) -> Result<(), String> {
        while let Some((at_ns, bytes)) = self.world().sent() {
            let now_us = (at_ns - self.begin_ns).div_ceil(1000);
            let live = packet::read(&bytes)
                .map_err(|what| format!("the stack sent a packet that is wrong: {what}"))?;
            self.sent.push_back((now_us, live));
        }
        Ok(())
    }

    fn arrives(&mut self, spec: &PacketSpec) -> Result<(), String> {
        // A SYN once the script has closed: each connection counts from 0, so another number is one
        // of the same ends.
        let opens = match &spec.body {
            PacketBody::Tcp(tcp) if tcp.flags.is_syn() && !tcp.flags.is_ack() => Some(tcp.seq),
            _ => None,
        };
        match (&mut self.flow, opens) {
            (None, _) => self.begin_flow(),
            (Some(_), Some(0)) if self.calls.take_closed() => self.begin_flow(),
            (Some(flow), Some(1..)) if self.calls.take_closed() => flow.begin_again(),
            _ => {}
        }
        if let (Some(flow), PacketBody::Tcp(tcp)) = (&mut self.flow, &spec.body)
            && tcp.flags.is_syn()
        {
            flow.on_remote_syn(tcp.seq);
        }
        if let Some(flow) = &self.flow {
            self.world().deliver(&packet::build(spec, flow));
            self.world().settle();
        }
        Ok(())
    }

    /// The peer's next connection.
    fn begin_flow(&mut self) {
        let local = self.settings.local();
        let flow = Flow::new((local, PORT), (remote(local), self.remote_port));
        self.flow = Some(flow.with_cookie_of(self.flow.as_ref()));
        self.remote_port += 1;
    }

    fn leaves(&mut self, time: Time, spec: &PacketSpec) -> Result<(), String> {
        let tolerance = self.settings.tolerance_us;
        let (earliest, latest) = match time {
            Time::At(stamp) => (self.at(stamp), self.at(stamp)),
            Time::Between(from, until) => (self.at(from), self.at(until)),
            Time::Any => (0, u64::MAX - tolerance),
        };
        let (at, live) = self.next_sent(latest + tolerance).ok_or_else(|| {
            format!(
                "no packet left until {:.6} s",
                (latest + tolerance) as f64 / 1e6
            )
        })?;
        let flow = flow_of(&mut self.flow, &live);
        packet::compare(spec, &live, flow, self.settings.timestamp_tolerance)?;
        if at + tolerance < earliest || at > latest + tolerance {
            return Err(format!(
                "the packet left at {:.6} s, expected between {:.6} s and {:.6} s",
                at as f64 / 1e6,
                earliest as f64 / 1e6,
                latest as f64 / 1e6
            ));
        }
        self.last_us = match time {
            Time::At(_) => earliest,
            Time::Between(..) | Time::Any => at,
        };
        Ok(())
    }

    /// The next packet that leaves, waiting for it until a time of the script's clock.
    fn next_sent(&mut self, until_us: u64) -> Option<(u64, LivePacket)> {
        loop {
            if let Some(found) = self.sent.pop_front() {
                return Some(found);
            }
            let until_ns = self.begin_ns.saturating_add(until_us.saturating_mul(1000));
            if self.elapsed_us() > until_us
                || (until_us > FOREVER_US && !self.world().has_deadline())
            {
                return None;
            }
            let is_there = self.world().step(until_ns);
            self.world().settle();
            self.collect().ok()?;
            if is_there && self.sent.is_empty() {
                return None;
            }
        }
    }
}

/// Beyond this a script waits for ever.
const FOREVER_US: u64 = 1 << 50;

/// The flow of a packet that left: an active open begins one.
fn flow_of<'a>(flow: &'a mut Option<Flow>, live: &LivePacket) -> &'a mut Flow {
    let ports = match &live.body {
        LiveBody::Tcp { header, .. } => Some((header.src_port, header.dst_port)),
        LiveBody::Udp {
            src_port, dst_port, ..
        } => Some((*src_port, *dst_port)),
        LiveBody::Icmp(_) => None,
    };
    let begins = matches!(&live.body, LiveBody::Tcp { header, .. }
        if header.flags.is_syn() && !header.flags.is_ack());
    if let Some((local, remote)) = ports
        && (flow.is_none() || begins)
        && flow.as_ref().is_none_or(|flow| flow.local.1 != local)
    {
        let next = Flow::new((live.src, local), (live.dst, remote));
        let next = next.with_cookie_of(flow.as_ref());
        return flow.insert(next);
    }
    flow.get_or_insert_with(|| Flow::new((live.src, PORT), (live.dst, PORT)))
}
