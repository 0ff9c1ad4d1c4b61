//! Processors of threads that drive an engine (`--cores` with several): each such thread has one.
//!
//! The kernel passes a thread's processors on to its threads and children, which have no engine:
//! a thread gives its own up while it starts one, and takes it again. A program that has chosen
//! processors itself keeps them.

pub mod abi;

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::thread;

/// The processors that the program started with.
static INITIAL: OnceLock<CpuSet> = OnceLock::new();
/// Processors that threads of this process have had, as bits.
static TAKEN: [AtomicU64; CpuSet::MAX_CPU / 64] =
    [const { AtomicU64::new(0) }; CpuSet::MAX_CPU / 64];

/// Records the processors of a program that is to use several, before it can change them.
pub fn keep_initial() {
    if let Ok(set) = sched_getaffinity(None) {
        _ = INITIAL.set(set);
    }
}

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}

/// Binds the calling thread, which has an engine of its own now, to a processor. One that the
/// program has bound elsewhere stays there.
pub fn take(core: usize) {
    let (Some(initial), Ok(set)) = (INITIAL.get(), sched_getaffinity(None)) else {
        return;
    };
    let thread = thread::current();
    let is_ours = set == *initial || thread.core().is_some_and(|own| set == only(own));
    if is_ours && initial.is_set(core) && sched_setaffinity(None, &only(core)).is_ok() {
        TAKEN[core / 64].fetch_or(1 << (core % 64), Relaxed);
        thread.set_core(Some(core));
    }
}

/// Frees the calling thread before it starts a thread, a process or another program.
#[inline]
pub fn leave() {
    if let Some(core) = thread::current().core() {
        leave_for_now(core);
    }
}

#[cold]
fn leave_for_now(core: usize) {
    let is_bound = sched_getaffinity(None).is_ok_and(|set| set == only(core));
    match INITIAL.get() {
        Some(initial) if is_bound => _ = sched_setaffinity(None, initial),
        // The program has chosen others since.
        _ => thread::current().set_core(None),
    }
}

/// Ends [`leave`] where it was called.
#[inline]
pub fn come_back() {
    if let Some(core) = thread::current().core() {
        let _ = sched_setaffinity(None, &only(core));
    }
}

/// Ends [`leave`] in a forked child.
pub fn forget() {
    thread::current().set_core(None);
}

/// Frees a new thread of our own, which may have been started by a bound one.
pub fn leave_inherited() {
    let (Some(initial), Ok(set)) = (INITIAL.get(), sched_getaffinity(None)) else {
        return;
    };
    let is_taken = |core: &usize| TAKEN[core / 64].load(Relaxed) & 1 << (core % 64) != 0;
    let mut taken = (0..CpuSet::MAX_CPU).filter(is_taken);
    if taken.any(|core| set == only(core)) {
        let _ = sched_setaffinity(None, initial);
    }
}
