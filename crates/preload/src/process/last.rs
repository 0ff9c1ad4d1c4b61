//! The end of a process whose threads have all ended.
//!
//! libc ends a process with its last thread, and counts ours. As long as the first thread lives
//! they do not matter: its return from `main` ends the process. Once it has ended by itself
//! (`pthread_exit`, a cancellation) a thread of ours checks periodically whether any other threads
//! are left. A filter of system calls may end it without a word (SECCOMP_RET_KILL_THREAD): if
//! threads of ours stay beside it, one checks from then on whether it is there.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use core::time::Duration;
use std::fs;

use rustix::process::Signal;
use slipstack_posix::{own_threads, spawn_quiet};

use super::sys;
use crate::signals;
use crate::thread::InCall;

/// The first thread has ended by itself.
static HAS_LEFT: AtomicBool = AtomicBool::new(false);
/// A thread checks for one that a filter has ended.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Time after the last thread at which the process may end.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Interval of checks once the process has gone on for a while without its first thread.
const LOOK_RARELY: Duration = Duration::from_millis(200);
/// Looks until then.
const OFTEN: u32 = 100;
/// Interval of looks whether a thread is one of ours that is just starting, and how long that
/// may take.
const LOOKS: u32 = 5;
const STARTING: Duration = Duration::from_millis(1);

/// The calling thread is the process's first one, or the only one of a forked child.
pub fn watch_this_thread() {
    sys::at_end_of_this_thread(on_end);
}

/// Called before a filter of system calls is set for the calling thread alone: if that thread is
/// ended by it and none of the program's is left, the process ends as on the kernel. Call inside a
/// guard.
pub fn watch_under_filter() {
    if own_threads().next().is_none() || IS_WATCHED.swap(true, Relaxed) {
        return;
    }
    let _ = spawn_quiet("slipstack-last", || {
        while has_others() {
            std::thread::sleep(LOOK_RARELY);
        }
        if !HAS_LEFT.load(Relaxed) {
            signals::end_process(Signal::SYS);
        }
    });
}

/// The child of a fork has none of its parent's threads.
pub(super) fn begin_again() {
    HAS_LEFT.store(false, Relaxed);
    IS_WATCHED.store(false, Relaxed);
}

extern "C" fn on_end() {
    HAS_LEFT.store(true, Relaxed);
    let _ = spawn_quiet("slipstack-last", || {
        let mut looks = 0;
        while has_others() {
            looks += 1;
            std::thread::sleep(if looks < OFTEN {
                LOOK_EVERY
            } else {
                LOOK_RARELY
            });
        }
        // As libc's last thread does: from here on the program's own code runs.
        InCall::end_long();
        std::process::exit(0);
    });
}

/// Whether the process has threads of the program's beside the calling one. A thread of ours that
/// has been started a moment ago may not be known as such yet.
pub(super) fn has_other_threads() -> bool {
    let are_there = || {
        let Ok(tasks) = fs::read_dir("/proc/self/task") else {
            return false;
        };
        let ids = tasks
            .flatten()
            .filter_map(|task| task.file_name().to_str()?.parse().ok());
        let theirs = ids.filter(|id: &u32| own_threads().all(|own| own != *id));
        theirs.count() > 1
    };
    (0..LOOKS).all(|look| {
        if look > 0 {
            std::thread::sleep(STARTING);
        }
        are_there()
    })
}

/// Whether a thread of the program's runs.
fn has_others() -> bool {
    let first = std::process::id();
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return true;
    };
    let ids = tasks
        .flatten()
        .filter_map(|task| task.file_name().to_str()?.parse().ok());
    let others = ids.filter(|id: &u32| own_threads().all(|own| own != *id));
    others.into_iter().any(|id| id != first || !has_ended(id))
}

/// Returns whether the first thread only waits for the end of the others.
fn has_ended(first: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{first}/stat")).unwrap_or_default();
    // The state follows the name, which may contain anything.
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('Z'))
}
