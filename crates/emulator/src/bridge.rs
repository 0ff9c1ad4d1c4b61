//! The loop of the bridge: takes frames into the links, sends frames that are due, and waits.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::nanosleep;
use slipstack_sim::link::{DropReason, Link, LinkCounters, too_big};
use slipstack_stack::Instant;
use slipstack_stack::rng::Rng;

use crate::arguments::{Arguments, Plan};
use crate::clock;
use crate::observer::Observer;
use crate::report::{Direction, Report};
use crate::side::Side;

/// Frames taken from one side before the other has its turn.
const BURST: usize = 64;
/// Longest wait: a signal that arrived just before it is then seen.
const WAIT_NS_MAX: u64 = 100_000_000;

pub struct Bridge {
    /// Left, right.
    sides: [Side; 2],
    /// To the left, to the right: `links[i]` ends at `sides[i]`.
    links: [Link<()>; 2],
    /// `observers[i]` sees the frames received for `links[i]`.
    observers: [Observer; 2],
    /// Lateness of frames, in nanoseconds.
    lateness: [Histogram<u64>; 2],
    names: [String; 2],
    router: Option<std::net::IpAddr>,
    started: Instant,
    grain_ns: u64,
    every_ns: Option<u64>,
    said: (Instant, [LinkCounters; 2]),
}

impl Bridge {
    pub fn open(arguments: &Arguments, plan: &Plan) -> Result<Self, String> {
        let offset = clock::wall_offset_ns();
        let open = |name: &str, access: Option<u16>, suffix: &str| {
            let pcap = arguments.pcap.as_ref().map(|prefix| {
                let mut path = prefix.clone().into_os_string();
                path.push(suffix);
                PathBuf::from(path)
            });
            Side::open(name, access, pcap.as_deref(), offset)
        };
        let sides = [
            open(&arguments.left, arguments.left_access, "-left.pcap")?,
            open(&arguments.right, arguments.right_access, "-right.pcap")?,
        ];
        let started = clock::now();
        let mut links = [
            Link::new(plan.to_left, generator(arguments.seed, 0)),
            Link::new(plan.to_right, generator(arguments.seed, 1)),
        ];
        for (at, to_left, to_right) in &plan.changes {
            links[0].change_at(started.plus_nanos(*at), *to_left);
            links[1].change_at(started.plus_nanos(*at), *to_right);
        }
        Ok(Self {
            sides,
            links,
            observers: Default::default(),
            lateness: [histogram()?, histogram()?],
            names: [arguments.left.clone(), arguments.right.clone()],
            router: arguments.router,
            started,
            grain_ns: plan.grain_ns,
            every_ns: plan.every_ns,
            said: (started, [LinkCounters::default(); 2]),
        })
    }

    /// Runs until it is stopped, or for a time.
    pub fn run(&mut self, stop: &AtomicBool, limit_ns: Option<u64>) -> Result<(), String> {
        let end = limit_ns.map_or(Instant::FAR_FUTURE, |ns| self.started.plus_nanos(ns));
        while !stop.load(Ordering::Relaxed) {
            let now = clock::now();
            if now >= end {
                break;
            }
            let received = self.take(0)? + self.take(1)?;
            self.deliver(0);
            self.deliver(1);
            self.say(now);
            self.wait(received, end)?;
        }
        Ok(())
    }

    /// Takes frames from one side into the link to the other.
    fn take(&mut self, side: usize) -> Result<usize, String> {
        for count in 0..BURST {
            let now = clock::now();
            let frame = self.sides[side].receive(now);
            let frame = frame.map_err(|error| format!("{}: {error}", self.names[side]))?;
            let Some(frame) = frame else {
                return Ok(count);
            };
            self.offer(now, side, frame);
        }
        Ok(BURST)
    }

