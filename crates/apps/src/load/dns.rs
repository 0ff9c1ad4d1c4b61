//! DNS queries over UDP: as fast as they are answered, or at a constant rate.
//!
//! In a closed loop a fixed number of queries is outstanding, and an answer (or a time-out) makes
//! room for the next. At a constant rate a query's time starts at the instant at which it was due,
//! even if it was sent later: a server that stalls delays all queries of that time, and the results
//! show it (no coordinated omission).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use slipstack_service::{ConnectionId, Context, Datagram, DatagramSocketId, Refused, Service, Via};

use super::stress::histogram;

const HEADER: usize = 12;
/// Ids of one socket.
const IDS: usize = 1 << 16;
/// Queries under way on one socket, at most: ids are to differ for as long as answers may come.
pub const OUTSTANDING_MAX: usize = IDS / 2;
/// Time after which a query that found no room is tried again.
const RETRY: Duration = Duration::from_micros(200);
/// The start of an id that is not under way.
const FREE: u64 = u64::MAX;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct DnsLoadOptions {
    pub target: SocketAddr,
    /// Sent in turn, again from the beginning after the last.
    pub queries: Arc<[Vec<u8>]>,
    /// Sockets, each with a source port of its own, of this engine or thread.
    pub sockets: usize,
    /// Queries under way at a time, of this engine or thread.
    pub outstanding: usize,
    /// Time between two queries of this engine or thread; `None`: each follows an answer.
    pub interval_ns: Option<u64>,
    /// An answer that takes longer is none.
    pub timeout: Duration,
    /// No query is sent after this time.
    pub limit: Option<Duration>,
}

/// Figures of all engines together.
#[derive(Debug)]
pub struct DnsFigures {
    /// Number of started queries, up to `number`.
    begun: AtomicU64,
    /// 0: as many as there is time for.
    pub number: u64,
    pub sent: AtomicU64,
    /// Answers by their code; extended codes are not distinguished.
    pub rcodes: [AtomicU64; 16],
    pub truncated: AtomicU64,
    pub timed_out: AtomicU64,
    /// Queries that were due and could not be sent before the time was over.
    pub unsent: AtomicU64,
    /// Datagrams that answer no query under way.
    pub unexpected: AtomicU64,
    pub bytes: AtomicU64,
    /// Nanoseconds of each query that was answered, of the engines that have ended.
    times: Mutex<Histogram<u64>>,
}

impl DnsFigures {
    pub fn new(number: u64) -> DnsFigures {
        DnsFigures {
            begun: AtomicU64::new(0),
            number,
            sent: AtomicU64::new(0),
            rcodes: [const { AtomicU64::new(0) }; 16],
            truncated: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
            unexpected: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            times: Mutex::new(histogram()),
        }
    }

    /// The time of each query that was answered, in nanoseconds.
    pub fn times(&self) -> Histogram<u64> {
        let times = self.times.lock();
        times.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn answered(&self) -> u64 {
        let counts = self.rcodes.iter();
        counts.map(|it| it.load(Ordering::Relaxed)).sum()
    }

    fn begin(&self) -> bool {
        let begun = self.begun.fetch_add(1, Ordering::Relaxed);
        self.number == 0 || begun < self.number
    }
}

fn count(what: &AtomicU64) {
    what.fetch_add(1, Ordering::Relaxed);
}

/// A query that is under way.
#[derive(Clone, Copy)]
struct UnderWay {
    /// Time at which it was due, and when it was sent.
    start: u64,
    sent: u64,
    query: usize,
}

impl UnderWay {
    const NONE: UnderWay = UnderWay {
        start: FREE,
        sent: 0,
        query: 0,
    };
}

/// A socket and its outstanding queries.
struct Line {
    socket: DatagramSocketId,
    /// By id.
    under_way: Box<[UnderWay]>,
    next_id: u16,
    count: usize,
}

/// See the [module documentation](self).
pub struct DnsLoad {
    options: DnsLoadOptions,
    figures: Arc<DnsFigures>,
    began: Instant,
    times: Histogram<u64>,
    lines: Vec<Line>,
    /// The line of the next query, and which query it is.
    line: usize,
    query: usize,
    outstanding: usize,
    /// Time of the next check for timed-out queries.
    expire_at: u64,
    /// Time at which the next query is due, at a constant rate.
    next_ns: u64,
    message: Vec<u8>,
    /// A due query that found no room.
    held: Option<u64>,
    /// All queries have been started.
    is_over: bool,
}

impl Drop for DnsLoad {
    fn drop(&mut self) {
        let times = self.figures.times.lock();
        let mut times = times.unwrap_or_else(PoisonError::into_inner);
        // Both have the same digits, and grow.
        let _ = times.add(&self.times);
    }
}

impl DnsLoad {
    pub fn new(options: DnsLoadOptions, figures: Arc<DnsFigures>) -> DnsLoad {
        DnsLoad {
            options,
            figures,
            began: Instant::now(),
            times: histogram(),
            lines: Vec::new(),
            line: 0,
            query: 0,
            outstanding: 0,
            expire_at: 0,
            next_ns: 0,
            message: Vec::new(),
            held: None,
            is_over: false,
        }
    }

