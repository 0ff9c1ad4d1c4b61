//! HTTP requests, one connection each or many on one: as fast as they are answered, or at a
//! constant rate.
//!
//! At a constant rate a request's time starts at the instant at which it was due, even if no
//! connection was free then: a server that stalls delays all requests of that time, and the results
//! show it (no coordinated omission).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use slipstack_service::{Closed, ConnectionId, Context, Reason, Refused, Service, Via};

/// Longest head of an answer.
const HEAD_MAX: usize = 16 * 1024;
/// Longest time for an answer.
const ANSWER: Duration = Duration::from_secs(30);
/// Digits of a time that are kept.
const DIGITS: u8 = 3;
/// Requests that are due and wait for a connection; further ones are counted as errors.
const DUE_MAX: usize = 1 << 20;
/// The start of a connection that has no request under way.
const RESTS: u64 = u64::MAX;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct StressOptions {
    pub target: SocketAddr,
    /// The request's bytes.
    pub request: Vec<u8>,
    /// Connections at a time, of this engine or thread.
    pub concurrency: usize,
    pub keeps_alive: bool,
    /// Time between two requests of this engine or thread; `None`: each follows an answer.
    pub interval_ns: Option<u64>,
    /// Print the first answer's head.
    pub is_debugged: bool,
}

/// Figures of all engines together.
#[derive(Debug)]
pub struct StressFigures {
    /// Number of started requests, up to `number`.
    begun: AtomicU64,
    /// 0: without end.
    pub number: u64,
    pub good: AtomicU64,
    pub bad: AtomicU64,
    pub socket_errors: AtomicU64,
    /// Nanoseconds of each request that was answered, of the engines that have ended.
    times: Mutex<Histogram<u64>>,
}

impl StressFigures {
    pub fn new(number: u64) -> StressFigures {
        StressFigures {
            begun: AtomicU64::new(0),
            number,
            good: AtomicU64::new(0),
            bad: AtomicU64::new(0),
            socket_errors: AtomicU64::new(0),
            times: Mutex::new(histogram()),
        }
    }

    /// The time of each request that was answered, in nanoseconds.
    pub fn times(&self) -> Histogram<u64> {
        let times = self.times.lock();
        times.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Requests that are over.
    pub fn done(&self) -> u64 {
        let counts = [&self.good, &self.bad, &self.socket_errors];
        counts.map(|it| it.load(Ordering::Relaxed)).iter().sum()
    }

    fn begin(&self) -> bool {
        let begun = self.begun.fetch_add(1, Ordering::Relaxed);
        self.number == 0 || begun < self.number
    }
}

/// Times with three digits, however long they are.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new(DIGITS).unwrap_or_else(|_| unreachable!("at most five digits"))
}

/// One connection.
#[derive(Debug, Default)]
pub struct Asking {
    /// Bytes of the body to come; none before the head has come.
    left: Option<u64>,
    is_good: bool,
    /// The body ends with the connection.
    until_end: bool,
    is_answered: bool,
}

/// See the [module documentation](self).
pub struct Stress {
    options: StressOptions,
    figures: Arc<StressFigures>,
    live: usize,
    began: Instant,
    times: Histogram<u64>,
    /// Time at which the request of each connection began, by the connection's index.
    starts: Vec<u64>,
    /// Time at which the next request is due.
    next_ns: u64,
    /// Requests that are due and have no connection.
    due: VecDeque<u64>,
    /// Connections that wait for a request.
    resting: Vec<ConnectionId>,
    /// All requests have been started.
    is_over: bool,
}

impl Drop for Stress {
    fn drop(&mut self) {
        let times = self.figures.times.lock();
        let mut times = times.unwrap_or_else(PoisonError::into_inner);
        // Both have the same digits, and grow.
        let _ = times.add(&self.times);
    }
}

impl Stress {
    pub fn new(options: StressOptions, figures: Arc<StressFigures>) -> Stress {
        Stress {
            options,
            figures,
            live: 0,
            began: Instant::now(),
            times: histogram(),
            starts: Vec::new(),
            next_ns: 0,
            due: VecDeque::new(),
            resting: Vec::new(),
            is_over: false,
        }
    }

