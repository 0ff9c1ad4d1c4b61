//! Load generator that releases many connections at one instant and measures each one's wait.
//!
//! In each round all connections are opened first. When the last of them is open, each sends the
//! message; the time until as many bytes have come back is its result.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use slipstack_service::{Closed, ConnectionId, Context, Reason, Refused, Service, Via};

use super::stress::histogram;

/// Longest round.
const ROUND_MAX: Duration = Duration::from_secs(60);

/// Options of a run.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    pub target: SocketAddr,
    pub connections: usize,
    pub rounds: usize,
    pub message: Vec<u8>,
    /// Called after each round with the number of rounds done, and of all.
    pub progress: fn(usize, usize),
}

/// Results of a run.
#[derive(Clone, Debug)]
pub struct BenchFigures {
    /// By connection: nanoseconds of all rounds together, and how many rounds those are.
    sums: Vec<(u64, u32)>,
    /// Nanoseconds of each answer.
    pub times: Histogram<u64>,
    pub failed: u64,
    pub rounds: usize,
}

impl BenchFigures {
    pub fn new(connections: usize) -> BenchFigures {
        BenchFigures {
            sums: vec![(0, 0); connections],
            times: histogram(),
            failed: 0,
            rounds: 0,
        }
    }

    fn note(&mut self, index: usize, ns: u64) {
        self.sums[index].0 += ns;
        self.sums[index].1 += 1;
        // Every `u64` fits a histogram that grows.
        let _ = self.times.record(ns);
    }

    /// Average microseconds of each connection that was answered at least once.
    pub fn averages(&self) -> Vec<(usize, u64)> {
        let answered = self.sums.iter().enumerate().filter(|(_, (_, n))| *n > 0);
        answered
            .map(|(index, (sum, n))| (index, sum / u64::from(*n) / 1000))
            .collect()
    }
}

/// One connection of the present round.
#[derive(Debug)]
pub struct Probe {
    index: usize,
    sent_at: Option<Instant>,
    missing: usize,
}

/// See the [module documentation](self).
pub struct Bench {
    options: BenchOptions,
    figures: Arc<Mutex<BenchFigures>>,
    /// Connections of this round that wait for its beginning.
    waiting: Vec<ConnectionId>,
    /// Connections and attempts of this round that are not over.
    left: usize,
    /// Connections that are being opened.
    opening: usize,
    round: usize,
    is_released: bool,
    released_at: Option<Instant>,
}

impl Bench {
    pub fn new(options: BenchOptions, figures: Arc<Mutex<BenchFigures>>) -> Bench {
        Bench {
            options,
            figures,
            waiting: Vec::new(),
            left: 0,
            opening: 0,
            round: 0,
            is_released: false,
            released_at: None,
        }
    }

    fn note(&self, note: impl FnOnce(&mut BenchFigures)) {
        note(&mut self.figures.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn begin_round(&mut self, cx: &Context<'_>) {
        self.waiting.clear();
        self.is_released = false;
        (self.left, self.opening) = (0, 0);
        for index in 0..self.options.connections {
            match cx.connect(self.options.target, index as u64) {
                Ok(_) => {
                    self.left += 1;
                    self.opening += 1;
                }
                Err(_) => self.note(|figures| figures.failed += 1),
            }
        }
        cx.wake_after(ROUND_MAX);
        if self.left == 0 {
            cx.end();
        }
    }

    /// An attempt has succeeded or failed.
    fn on_attempt_over(&mut self, cx: &Context<'_>) {
        self.opening -= 1;
        if self.opening == 0 && !self.is_released {
            self.is_released = true;
            self.released_at = Some(Instant::now());
            for id in std::mem::take(&mut self.waiting) {
                if cx.write(id, &self.options.message) < self.options.message.len() {
                    cx.reset(id);
                }
            }
        }
    }

    fn on_over(&mut self, cx: &Context<'_>) {
        self.left -= 1;
        if self.left > 0 {
            return;
        }
        self.round += 1;
        let round = self.round;
        self.note(|figures| figures.rounds = round);
        (self.options.progress)(round, self.options.rounds);
        if round < self.options.rounds {
            self.begin_round(cx);
        } else {
            cx.end();
        }
    }
}

impl Service for Bench {
    type Connection = Probe;
    type Result = ();

    fn on_start(&mut self, cx: &Context<'_>) {
        self.begin_round(cx);
    }

    fn on_open(&mut self, cx: &Context<'_>, id: ConnectionId, via: Via) -> Option<Probe> {
        let Via::Connect(index) = via else {
            return None;
        };
        self.waiting.push(id);
        self.on_attempt_over(cx);
        Some(Probe {
            index: index as usize,
            sent_at: None,
            missing: self.options.message.len(),
        })
    }

    fn on_data(&mut self, cx: &Context<'_>, id: ConnectionId, probe: &mut Probe) {
        let len = cx.received(id).len();
        cx.consume(id, len);
        probe.missing = probe.missing.saturating_sub(len);
        if probe.missing > 0 || probe.sent_at.is_some() {
            return;
        }
        probe.sent_at = self.released_at;
        if let Some(released_at) = self.released_at {
            let ns = u64::try_from(released_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.note(|figures| figures.note(probe.index, ns));
        }
        cx.close(id);
    }

    fn on_closed(&mut self, cx: &Context<'_>, _: ConnectionId, probe: Probe, _: Closed) {
        if probe.sent_at.is_none() {
            self.note(|figures| figures.failed += 1);
        }
        self.on_over(cx);
    }

    fn on_connect_failed(&mut self, cx: &Context<'_>, _: u64, _: Reason) {
        self.note(|figures| figures.failed += 1);
        self.on_attempt_over(cx);
        self.on_over(cx);
    }

    fn on_refused(&mut self, cx: &Context<'_>, what: Refused) {
        if let Refused::Connect(..) = what {
            self.on_connect_failed(cx, 0, Reason::Refused);
        }
    }

    /// Ends a round that has taken too long: missing answers count as failures.
    fn on_wake(&mut self, cx: &Context<'_>) {
        let left = self.left as u64;
        self.note(|figures| figures.failed += left);
        cx.end();
    }
}