    fn clock(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Sends the queries that may be sent now, and plans the rest.
    fn go_on(&mut self, cx: &Context<'_>) {
        let now = self.clock();
        self.expire(now);
        let limit = self.options.limit.map(|limit| limit.as_nanos() as u64);
        if let Some(limit) = limit.filter(|limit| now >= *limit && !self.is_over) {
            self.is_over = true;
            if let Some(interval_ns) = self.options.interval_ns {
                let unsent = limit.saturating_sub(self.next_ns) / interval_ns;
                self.figures.unsent.fetch_add(unsent, Ordering::Relaxed);
            }
        }
        let mut is_full = false;
        while self.outstanding < self.options.outstanding && !is_full {
            let Some(start) = self.begin(now) else { break };
            is_full = !self.send(cx, start, now);
            self.held = is_full.then_some(start);
        }
        if self.is_over && self.outstanding == 0 && self.held.is_none() {
            return cx.end();
        }
        let due = match self.options.interval_ns {
            Some(_) if !self.is_over && self.outstanding < self.options.outstanding => self.next_ns,
            _ => u64::MAX,
        };
        let expiry = match self.outstanding {
            0 => u64::MAX,
            _ => self.expire_at,
        };
        let retry = match is_full {
            true => now + RETRY.as_nanos() as u64,
            false => u64::MAX,
        };
        let next = due.min(expiry).min(retry).min(limit.unwrap_or(u64::MAX));
        if next < u64::MAX {
            cx.wake_after(Duration::from_nanos(next.saturating_sub(now)));
        }
    }

    /// Time at which the next query begins, if it is due; one that found no room before comes
    /// first.
    fn begin(&mut self, now: u64) -> Option<u64> {
        if let Some(start) = self.held.take() {
            return Some(start);
        }
        if self.is_over || self.options.interval_ns.is_some() && self.next_ns > now {
            return None;
        }
        self.is_over = !self.figures.begin();
        if self.is_over {
            return None;
        }
        Some(match self.options.interval_ns {
            None => now,
            Some(interval_ns) => {
                self.next_ns += interval_ns;
                self.next_ns - interval_ns
            }
        })
    }

    /// Sends the next query; `false`: there is no room.
    fn send(&mut self, cx: &Context<'_>, start: u64, now: u64) -> bool {
        let at = self.line;
        let line = &mut self.lines[at];
        if line.count >= OUTSTANDING_MAX {
            return false;
        }
        while line.under_way[usize::from(line.next_id)].start != FREE {
            line.next_id = line.next_id.wrapping_add(1);
        }
        let id = line.next_id;
        self.message.clear();
        self.message
            .extend_from_slice(&self.options.queries[self.query]);
        self.message[..2].copy_from_slice(&id.to_be_bytes());
        let target = self.options.target;
        if cx
            .send_to(line.socket, target, None, &self.message)
            .is_err()
        {
            return false;
        }
        line.under_way[usize::from(id)] = UnderWay {
            start,
            sent: now,
            query: self.query,
        };
        line.next_id = id.wrapping_add(1);
        line.count += 1;
        self.outstanding += 1;
        self.line = (at + 1) % self.lines.len();
        self.query = (self.query + 1) % self.options.queries.len();
        count(&self.figures.sent);
        true
    }

    /// Gives up timed-out queries, at most an eighth of the timeout late.
    fn expire(&mut self, now: u64) {
        if now < self.expire_at {
            return;
        }
        let timeout = self.options.timeout.as_nanos() as u64;
        self.expire_at = now + (timeout / 8).max(1_000_000);
        for line in self.lines.iter_mut().filter(|line| line.count > 0) {
            let late = line.under_way.iter_mut();
            for place in late.filter(|it| it.start != FREE && it.sent + timeout <= now) {
                *place = UnderWay::NONE;
                line.count -= 1;
                self.outstanding -= 1;
                count(&self.figures.timed_out);
            }
        }
    }

    /// Counts an answer; `false`: it is none.
    fn take(&mut self, socket: DatagramSocketId, bytes: &[u8]) -> bool {
        let Some(line) = self.lines.iter_mut().find(|it| it.socket == socket) else {
            return false;
        };
        let &[one, two, flags, more, ..] = bytes else {
            return false;
        };
        let place = &mut line.under_way[usize::from(u16::from_be_bytes([one, two]))];
        let UnderWay { start, query, .. } = *place;
        if start == FREE || flags & 0x80 == 0 || bytes.len() < HEADER {
            return false;
        }
        // A server that cannot read the question answers without it.
        let has_question = bytes[4..6] != [0, 0];
        let asked = &self.options.queries[query];
        let opt = if asked[11] == 0 { 0 } else { 11 };
        let asked = &asked[HEADER..asked.len() - opt];
        let question = bytes.get(HEADER..HEADER + asked.len());
        if has_question && !question.is_some_and(|it| it.eq_ignore_ascii_case(asked)) {
            return false;
        }
        *place = UnderWay::NONE;
        line.count -= 1;
        self.outstanding -= 1;
        let time = self.began.elapsed().as_nanos() as u64;
        // The histogram grows as far as a value needs, so that recording cannot fail.
        let _ = self.times.record(time.saturating_sub(start));
        count(&self.figures.rcodes[usize::from(more & 15)]);
        if flags & 2 != 0 {
            count(&self.figures.truncated);
        }
        let len = bytes.len() as u64;
        self.figures.bytes.fetch_add(len, Ordering::Relaxed);
        true
    }
}

impl Service for DnsLoad {
    type Connection = ();
    type Result = ();

