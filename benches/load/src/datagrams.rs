//! The loop of datagrams: each socket keeps a number of them under way, and an answer makes room
//! for the next.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};

use crate::Options;
use crate::report::Report;
use crate::run::latencies;

/// A datagram without an answer for so long is lost, and another one takes its place.
const LOST: Duration = Duration::from_millis(500);
/// The first bytes of a datagram: its place among those under way, and how often that was used.
const MARK_LEN: usize = 8;

/// A datagram under way.
struct Place {
    sent: Instant,
    use_count: u32,
}

struct Flow {
    socket: UdpSocket,
    places: Vec<Place>,
    datagram: Vec<u8>,
}

impl Flow {
    fn open(options: &Options, now: Instant) -> io::Result<Flow> {
        let any: SocketAddr = if options.target.is_ipv4() {
            (Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(options.target)?;
        let place = |_| Place {
            sent: now,
            use_count: 0,
        };
        Ok(Flow {
            socket,
            places: (0..options.pipeline).map(place).collect(),
            datagram: vec![b'x'; (options.size as usize).max(MARK_LEN)],
        })
    }

    /// Sends the next datagram of a place. One that finds no room is lost like any other.
    fn send(&mut self, index: u32, now: Instant) -> io::Result<()> {
        let place = &mut self.places[index as usize];
        place.sent = now;
        place.use_count = place.use_count.wrapping_add(1);
        self.datagram[..4].copy_from_slice(&index.to_le_bytes());
        self.datagram[4..MARK_LEN].copy_from_slice(&place.use_count.to_le_bytes());
        match self.socket.send(&self.datagram) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Receives one datagram. Returns its place and the time at which its question left; `None`
    /// inside if it is none that is under way.
    fn receive(&mut self) -> io::Result<Option<(u32, Instant)>> {
        let mut bytes = [0; 2048];
        let len = self.socket.recv(&mut bytes)?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        let (index, use_count) = (word(0), word(4));
        let place = self.places.get(index as usize);
        let is_whole = len == self.datagram.len();
        Ok(place
            .filter(|place| is_whole && place.use_count == use_count)
            .map(|place| (index, place.sent)))
    }
}

struct Figures {
    latency_ns: Histogram<u64>,
    measure_from: Instant,
    measure_to: Instant,
    lost: u64,
}

impl Figures {
    fn is_measured(&self, now: Instant) -> bool {
        now >= self.measure_from && now < self.measure_to
    }
}

pub fn run(options: &Options) -> io::Result<Report> {
    if options.rate != 0 {
        return Err(io::Error::other("--rate is for connections only"));
    }
    let start = Instant::now();
    let measure_from = start + options.warm();
    let mut figures = Figures {
        latency_ns: latencies()?,
        measure_from,
        measure_to: measure_from + options.measured(),
        lost: 0,
    };
    let mut poll = Poll::new()?;
    let mut flows = Vec::new();
    for number in 0..options.connections as usize {
        let mut flow = Flow::open(options, start)?;
        poll.registry()
            .register(&mut flow.socket, Token(number), Interest::READABLE)?;
        for index in 0..options.pipeline {
            flow.send(index, start)?;
        }
        flows.push(flow);
    }
    let mut events = Events::with_capacity(1024);
    let mut look = start + LOST;
    while Instant::now() < figures.measure_to {
        match poll.poll(&mut events, Some(Duration::from_millis(50))) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        }
        for event in &events {
            on_readable(&mut flows[event.token().0], &mut figures)?;
        }
        let now = Instant::now();
        if now >= look {
            look = now + LOST;
            for flow in &mut flows {
                replace_lost(flow, now, &mut figures)?;
            }
        }
    }
    if figures.latency_ns.is_empty() {
        return Err(io::Error::other("no datagram was answered"));
    }
    let seconds = options.measured().as_secs_f64();
    Ok(Report::new(&figures.latency_ns, figures.lost, 0, seconds))
}

/// Sends a datagram for each answer, until there is none.
fn on_readable(flow: &mut Flow, figures: &mut Figures) -> io::Result<()> {
    loop {
        match flow.receive() {
            Ok(None) => {}
            Ok(Some((index, sent))) => {
                let now = Instant::now();
                if figures.is_measured(now) {
                    let elapsed = now.saturating_duration_since(sent).as_nanos();
                    let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
                    figures.latency_ns.saturating_record(elapsed);
                }
                flow.send(index, now)?;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn replace_lost(flow: &mut Flow, now: Instant, figures: &mut Figures) -> io::Result<()> {
    for index in 0..flow.places.len() as u32 {
        if now.saturating_duration_since(flow.places[index as usize].sent) >= LOST {
            figures.lost += u64::from(figures.is_measured(now));
            flow.send(index, now)?;
        }
    }
    Ok(())
}