    fn offer(&mut self, now: Instant, side: usize, frame: Vec<u8>) {
        let other = 1 - side;
        self.observers[other].on_frame(&frame);
        let mtu = u16::try_from(self.links[other].params().mtu).unwrap_or(u16::MAX);
        let answer = match self.router {
            Some(router) if self.links[other].is_too_big(&frame) => {
                too_big::answer(&frame, mtu, router)
            }
            _ => None,
        };
        // Dropped frames are counted by the link.
        let outcome = self.links[other].offer(now, frame, ());
        if let (Err(DropReason::TooBig), Some(answer)) = (outcome, answer) {
            self.links[side].offer(now, answer, ()).ok();
        }
    }

    /// Sends the frames that have arrived at one side.
    fn deliver(&mut self, side: usize) {
        let now = clock::now();
        while let Some(delivery) = self.links[side].poll(now) {
            self.lateness[side].saturating_record(now.nanos_since(delivery.at));
            self.sides[side].send(now, &delivery.bytes);
        }
        self.sides[side].flush();
    }

    /// Until a frame comes in or is due. While there is traffic, a grain at a time: a wake-up for
    /// each frame would cost more than the frame.
    fn wait(&self, received: usize, end: Instant) -> Result<(), String> {
        if received >= BURST {
            return Ok(());
        }
        let now = clock::now();
        let due = self.links.iter().filter_map(Link::next_deadline).min();
        let until = due.unwrap_or(Instant::FAR_FUTURE).min(end);
        let wait_ns = until.nanos_since(now).min(WAIT_NS_MAX);
        if received > 0 || wait_ns < self.grain_ns {
            // A signal may end it early, which does no harm.
            let _ = nanosleep(&clock::timespec(wait_ns.min(self.grain_ns)));
            return Ok(());
        }
        let mut fds =
            [0, 1].map(|i| PollFd::from_borrowed_fd(self.sides[i].port.fd(), PollFlags::IN));
        match poll(&mut fds, Some(&clock::timespec(wait_ns))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(format!("waiting: {error}")),
        }
    }

    /// Reports the rates since the last report.
    fn say(&mut self, now: Instant) {
        let (since, before) = self.said;
        let passed = now.nanos_since(since);
        if self.every_ns.is_none_or(|every| passed < every) {
            return;
        }
        let counters = self.links.each_ref().map(|link| *link.counters());
        let rate = |i: usize| {
            let bytes = counters[i].delivered_bytes - before[i].delivered_bytes;
            bytes as f64 * 8e3 / passed as f64
        };
        let dropped = |i: usize| counters[i].dropped() - before[i].dropped();
        eprintln!(
            "{:8.3} s  to {}: {:9.3} Mbit/s, {} dropped  to {}: {:9.3} Mbit/s, {} dropped",
            now.nanos_since(self.started) as f64 / 1e9,
            self.names[0],
            rate(0),
            dropped(0),
            self.names[1],
            rate(1),
            dropped(1),
        );
        self.said = (now, counters);
    }

    pub fn report(&self) -> Report {
        let directions = [0, 1].map(|i| Direction {
            to: self.names[i].clone(),
            link: *self.links[i].counters(),
            tcp: self.observers[i].counters,
            // Frames for this direction come in at the other side.
            super_frames: self.sides[1 - i].counters.super_frames,
            send_refused: self.sides[i].counters.send_refused,
            other_vlan: self.sides[i].counters.other_vlan,
            late_p50_ns: self.lateness[i].value_at_quantile(0.5),
            late_p99_ns: self.lateness[i].value_at_quantile(0.99),
            late_p999_ns: self.lateness[i].value_at_quantile(0.999),
            late_max_ns: self.lateness[i].max(),
        });
        Report {
            seconds: clock::now().nanos_since(self.started) as f64 / 1e9,
            directions,
        }
    }
}

fn histogram() -> Result<Histogram<u64>, String> {
    Histogram::new_with_max(10_000_000_000, 2).map_err(|error| format!("histogram: {error}"))
}

fn generator(seed: u64, direction: u8) -> Rng {
    let mut bytes = [direction; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    Rng::new(&bytes)
}
