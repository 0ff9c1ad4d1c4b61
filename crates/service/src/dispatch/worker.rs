//! Workers: threads that answer datagrams in bursts, and sleep when there are none.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use slipstack_mem::{Doorbell, PacketReceiver, PacketSender, Sleeper, packet_ring};

use super::Head;
use crate::counts::Tally;
use crate::panics::guarded;

/// Datagrams of one engine that a worker answers before it checks the next engine's.
const BURST_MAX: usize = 64;
/// Longest payload of a datagram (IPv6's length field less the UDP header).
const PAYLOAD_MAX: usize = 65_527;
/// Payload bytes for which a ring has room, for each of its datagrams.
const BYTES_EACH: usize = 256;
/// Bursts from this many datagrams on are counted by themselves.
pub const LARGE_BURST: u64 = 8;

/// Answers datagrams on a worker's thread. Each worker has its own.
pub trait Answerer: Send + 'static {
    /// Returns the answer to a datagram from `peer` to `local`, or `None` for no answer.
    fn answer<'a>(
        &'a mut self,
        peer: SocketAddr,
        local: SocketAddr,
        question: &'a [u8],
    ) -> Option<&'a [u8]>;
}

/// Counters of a worker. Written by its thread alone.
#[derive(Debug, Default)]
pub struct WorkerCounts {
    pub datagrams: Tally,
    pub answers: Tally,
    /// Datagrams taken at once are a burst.
    pub bursts: Tally,
    /// Datagrams in bursts of [`LARGE_BURST`] or more.
    pub in_large_bursts: Tally,
    pub largest_burst: Tally,
    /// Answers longer than a datagram can be.
    pub too_long: Tally,
    pub panics: Tally,
    pub sleeps: Tally,
}

/// An engine as its workers know it.
pub(super) struct EnginePost {
    has_answers: AtomicBool,
    bell: Option<Doorbell>,
}

impl EnginePost {
    pub(super) fn new(bell: Option<Doorbell>) -> EnginePost {
        EnginePost {
            has_answers: AtomicBool::new(false),
            bell,
        }
    }

    /// Notifies the engine of answers, unless it was notified and has not looked yet.
    pub(super) fn tell(&self) {
        if !self.has_answers.swap(true, Ordering::SeqCst)
            && let Some(bell) = &self.bell
        {
            bell.ring();
        }
    }

    #[inline]
    pub(super) fn has_answers(&self) -> bool {
        self.has_answers.load(Ordering::SeqCst)
    }

    /// To be called before the rings are checked.
    pub(super) fn clear(&self) {
        self.has_answers.swap(false, Ordering::SeqCst);
    }

    /// The engine itself has left answers in a ring.
    pub(super) fn keep(&self) {
        self.has_answers.store(true, Ordering::SeqCst);
    }
}

/// A worker as its engines know it.
#[derive(Default)]
pub(super) struct WorkerPost {
    pub(super) sleeper: Sleeper,
    is_ending: AtomicBool,
    has_new_lanes: AtomicBool,
    new_lanes: Mutex<Vec<WorkerLane>>,
    counts: WorkerCounts,
}

impl WorkerPost {
    fn add_lane(&self, lane: WorkerLane) {
        let lanes = self.new_lanes.lock();
        lanes.unwrap_or_else(PoisonError::into_inner).push(lane);
        self.has_new_lanes.store(true, Ordering::SeqCst);
        self.sleeper.wake();
    }
}

/// An engine's end of the rings between it and a worker.
pub(super) struct EngineLane {
    pub(super) questions: PacketSender<Head>,
    pub(super) answers: PacketReceiver<Head>,
    pub(super) worker: Arc<WorkerPost>,
    /// The worker waits until there is room for answers.
    pub(super) is_stalled: Arc<AtomicBool>,
    /// Something was put in since the worker was last woken.
    pub(super) is_fresh: bool,
}

/// A worker's end of the rings between it and one engine.
struct WorkerLane {
    questions: PacketReceiver<Head>,
    answers: PacketSender<Head>,
    engine: Arc<EnginePost>,
    is_stalled: Arc<AtomicBool>,
}

impl WorkerLane {
    /// Answers a burst; returns of how many datagrams.
    fn work(&mut self, answerer: &mut dyn Answerer, counts: &WorkerCounts) -> usize {
        let most = self.questions.waiting().min(BURST_MAX);
        let (mut done, mut answered) = (0, 0);
        while done < most && self.has_room() {
            let answers = &mut self.answers;
            self.questions.take(|head, question| {
                let answer_it = || {
                    let answer = answerer.answer(head.peer, head.local, question)?;
                    Some(answer.len() <= PAYLOAD_MAX && answers.push(head, &[answer]))
                };
                match guarded(answer_it) {
                    Some(None) => {}
                    Some(Some(true)) => answered += 1,
                    Some(Some(false)) => counts.too_long.add(1),
                    None => counts.panics.add(1),
                }
                true
            });
            done += 1;
        }
        if done > 0 {
            counts.note_burst(done as u64, answered);
        }
        if answered > 0 {
            self.engine.tell();
        }
        done
    }

    /// Returns whether any answer has room. Tells the engine if not.
    fn has_room(&self) -> bool {
        if self.answers.has_room() {
            return true;
        }
        self.is_stalled.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let has_room = self.answers.has_room();
        if has_room {
            self.is_stalled.store(false, Ordering::Relaxed);
        }
        has_room
    }

