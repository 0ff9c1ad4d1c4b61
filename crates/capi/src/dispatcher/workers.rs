//! Workers of the dispatcher: threads on which a callback of the program sees frames in bursts.
//!
//! Frames go to each worker over one ring and come back over another; both have one producer and
//! one consumer. The thread of `ff_run` wakes a worker once for all frames of a run, and is woken
//! once for a burst of answers.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use slipstack_attach::{LinkId, TakeDone, Verdict};
use slipstack_mem::{Doorbell, PacketReceiver, PacketSender, Sleeper, packet_ring};

use super::abi;

/// Frames that wait in each ring, at most; others are dropped and counted.
const RING_FRAMES: usize = 2048;
/// Bytes for which a ring has room, for each of its frames.
const BYTES_EACH: usize = 512;
/// Frames that a worker takes at once.
const BURST_MAX: usize = 64;
/// Bursts from this many frames on are counted by themselves.
const LARGE_BURST: u64 = 8;
/// Frames in a row for one worker, when they go to the next in turn.
const RUN: usize = 8;
pub const WORKERS_MAX: usize = 64;

/// The workers of this process, once there are some.
static ALL: OnceLock<Vec<Arc<Post>>> = OnceLock::new();
/// The workers wait here for the engine whose frames they get.
static WAITING: Mutex<Option<Crew>> = Mutex::new(None);
static IS_WAITING: AtomicBool = AtomicBool::new(false);

/// `struct slipstack_worker_counts`, each word written by one thread.
#[derive(Debug, Default)]
pub struct Counts {
    pub frames: AtomicU64,
    pub bursts: AtomicU64,
    pub largest_burst: AtomicU64,
    pub in_large_bursts: AtomicU64,
    pub answers: AtomicU64,
    pub ring_full: AtomicU64,
}

fn add(place: &AtomicU64, more: u64) {
    let before = place.load(Ordering::Relaxed);
    place.store(before + more, Ordering::Relaxed);
}

/// A worker as the engine knows it.
#[derive(Debug, Default)]
struct Post {
    sleeper: Sleeper,
    /// The worker waits for room for its results.
    is_stalled: AtomicBool,
    counts: Counts,
}

/// The engine as workers know it.
#[derive(Debug, Default)]
struct Home {
    has_done: AtomicBool,
    bell: OnceLock<Doorbell>,
}

/// The engine's end of the rings to a worker.
#[derive(Debug)]
struct Lane {
    frames: PacketSender<LinkId>,
    done: PacketReceiver<(LinkId, Verdict)>,
    post: Arc<Post>,
    /// Something was put in since the worker was last woken.
    is_fresh: bool,
}

/// All workers, held by the engine whose frames they get.
#[derive(Debug)]
pub struct Crew {
    lanes: Vec<Lane>,
    home: Arc<Home>,
    next: usize,
    run: usize,
}

/// Starts workers, once in a process; `work` is the address of the program's function, `first` the
/// number of their first queue.
pub fn start(count: usize, work: usize, first: u16) -> io::Result<()> {
    let posts: Vec<Arc<Post>> = (0..count).map(|_| Arc::default()).collect();
    if ALL.set(posts.clone()).is_err() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let home: Arc<Home> = Arc::default();
    let mut lanes = Vec::new();
    for (number, post) in posts.into_iter().enumerate() {
        let (frames_in, frames_out) = packet_ring(RING_FRAMES, BYTES_EACH);
        let (done_in, done_out) = packet_ring(RING_FRAMES, BYTES_EACH);
        let worker = Worker {
            frames: frames_out,
            done: done_in,
            post: Arc::clone(&post),
            home: Arc::clone(&home),
            work,
            queues: Queues {
                own: first + number as u16,
                first,
                count: first + count as u16,
            },
            scratch: Vec::new(),
        };
        std::thread::Builder::new()
            .name(format!("dispatch-{number}"))
            .spawn(move || worker.run())?;
        lanes.push(Lane {
            frames: frames_in,
            done: done_out,
            post,
            is_fresh: false,
        });
    }
    let crew = Crew {
        lanes,
        home,
        next: 0,
        run: 0,
    };
    *WAITING.lock().unwrap_or_else(PoisonError::into_inner) = Some(crew);
    IS_WAITING.store(true, Ordering::Release);
    Ok(())
}

/// Returns the number of workers.
pub fn count() -> usize {
    ALL.get().map_or(0, Vec::len)
}

pub fn counts(number: usize) -> Option<&'static Counts> {
    ALL.get()?.get(number).map(|post| &post.counts)
}

/// Returns the workers, for the first engine that calls; `bell` wakes it.
pub fn take(bell: &Doorbell) -> Option<Crew> {
    if !IS_WAITING.load(Ordering::Acquire) || !IS_WAITING.swap(false, Ordering::AcqRel) {
        return None;
    }
    let crew = WAITING
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()?;
    _ = crew.home.bell.set(bell.clone());
    Some(crew)
}

impl Crew {
    /// Hands a frame to a worker; `false`: its ring is full, or there is no such worker.
    pub fn push(&mut self, number: usize, frame: &[u8], link: LinkId) -> bool {
        let Some(lane) = self.lanes.get_mut(number) else {
            return false;
        };
        let is_taken = lane.frames.push(link, &[frame]);
        match is_taken {
            true => lane.is_fresh = true,
            false => add(&lane.post.counts.ring_full, 1),
        }
        is_taken
    }

