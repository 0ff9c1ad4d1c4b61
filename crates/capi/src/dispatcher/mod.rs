//! The packet dispatcher: a callback of the program that sees each frame before the stack does.
//!
//! The callback runs only on the thread of `ff_run`, so that a single-threaded program stays
//! single-threaded: frames wait for it, and go straight to the stack when `ff_run` is not running.

pub mod abi;
mod frames;
mod workers;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use slipstack_attach::{DeviceCounters, FrameHook, LinkId, Queues, TakeDone, Verdict};
use slipstack_mem::Doorbell;

use workers::Crew;

use crate::{run, thread};

/// Frames that wait to be sent, at most.
const OUTGOING_MAX: usize = 4096;

/// Addresses of the program's functions, the one without and the one with a context; 0 = none.
static PLAIN: AtomicUsize = AtomicUsize::new(0);
static WITH_CONTEXT: AtomicUsize = AtomicUsize::new(0);
static OUTGOING: Mutex<VecDeque<(LinkId, Vec<u8>)>> = Mutex::new(VecDeque::new());
static HAS_OUTGOING: AtomicUsize = AtomicUsize::new(0);

/// rx packets, rx bytes, tx packets, tx bytes, rx dropped, tx dropped.
pub type Traffic = [u64; 6];

/// Traffic of all engines of this process, those that have ended too.
static TRAFFIC: [AtomicU64; 6] = [const { AtomicU64::new(0) }; 6];
/// Place of received frames that were dropped.
const RX_DROPPED: usize = 4;

/// F-Stack's results: the number of a queue, this, or -1 and all others for a frame that is
/// dropped.
const RESPONSE: i32 = -2;
/// To the next worker in turn (`SLIPSTACK_DISPATCH_WORKER`).
const NEXT_WORKER: i32 = -3;

/// The place of this process among those that share a configuration: each has a stack and a queue.
#[derive(Clone, Copy, Debug)]
pub struct ProcessSlot {
    pub family: u64,
    pub queue: u16,
    /// Number of processes.
    pub queues: u16,
}

/// The program, as a device knows it.
pub struct Program {
    place: ProcessSlot,
    bell: Doorbell,
    queues: Queues,
    crew: Option<Crew>,
    /// The device's part of [`TRAFFIC`], as it was last reported.
    counted: Traffic,
}

impl Program {
    pub fn new(place: ProcessSlot, bell: Doorbell, queues: Queues) -> Program {
        if place.queues > 1 {
            queues.join(place.family, place.queue);
        }
        Program {
            place,
            bell,
            queues,
            crew: None,
            counted: Traffic::default(),
        }
    }

    /// Hands a frame to another process or to a worker; `false`: it is lost.
    fn hand_on(&mut self, result: i32, frame: &[u8], link: LinkId) -> bool {
        let processes = i32::from(self.place.queues);
        match (&mut self.crew, result) {
            (_, queue) if (0..processes).contains(&queue) => {
                self.queues.post(self.place.family, queue as u16, frame)
            }
            (Some(crew), NEXT_WORKER) => crew.push_next(frame, link),
            (Some(crew), queue) if queue >= processes => {
                crew.push((queue - processes) as usize, frame, link)
            }
            // The program wants it dropped.
            _ => true,
        }
    }
}

impl FrameHook for Program {
    fn is_on(&mut self) -> bool {
        let is_on = run::is_running()
            && (PLAIN.load(Ordering::Acquire) != 0 || WITH_CONTEXT.load(Ordering::Acquire) != 0);
        if is_on && self.crew.is_none() && thread::runs_loop() {
            self.crew = workers::take(&self.bell);
        }
        is_on
    }

    fn may_run_here(&self) -> bool {
        thread::runs_loop()
    }

    fn on_frame(&mut self, frame: &mut Vec<u8>, link: LinkId) -> Verdict {
        let Ok(mut len) = u16::try_from(frame.len()) else {
            return Verdict::Pass;
        };
        // Room by which an answer may grow.
        frame.resize(frame.len().max(usize::from(len)) + abi::HEADROOM, 0);
        let queue = self.place.queue;
        let queues = self.place.queues + workers::count() as u16;
        let result = abi::call(frame, &mut len, (queue, queues), link);
        let room = frame.len();
        frame.truncate(usize::from(len).min(room));
        match result {
            RESPONSE => Verdict::Answer,
            result if result == i32::from(queue) => Verdict::Pass,
            result => {
                if !self.hand_on(result, frame, link) {
                    TRAFFIC[RX_DROPPED].fetch_add(1, Ordering::Relaxed);
                }
                Verdict::Drop
            }
        }
    }

    fn on_run_end(&mut self) {
        if let Some(crew) = &mut self.crew {
            crew.flush();
        }
    }

    fn has_done(&self) -> bool {
        self.crew.as_ref().is_some_and(Crew::has_done)
    }

    fn take_done(&mut self, most: usize, take: &mut TakeDone<'_>) -> usize {
        let crew = self.crew.as_mut();
        crew.map_or(0, |crew| crew.take_done(most, take))
    }

    fn next_outgoing(&mut self) -> Option<(LinkId, Vec<u8>)> {
        if HAS_OUTGOING.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut outgoing = OUTGOING.lock().ok()?;
        let frame = outgoing.pop_front();
        HAS_OUTGOING.store(outgoing.len(), Ordering::Release);
        frame
    }

    fn on_counters(&mut self, counters: &DeviceCounters) {
        let now = [
            counters.rx_frames,
            counters.rx_bytes,
            counters.tx_frames,
            counters.tx_bytes,
            counters.rx_overrun,
            counters.tx_dropped,
        ];
        if now != self.counted {
            add_traffic(&self.counted, &now);
            self.counted = now;
        }
    }
}

/// Adds to the process's traffic by how much a device's counters have grown. A device that has
/// taken another's place begins at 0.
fn add_traffic(before: &Traffic, now: &Traffic) {
    for (place, (before, now)) in TRAFFIC.iter().zip(before.iter().zip(now)) {
        let more = now.checked_sub(*before).unwrap_or(*now);
        place.fetch_add(more, Ordering::Relaxed);
    }
}

/// Returns the traffic of this process's devices.
pub fn traffic() -> Traffic {
    TRAFFIC
        .each_ref()
        .map(|count| count.load(Ordering::Relaxed))
}

/// In a forked child: the traffic so far is its parent's.
pub fn fork_child() {
    TRAFFIC
        .iter()
        .for_each(|count| count.store(0, Ordering::Relaxed));
}

/// Has a frame leave by a link with the next turn; `false`: too many wait.
fn send(frame: Vec<u8>, link: LinkId) -> bool {
    let Ok(mut outgoing) = OUTGOING.lock() else {
        return false;
    };
    if outgoing.len() >= OUTGOING_MAX {
        return false;
    }
    outgoing.push_back((link, frame));
    HAS_OUTGOING.store(outgoing.len(), Ordering::Release);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_of_several_engines_is_added_up_also_after_a_device_was_replaced() {
        add_traffic(&[0; 6], &[1, 10, 2, 20, 0, 0]);
        add_traffic(&[0; 6], &[5, 50, 5, 50, 1, 0]);
        add_traffic(&[1, 10, 2, 20, 0, 0], &[3, 30, 2, 20, 0, 0]);
        add_traffic(&[5, 50, 5, 50, 1, 0], &[1, 10, 0, 0, 0, 0]);
        assert_eq!(traffic(), [9, 90, 7, 70, 1, 0]);
    }
}
