//! HTTP requests, one connection each or many on one, as fast as they are answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slipstack_service::{Closed, ConnectionId, Context, Reason, Refused, Service, Via};

/// Longest head of an answer.
const HEAD_MAX: usize = 16 * 1024;
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(30);

/// What is to be done.
#[derive(Clone, Debug)]
pub struct StressOptions {
    pub target: SocketAddr,
    /// The request's bytes.
    pub request: Vec<u8>,
    /// Connections at a time, of this engine or thread.
    pub concurrency: usize,
    pub keeps_alive: bool,
    /// Print the first answer's head.
    pub is_debugged: bool,
}

/// Figures of all engines together.
#[derive(Debug, Default)]
pub struct StressFigures {
    /// Requests to be begun; none is left when it is at `number`.
    begun: AtomicU64,
    /// 0: without end.
    pub number: u64,
    pub good: AtomicU64,
    pub bad: AtomicU64,
    pub socket_errors: AtomicU64,
}

impl StressFigures {
    pub fn new(number: u64) -> StressFigures {
        StressFigures {
            number,
            ..StressFigures::default()
        }
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

/// See the module.
pub struct Stress {
    options: StressOptions,
    figures: Arc<StressFigures>,
    live: usize,
}

impl Stress {
    pub fn new(options: StressOptions, figures: Arc<StressFigures>) -> Stress {
        Stress {
            options,
            figures,
            live: 0,
        }
    }

    /// Opens the next connection, if there is one to open.
    fn next(&mut self, cx: &Context<'_>) {
        if self.figures.begin() {
            match cx.connect(self.options.target, 0) {
                Ok(_) => self.live += 1,
                Err(_) => self.count(&self.figures.socket_errors),
            }
        }
        if self.live == 0 {
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

    /// Takes what has come; whether the answer is whole.
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
        self.count(match asking.is_good {
            true => &self.figures.good,
            false => &self.figures.bad,
        });
        asking.is_answered = true;
        if self.options.keeps_alive && !asking.until_end && self.figures.begin() {
            *asking = Asking::default();
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
        for _ in 0..self.options.concurrency {
            self.next(cx);
        }
    }

    fn on_open(&mut self, cx: &Context<'_>, id: ConnectionId, _: Via) -> Option<Asking> {
        self.ask(cx, id);
        Some(Asking::default())
    }

    fn on_data(&mut self, cx: &Context<'_>, id: ConnectionId, asking: &mut Asking) {
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

    fn on_closed(&mut self, cx: &Context<'_>, _: ConnectionId, asking: Asking, _: Closed) {
        if !asking.is_answered {
            self.count(&self.figures.socket_errors);
        }
        self.on_over(cx);
    }

    fn on_connect_failed(&mut self, cx: &Context<'_>, _: u64, _: Reason) {
        self.count(&self.figures.socket_errors);
        self.on_over(cx);
    }

    fn on_refused(&mut self, cx: &Context<'_>, what: Refused) {
        if let Refused::Connect(..) = what {
            self.on_connect_failed(cx, 0, Reason::Refused);
        }
    }
}
