//! `pthread_cancel`: a thread that waits in one of our calls leaves it in order first.
//!
//! A cancelled thread unwinds without running Rust's destructors. So our sleep is no
//! cancellation point; it is interrupted, the call ends as for a signal, and the thread is
//! cancelled at the edge of the call, where it holds nothing. Programs that never cancel a
//! thread pay one load per call; the first time they do, a thread that is inside a call leaves it
//! first.

pub mod abi;

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::OnceLock;

use crate::thread;

/// Number of cancellations that the program has requested, of any thread.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// The work at the first of them.
static AT_FIRST: OnceLock<fn()> = OnceLock::new();

/// Returns whether the program has ever requested a cancellation.
#[inline]
pub fn is_asked() -> bool {
    ASKED.load(Relaxed) != 0
}

/// The edge of a call that is a cancellation point.
pub fn point() {
    edge(true);
}

/// The edge of a call; whether it is a cancellation point.
pub fn edge(is_point: bool) {
    let asked = ASKED.load(Relaxed);
    if asked != 0 {
        let thread = thread::current();
        if is_point && !thread.is_raw() {
            abi::test();
        }
        thread.note_cancellations(asked);
    }
}

/// Makes a system call of the program's own, with cancellation disabled.
pub fn raw<T>(call: impl FnOnce() -> T) -> T {
    let thread = thread::current();
    thread.set_raw(true);
    let result = call();
    thread.set_raw(false);
    result
}

/// Does `work` of ours, in which the thread is not cancelled wherever it gets to.
pub fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let thread = thread::current();
    let was_enabled = abi::disable();
    thread.set_undisturbed(was_enabled);
    let result = work();
    if thread.set_undisturbed(false) {
        abi::enable();
    }
    result
}

/// Runs a handler of the program's: its own calls are no part of the one that it comes in, and it
/// may leave for good.
pub fn apart(handler: impl FnOnce()) {
    let thread = thread::current();
    let (is_raw, is_undisturbed) = (thread.set_raw(false), thread.set_undisturbed(false));
    if is_undisturbed {
        abi::enable();
    }
    handler();
    if is_undisturbed {
        abi::disable();
    }
    thread.set_undisturbed(is_undisturbed);
    thread.set_raw(is_raw);
}

/// Returns whether a thread was cancelled since this one entered: it may be this one.
pub fn is_suspected() -> bool {
    let asked = ASKED.load(Acquire);
    asked != 0 && asked != thread::current().cancellations()
}

/// Sets the function that is called when the program requests its first cancellation, because
/// sleeping threads do not expect one.
pub fn at_first(run: fn()) {
    _ = AT_FIRST.set(run);
}

/// Announces the program's first cancellation: threads that sleep in a call leave it, and are not
/// cancelled inside calls from then on. Returns true if it is the first.
fn begin() -> bool {
    let is_first = ASKED.compare_exchange(0, 1, AcqRel, Relaxed).is_ok();
    if is_first && let Some(run) = AT_FIRST.get() {
        run();
    }
    is_first
}

fn count() {
    ASKED.fetch_add(1, Release);
}
