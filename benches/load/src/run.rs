//! The event loop: keeps the wanted number of requests in flight and times answers.

use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::Options;
use crate::connection::Connection;
use crate::pace::Pace;
use crate::protocol;
use crate::report::Report;

const TIMER: Token = Token(usize::MAX - 1);
/// Longer latencies are recorded as this.
const LATENCY_MAX_NS: u64 = 60_000_000_000;
/// Consecutive failures after which the server counts as gone.
const FAILURES_MAX: u64 = 1000;

struct Run<'a> {
    options: &'a Options,
    poll: Poll,
    request: Vec<u8>,
    connections: Vec<Option<Connection>>,
    /// Connections with room for another request (open loop).
    idle: Vec<usize>,
    pace: Option<Pace>,
    latency_ns: Histogram<u64>,
    measure_from: Instant,
    measure_to: Instant,
    errors: u64,
    late: u64,
}

pub fn latencies() -> io::Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).map_err(io::Error::other)
}

pub fn run(options: &Options) -> io::Result<Report> {
    let mut run = Run::new(options)?;
    run.open_all()?;
    let mut events = Events::with_capacity(1024);
    while Instant::now() < run.measure_to {
        let left = run.measure_to.saturating_duration_since(Instant::now());
        let wait = left.clamp(Duration::from_millis(1), Duration::from_millis(100));
        if let Err(error) = run.poll.poll(&mut events, Some(wait)) {
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        for event in &events {
            if event.token() == TIMER {
                run.on_tick()?;
            } else {
                run.on_event(event.token().0, event.is_writable(), event.is_readable())?;
            }
        }
    }
    if run.latency_ns.is_empty() {
        return Err(io::Error::other("no request was answered"));
    }
    let seconds = options.measured().as_secs_f64();
    Ok(Report::new(&run.latency_ns, run.errors, run.late, seconds))
}

impl<'a> Run<'a> {
    fn new(options: &'a Options) -> io::Result<Self> {
        let poll = Poll::new()?;
        let start = Instant::now();
        let pace = match options.rate {
            0 => None,
            rate => Some(Pace::new(rate, start)?),
        };
        if let Some(pace) = &pace {
            let fd = pace.raw_fd();
            poll.registry()
                .register(&mut SourceFd(&fd), TIMER, Interest::READABLE)?;
        }
        Ok(Run {
            options,
            poll,
            request: protocol::request(options),
            connections: Vec::new(),
            idle: Vec::new(),
            pace,
            latency_ns: latencies()?,
            measure_from: start + options.warm(),
            measure_to: start + options.warm() + options.measured(),
            errors: 0,
            late: 0,
        })
    }

    fn open_all(&mut self) -> io::Result<()> {
        for index in 0..self.options.connections as usize {
            self.connections.push(None);
            if self.pace.is_some() && self.options.mode.closes() {
                self.idle.push(index);
            } else {
                self.open(index)?;
            }
        }
        Ok(())
    }

    fn open(&mut self, index: usize) -> io::Result<()> {
        let token = Token(index);
        let mut connection = Connection::open(self.options.target, token, self.poll.registry())?;
        if self.pace.is_none() {
            let now = Instant::now();
            for _ in 0..self.options.pipeline {
                connection.ask(&self.request, now);
            }
        } else if !self.options.mode.closes() {
            self.idle.push(index);
        }
        self.connections[index] = Some(connection);
        Ok(())
    }

    /// Hands every request that is due to a free connection.
    fn on_tick(&mut self) -> io::Result<()> {
        let now = Instant::now();
        while let Some(pace) = &mut self.pace {
            pace.rearm();
            if self.idle.is_empty() {
                break;
            }
            let Some(due) = pace.take_due(now) else {
                break;
            };
            self.give(due, now)?;
        }
        Ok(())
    }

    fn give(&mut self, due: Instant, now: Instant) -> io::Result<()> {
        let Some(index) = self.idle.pop() else {
            return Ok(());
        };
        if now.saturating_duration_since(due) > Duration::from_millis(1) {
            self.late += 1;
        }
        if self.options.mode.closes() {
            self.open(index)?;
        }
        let pipeline = self.options.pipeline as usize;
        if let Some(connection) = &mut self.connections[index] {
            connection.ask(&self.request, due);
            if connection.outstanding() < pipeline {
                self.idle.push(index);
            }
            if connection.may_write() && !connection.write() {
                self.replace(index, true)?;
            }
        }
        Ok(())
    }

    fn on_event(&mut self, index: usize, is_writable: bool, is_readable: bool) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
            return Ok(());
        };
        if is_writable {
            connection.on_writable();
            if !connection.write() {
                return self.replace(index, true);
            }
        }
        if !is_readable {
            return Ok(());
        }
        let (from, to) = (self.measure_from, self.measure_to);
        let latency_ns = &mut self.latency_ns;
        let now = Instant::now();
        let progress = connection.read(self.options, |due| {
            if now >= from && now < to {
                let elapsed = now.saturating_duration_since(due).as_nanos();
                latency_ns.saturating_record(u64::try_from(elapsed).unwrap_or(u64::MAX));
            }
        });
        let done = self.options.mode.closes() && progress.answered > 0;
        if progress.is_over || progress.is_failed || done {
            return self.replace(index, progress.is_failed);
        }
        self.refill(index, progress.answered, now)
    }

    /// Sends a new request for each answer, or releases the connection.
    fn refill(&mut self, index: usize, answered: usize, now: Instant) -> io::Result<()> {
        let Some(connection) = self.connections[index].as_mut() else {
            return Ok(());
        };
        if answered == 0 {
            return Ok(());
        }
        if self.pace.is_some() {
            let was_full = connection.outstanding() + answered >= self.options.pipeline as usize;
            if was_full {
                self.idle.push(index);
            }
            return self.on_tick();
        }
        for _ in 0..answered {
            connection.ask(&self.request, now);
        }
        if connection.may_write() && !connection.write() {
            return self.replace(index, true);
        }
        Ok(())
    }

    /// A connection has ended: count it if it failed, and open the next.
    fn replace(&mut self, index: usize, is_failed: bool) -> io::Result<()> {
        if is_failed {
            self.errors += 1;
            if self.errors > FAILURES_MAX && self.latency_ns.is_empty() {
                return Err(io::Error::other(
                    "the server refuses or breaks every connection",
                ));
            }
        }
        if let Some(connection) = self.connections[index].take() {
            connection.forget(self.poll.registry());
        }
        if self.pace.is_some() && self.options.mode.closes() {
            self.idle.push(index);
            return self.on_tick();
        }
        self.idle.retain(|&other| other != index);
        self.open(index)
    }
}