    fn is_over(&self) -> bool {
        self.questions.is_abandoned() && self.questions.waiting() == 0
    }
}

impl WorkerCounts {
    fn note_burst(&self, datagrams: u64, answers: u64) {
        self.bursts.add(1);
        self.datagrams.add(datagrams);
        self.answers.add(answers);
        if datagrams >= LARGE_BURST {
            self.in_large_bursts.add(datagrams);
        }
        if datagrams > self.largest_burst.get() {
            self.largest_burst.set(datagrams);
        }
    }
}

/// One worker.
pub(super) struct Worker {
    post: Arc<WorkerPost>,
    lanes: Vec<WorkerLane>,
    answerer: Box<dyn Answerer>,
}

impl Worker {
    /// Answers a burst of each engine; returns whether there was anything.
    pub(super) fn turn(&mut self) -> bool {
        if self.post.has_new_lanes.swap(false, Ordering::SeqCst) {
            let lanes = self.post.new_lanes.lock();
            let mut lanes = lanes.unwrap_or_else(PoisonError::into_inner);
            self.lanes.append(&mut lanes);
        }
        let mut done = 0;
        for lane in &mut self.lanes {
            done += lane.work(&mut *self.answerer, &self.post.counts);
        }
        done > 0
    }

    fn run(mut self) {
        loop {
            if self.turn() {
                continue;
            }
            self.lanes.retain(|lane| !lane.is_over());
            if self.post.is_ending.load(Ordering::SeqCst) {
                return;
            }
            self.sleep();
        }
    }

    fn sleep(&self) {
        if self.post.sleeper.sleep(|| self.has_work()) {
            self.post.counts.sleeps.add(1);
        }
    }

    fn has_work(&self) -> bool {
        let lanes = &mut self.lanes.iter();
        self.post.is_ending.load(Ordering::SeqCst)
            || self.post.has_new_lanes.load(Ordering::SeqCst)
            || lanes.any(|lane| lane.questions.waiting() > 0 && lane.answers.has_room())
    }
}

/// Workers that any number of engines share.
pub struct Workers {
    posts: Vec<Arc<WorkerPost>>,
    threads: Vec<JoinHandle<()>>,
    /// Workers without threads, for the engine that joins first.
    inline: Mutex<Vec<Worker>>,
    ring_datagrams: usize,
}

impl Workers {
    /// Starts `count` threads, each with an answerer of its own. In each ring at most
    /// `ring_datagrams` wait.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn new(
        count: usize,
        ring_datagrams: usize,
        make: impl FnMut(usize) -> Box<dyn Answerer>,
    ) -> io::Result<Workers> {
        let mut workers = Workers::inline(count, ring_datagrams, make);
        let inline = std::mem::take(&mut workers.inline);
        let all = inline.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (number, worker) in all.into_iter().enumerate() {
            let thread = std::thread::Builder::new()
                .name(format!("answerer-{number}"))
                .spawn(move || worker.run())?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Workers without threads, for worlds in virtual time: they answer on the thread of the one
    /// engine that has them, at the end of its turn.
    pub fn inline(
        count: usize,
        ring_datagrams: usize,
        make: impl FnMut(usize) -> Box<dyn Answerer>,
    ) -> Workers {
        let posts: Vec<Arc<WorkerPost>> = (0..count).map(|_| Arc::default()).collect();
        let answerers = (0..count).map(make);
        let all = posts.iter().zip(answerers).map(|(post, answerer)| Worker {
            post: Arc::clone(post),
            lanes: Vec::new(),
            answerer,
        });
        let inline = Mutex::new(all.collect());
        Workers {
            posts,
            threads: Vec::new(),
            inline,
            ring_datagrams,
        }
    }

    pub fn len(&self) -> usize {
        self.posts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.posts.is_empty()
    }

    /// Returns the counters of each worker.
    pub fn counts(&self) -> impl Iterator<Item = &WorkerCounts> {
        self.posts.iter().map(|post| &post.counts)
    }

    /// Joins an engine to all workers; returns the workers that run on its thread too.
    pub(super) fn join(&self, engine: &Arc<EnginePost>) -> (Vec<EngineLane>, Vec<Worker>) {
        let lanes = self.posts.iter().map(|post| {
            let (questions_in, questions_out) = packet_ring(self.ring_datagrams, BYTES_EACH);
            let (answers_in, answers_out) = packet_ring(self.ring_datagrams, BYTES_EACH);
            let is_stalled = Arc::default();
            post.add_lane(WorkerLane {
                questions: questions_out,
                answers: answers_in,
                engine: Arc::clone(engine),
                is_stalled: Arc::clone(&is_stalled),
            });
            EngineLane {
                questions: questions_in,
                answers: answers_out,
                worker: Arc::clone(post),
                is_stalled,
                is_fresh: false,
            }
        });
        let lanes = lanes.collect();
        let inline = self.inline.lock();
        let mut inline = inline.unwrap_or_else(PoisonError::into_inner);
        (lanes, std::mem::take(&mut inline))
    }
}

impl Drop for Workers {
    /// Waits until the workers have answered all datagrams.
    fn drop(&mut self) {
        for post in &self.posts {
            post.is_ending.store(true, Ordering::SeqCst);
            post.sleeper.wake();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