    /// Hands a frame to the next worker in turn.
    pub fn push_next(&mut self, frame: &[u8], link: LinkId) -> bool {
        let number = self.next;
        self.run += 1;
        if self.run >= RUN {
            self.turn_to_next();
        }
        self.push(number, frame, link)
    }

    fn turn_to_next(&mut self) {
        self.run = 0;
        self.next = (self.next + 1) % self.lanes.len();
    }

    /// Wakes each worker that has got something.
    pub fn flush(&mut self) {
        for lane in &mut self.lanes {
            if std::mem::take(&mut lane.is_fresh) {
                lane.post.sleeper.wake();
            }
        }
        if self.run > 0 {
            self.turn_to_next();
        }
    }

    pub fn has_done(&self) -> bool {
        self.home.has_done.load(Ordering::SeqCst)
    }

    /// Gives up to `most` frames that workers are done with to `take`; returns how many.
    pub fn take_done(&mut self, most: usize, take: &mut TakeDone<'_>) -> usize {
        if !self.has_done() {
            return 0;
        }
        self.home.has_done.swap(false, Ordering::SeqCst);
        let (mut count, mut are_left) = (0, false);
        for lane in &mut self.lanes {
            while count < most {
                let is_taken = lane.done.take(|(link, verdict), frame| {
                    take(frame, link, verdict);
                    true
                });
                if !is_taken {
                    break;
                }
                count += 1;
            }
            are_left |= lane.done.waiting() > 0;
            unstall(&lane.post);
        }
        if are_left {
            self.home.has_done.store(true, Ordering::SeqCst);
        }
        count
    }
}

fn unstall(post: &Post) {
    fence(Ordering::SeqCst);
    if post.is_stalled.load(Ordering::Relaxed) && post.is_stalled.swap(false, Ordering::SeqCst) {
        post.sleeper.wake();
    }
}

/// Numbers of queues, as the program's function sees them.
#[derive(Clone, Copy, Debug)]
struct Queues {
    own: u16,
    /// The first worker's number; lower ones are processes.
    first: u16,
    count: u16,
}

/// One worker.
struct Worker {
    frames: PacketReceiver<LinkId>,
    done: PacketSender<(LinkId, Verdict)>,
    post: Arc<Post>,
    home: Arc<Home>,
    work: usize,
    queues: Queues,
    /// A frame with room for a longer answer.
    scratch: Vec<u8>,
}

impl Worker {
    fn run(mut self) {
        loop {
            if !self.turn() {
                let (frames, done) = (&self.frames, &self.done);
                let has_work = || frames.waiting() > 0 && done.has_room();
                self.post.sleeper.sleep(has_work);
            }
        }
    }

    /// Shows a burst to the program; returns whether there was any.
    fn turn(&mut self) -> bool {
        let most = self.frames.waiting().min(BURST_MAX);
        let (mut frames, mut answers, mut given) = (0, 0, 0);
        while frames < most as u64 && self.has_room() {
            let (link, verdict) = self.show();
            frames += 1;
            answers += u64::from(verdict == Verdict::Answer);
            if verdict != Verdict::Drop && self.done.push((link, verdict), &[&self.scratch]) {
                given += 1;
            }
        }
        if given > 0 && !self.home.has_done.swap(true, Ordering::SeqCst) {
            self.home.bell.get().inspect(|bell| bell.ring());
        }
        if frames > 0 {
            self.count(frames, answers);
        }
        frames > 0
    }

    /// Shows the next frame, which is in `scratch` then.
    fn show(&mut self) -> (LinkId, Verdict) {
        let (scratch, queues, work) = (&mut self.scratch, self.queues, self.work);
        let mut shown = (LinkId(0), Verdict::Drop);
        self.frames.take(|link, frame| {
            scratch.clear();
            scratch.extend_from_slice(frame);
            scratch.resize(frame.len() + abi::HEADROOM, 0);
            let mut len = frame.len().min(usize::from(u16::MAX)) as u16;
            let result = abi::call_worker(work, scratch, &mut len, (queues.own, queues.count));
            scratch.truncate(usize::from(len));
            let verdict = match result {
                super::RESPONSE => Verdict::Answer,
                queue if (0..i32::from(queues.first)).contains(&queue) => Verdict::Pass,
                _ => Verdict::Drop,
            };
            shown = (link, verdict);
            true
        });
        shown
    }

    /// Returns whether any frame has room on its way back.
    fn has_room(&self) -> bool {
        if self.done.has_room() {
            return true;
        }
        self.post.is_stalled.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.done.has_room()
    }

    fn count(&self, frames: u64, answers: u64) {
        let counts = &self.post.counts;
        add(&counts.frames, frames);
        add(&counts.bursts, 1);
        add(&counts.answers, answers);
        if frames >= LARGE_BURST {
            add(&counts.in_large_bursts, frames);
        }
        let largest = counts.largest_burst.load(Ordering::Relaxed).max(frames);
        counts.largest_burst.store(largest, Ordering::Relaxed);
    }
}
