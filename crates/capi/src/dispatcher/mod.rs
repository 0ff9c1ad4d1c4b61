//! The packet dispatcher: a function of the program's that sees each frame before the stack does.
//!
//! It runs on the thread of `ff_run` alone, so that a program of one thread stays one: frames wait meanwhile, and go
//! straight to the stack when `ff_run` does not run.

pub mod abi;
mod frames;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use slipstack_attach::{DeviceCounters, FrameHook, Verdict};

use crate::{run, thread};

/// Frames that wait to be sent, at most.
const OUTGOING_MAX: usize = 4096;

/// Addresses of the program's functions, the one without and the one with a context; 0 = none.
static PLAIN: AtomicUsize = AtomicUsize::new(0);
static WITH_CONTEXT: AtomicUsize = AtomicUsize::new(0);
static OUTGOING: Mutex<VecDeque<Vec<u8>>> = Mutex::new(VecDeque::new());
static HAS_OUTGOING: AtomicUsize = AtomicUsize::new(0);

/// rx packets, rx bytes, tx packets, tx bytes, rx dropped, tx dropped.
static TRAFFIC: [AtomicU64; 6] = [const { AtomicU64::new(0) }; 6];

/// F-Stack's results: the number of a queue, this, or -1 and all others for a frame that is dropped.
const RESPONSE: i32 = -2;
/// Each process has a stack and a queue of its own, which is all that the program is told of.
const QUEUE: u16 = 0;
const QUEUES: u16 = 1;

/// The program, as the device knows it.
pub struct Program;

impl FrameHook for Program {
    fn is_on(&self) -> bool {
        run::is_running()
            && (PLAIN.load(Ordering::Acquire) != 0 || WITH_CONTEXT.load(Ordering::Acquire) != 0)
    }

    fn may_run_here(&self) -> bool {
        thread::runs_loop()
    }

    fn on_frame(&self, frame: &mut Vec<u8>) -> Verdict {
        let Ok(mut len) = u16::try_from(frame.len()) else {
            return Verdict::Pass;
        };
        // What an answer may grow by.
        frame.resize(frame.len().max(usize::from(len)) + abi::HEADROOM, 0);
        let result = abi::call(frame, &mut len, QUEUE, QUEUES);
        let room = frame.len();
        frame.truncate(usize::from(len).min(room));
        match result {
            RESPONSE => Verdict::Answer,
            result if result == i32::from(QUEUE) => Verdict::Pass,
            _ => Verdict::Drop,
        }
    }

    fn next_outgoing(&self) -> Option<Vec<u8>> {
        if HAS_OUTGOING.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut outgoing = OUTGOING.lock().ok()?;
        let frame = outgoing.pop_front();
        HAS_OUTGOING.store(outgoing.len(), Ordering::Release);
        frame
    }

    fn on_counters(&self, counters: &DeviceCounters) {
        let now = [
            counters.rx_frames,
            counters.rx_bytes,
            counters.tx_frames,
            counters.tx_bytes,
            counters.rx_overrun,
            counters.tx_dropped,
        ];
        for (place, count) in TRAFFIC.iter().zip(now) {
            place.store(count, Ordering::Relaxed);
        }
    }
}

/// Has a frame leave with the next turn; `false`: too many wait.
fn send(frame: Vec<u8>) -> bool {
    let Ok(mut outgoing) = OUTGOING.lock() else {
        return false;
    };
    if outgoing.len() >= OUTGOING_MAX {
        return false;
    }
    outgoing.push_back(frame);
    HAS_OUTGOING.store(outgoing.len(), Ordering::Release);
    true
}
