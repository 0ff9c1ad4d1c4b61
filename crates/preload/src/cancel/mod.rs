//! `pthread_cancel`: a thread that waits in one of our calls leaves it in order first.
//!
//! A cancelled thread unwinds without running Rust's destructors. So our sleep is no
//! cancellation point; it is interrupted, the call ends as for a signal, and the thread is
//! cancelled at the edge of the call, where it holds nothing. Programs that never cancel a
//! thread pay one load per call.

pub mod abi;

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::thread;

/// How many cancellations the program has asked for, of whichever thread.
static ASKED: AtomicU32 = AtomicU32::new(0);

/// The edge of a call: a cancellation point.
#[inline]
pub fn point() {
    let asked = ASKED.load(Relaxed);
    if asked != 0 {
        abi::test();
        thread::current().note_cancellations(asked);
    }
}

/// Whether a thread has been cancelled since this one came in: it may be this one.
pub fn is_suspected() -> bool {
    let asked = ASKED.load(Acquire);
    asked != 0 && asked != thread::current().cancellations()
}

fn count() {
    ASKED.fetch_add(1, Release);
}