    fn on_start(&mut self, cx: &Context<'_>) {
        let any = match self.options.target.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        for _ in 0..self.options.sockets.max(1) {
            match cx.bind(SocketAddr::new(any, 0)) {
                Ok(socket) => self.lines.push(Line {
                    socket,
                    under_way: vec![UnderWay::NONE; IDS].into(),
                    next_id: cx.now_ns() as u16,
                    count: 0,
                }),
                Err(_) => return cx.end(),
            }
        }
        // The sockets are bound by then.
        self.began = Instant::now();
        cx.wake_after(Duration::from_millis(1));
    }

    fn on_open(&mut self, _: &Context<'_>, _: ConnectionId, _: Via) -> Option<()> {
        None
    }

    fn on_data(&mut self, _: &Context<'_>, _: ConnectionId, (): &mut ()) {}

    fn on_datagram(&mut self, cx: &Context<'_>, socket: DatagramSocketId, datagram: &Datagram<'_>) {
        let bytes = datagram.payload.contiguous(usize::MAX);
        if datagram.from != self.options.target || !self.take(socket, &bytes) {
            count(&self.figures.unexpected);
        }
        self.go_on(cx);
    }

    fn on_wake(&mut self, cx: &Context<'_>) {
        self.go_on(cx);
    }

    fn on_refused(&mut self, cx: &Context<'_>, _: Refused) {
        cx.end();
    }
}
