//! Threads of ours that have been started and have not begun.
//!
//! glibc lists a thread as soon as it is started, and a later change of users (setuid) waits until
//! it has begun. In a child that was made past glibc's `fork` it never does.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::Timespec;

/// Looks for threads that have not begun, and their distance: they may wait for a processor.
const LOOKS: u32 = 10_000;
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000,
};

const PROCESS_SHIFT: u32 = 32;
const COUNT: u64 = (1 << PROCESS_SHIFT) - 1;

/// Process, and its number of such threads. A child inherits its parent's by a fork.
static STARTED: AtomicU64 = AtomicU64::new(0);

fn count_of(word: u64, process: u32) -> u64 {
    match word >> PROCESS_SHIFT == u64::from(process) {
        true => word & COUNT,
        false => 0,
    }
}

fn change(process: u32, next: impl Fn(u64) -> u64) {
    let change = |word| {
        let count = next(count_of(word, process));
        Some(u64::from(process) << PROCESS_SHIFT | count)
    };
    let (made, else_read) = (Ordering::AcqRel, Ordering::Acquire);
    let _ = STARTED.fetch_update(made, else_read, change);
}

/// A thread is being started.
pub(super) fn note_start() {
    change(std::process::id(), |count| count + 1);
}

/// A thread has begun, or was not started.
pub(super) fn note_begun() {
    change(std::process::id(), |count| count.saturating_sub(1));
}

/// Waits until all threads that [`spawn_quiet`](super::spawn_quiet) has started have begun: before
/// a fork of which glibc does not know.
pub fn await_begun() {
    let process = std::process::id();
    for _ in 0..LOOKS {
        if count_of(STARTED.load(Ordering::Acquire), process) == 0 {
            return;
        }
        // No point of cancellation, as a call of libc would be.
        let _ = rustix::thread::nanosleep(&PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::thread::{own, spawn_quiet};

    #[test]
    fn threads_have_begun_after_a_wait_for_them() {
        let threads = (0..8).map(|_| {
            let (end, ended) = channel::<()>();
            let thread = spawn_quiet("begins", move || _ = ended.recv()).unwrap();
            (end, thread)
        });
        let threads: Vec<_> = threads.collect();
        await_begun();
        assert!(own().count() >= threads.len());
        for (end, thread) in threads {
            drop(end);
            thread.join();
        }
    }

    #[test]
    fn threads_of_a_parent_do_not_count() {
        let word = 7 << PROCESS_SHIFT | 2;
        assert_eq!(count_of(word, 7), 2);
        assert_eq!(count_of(word, 8), 0);
    }
}