    fn clock(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn start_of(&mut self, id: ConnectionId) -> &mut u64 {
        if self.starts.len() <= id.index() {
            self.starts.resize(id.index() + 1, RESTS);
        }
        &mut self.starts[id.index()]
    }

    fn open(&mut self, cx: &Context<'_>, start: u64) {
        match cx.connect(self.options.target, start) {
            Ok(_) => self.live += 1,
            Err(_) => self.count(&self.figures.socket_errors),
        }
    }

    /// Opens the next connection, if there is one to open.
    fn next(&mut self, cx: &Context<'_>) {
        if self.options.interval_ns.is_some() {
            return self.begin_due(cx);
        }
        if self.figures.begin() {
            let start = self.clock();
            self.open(cx, start);
        }
        if self.live == 0 {
            cx.end();
        }
    }

    /// Records and starts the due requests at a constant rate.
    fn plan(&mut self, cx: &Context<'_>, interval_ns: u64) {
        let now = self.clock();
        while self.next_ns <= now && !self.is_over {
            self.is_over = !self.figures.begin();
            if !self.is_over {
                match self.due.len() < DUE_MAX {
                    true => self.due.push_back(self.next_ns),
                    false => self.count(&self.figures.socket_errors),
                }
            }
            self.next_ns += interval_ns;
        }
        if !self.is_over {
            cx.wake_after(Duration::from_nanos(self.next_ns - now));
        }
        self.begin_due(cx);
    }

    /// Begins requests that are due, as far as there are connections for them.
    fn begin_due(&mut self, cx: &Context<'_>) {
        while let Some(start) = self.due.front().copied() {
            if let Some(id) = self.resting.pop() {
                if !cx.is_open(id) {
                    continue;
                }
                *self.start_of(id) = start;
                self.ask(cx, id);
            } else if self.live < self.options.concurrency {
                self.open(cx, start);
            } else {
                return;
            }
            self.due.pop_front();
        }
        if self.is_over && self.live == self.resting.len() {
            cx.end();
        }
    }

    fn count(&self, what: &AtomicU64) {
        what.fetch_add(1, Ordering::Relaxed);
    }

    fn on_over(&mut self, cx: &Context<'_>) {
        self.live -= 1;
        self.next(cx);
    }

    /// Processes received bytes. Returns whether the answer is complete.
    fn take(&self, cx: &Context<'_>, id: ConnectionId, asking: &mut Asking) -> bool {
        if asking.left.is_none() {
            let bytes = cx.received(id).contiguous(HEAD_MAX);
            let Some(end) = find(&bytes, b"\r\n\r\n") else {
                if bytes.len() == HEAD_MAX {
                    cx.reset(id);
                }
                return false;
            };
            let head = &bytes[..end + 4];
            if self.options.is_debugged {
                eprint!("{}", String::from_utf8_lossy(head));
            }
            asking.is_good = head.get(9..12).is_some_and(|code| code == b"200");
            let length = content_length(head);
            asking.until_end = length.is_none();
            asking.left = Some(length.unwrap_or(u64::MAX));
            cx.consume(id, head.len());
        }
        let left = asking.left.unwrap_or(0);
        let taken = left.min(cx.received(id).len() as u64);
        cx.consume(id, taken as usize);
        asking.left = Some(left - taken);
        left == taken
    }

    fn on_answer(&mut self, cx: &Context<'_>, id: ConnectionId, asking: &mut Asking) {
        let now = self.clock();
        let start = std::mem::replace(self.start_of(id), RESTS);
        // The histogram grows as far as a value needs, so that recording cannot fail.
        let _ = self.times.record(now.saturating_sub(start));
        self.count(match asking.is_good {
            true => &self.figures.good,
            false => &self.figures.bad,
        });
        asking.is_answered = true;
        let stays = self.options.keeps_alive && !asking.until_end;
        if stays && self.options.interval_ns.is_some() {
            cx.clear_timer(id);
            self.resting.push(id);
            return self.begin_due(cx);
        }
        if stays && self.figures.begin() {
            *asking = Asking::default();
            *self.start_of(id) = now;
            return self.ask(cx, id);
        }
        cx.close(id);
    }

    fn ask(&self, cx: &Context<'_>, id: ConnectionId) {
        if cx.write(id, &self.options.request) < self.options.request.len() {
            cx.reset(id);
        }
        cx.set_timer(id, ANSWER);
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|it| it == wanted)
}

fn content_length(head: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(head).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    value.trim().parse().ok()
}

impl Service for Stress {
    type Connection = Asking;
    type Result = ();

    fn on_start(&mut self, cx: &Context<'_>) {
        self.began = Instant::now();
        if let Some(interval_ns) = self.options.interval_ns {
            return self.plan(cx, interval_ns);
        }
        for _ in 0..self.options.concurrency {
            self.next(cx);
        }
    }

    fn on_open(&mut self, cx: &Context<'_>, id: ConnectionId, via: Via) -> Option<Asking> {
        if let Via::Connect(start) = via {
            *self.start_of(id) = start;
        }
        self.ask(cx, id);
        Some(Asking::default())
    }

    fn on_data(&mut self, cx: &Context<'_>, id: ConnectionId, asking: &mut Asking) {
        if asking.is_answered && *self.start_of(id) != RESTS {
            *asking = Asking::default();
        }
        if !asking.is_answered && self.take(cx, id, asking) {
            self.on_answer(cx, id, asking);
        }
    }

    fn on_end(&mut self, cx: &Context<'_>, id: ConnectionId, asking: &mut Asking) {
        if asking.until_end && !asking.is_answered {
            self.on_answer(cx, id, asking);
        }
        cx.close(id);
    }

    fn on_closed(&mut self, cx: &Context<'_>, id: ConnectionId, _: Asking, _: Closed) {
        self.resting.retain(|other| *other != id);
        if std::mem::replace(self.start_of(id), RESTS) != RESTS {
            self.count(&self.figures.socket_errors);
        }
        self.on_over(cx);
    }

    fn on_connect_failed(&mut self, cx: &Context<'_>, _: u64, _: Reason) {
        self.count(&self.figures.socket_errors);
        self.on_over(cx);
    }

    fn on_wake(&mut self, cx: &Context<'_>) {
        if let Some(interval_ns) = self.options.interval_ns {
            self.plan(cx, interval_ns);
        }
    }

    fn on_refused(&mut self, cx: &Context<'_>, what: Refused) {
        if let Refused::Connect(..) = what {
            self.on_connect_failed(cx, 0, Reason::Refused);
        }
    }
}
