//! Threads of ours that have been started and have not begun.
//!
//! glibc lists a thread as soon as it is started, and a later change of users (setuid) waits until
//! it has begun. In a child that was made past glibc's `fork` it never does. And a filter of system
//! calls that is for all threads (seccomp) need not allow what a thread does as it begins.

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
/// As [`STARTED`], of those that have not done all that a thread does as it begins.
static UNSETTLED: AtomicU64 = AtomicU64::new(0);

fn count_of(word: u64, process: u32) -> u64 {
    match word >> PROCESS_SHIFT == u64::from(process) {
        true => word & COUNT,
        false => 0,
    }
}

/// The word after a change of the count of `process`.
fn changed(word: u64, process: u32, change: impl Fn(u64) -> u64) -> u64 {
    u64::from(process) << PROCESS_SHIFT | change(count_of(word, process))
}

fn change(word: &AtomicU64, change: impl Fn(u64) -> u64) {
    let process = std::process::id();
    let (made, else_read) = (Ordering::AcqRel, Ordering::Acquire);
    let next = |word| Some(changed(word, process, &change));
    let _ = word.fetch_update(made, else_read, next);
}

/// A thread is being started.
pub(super) fn note_start() {
    for word in [&STARTED, &UNSETTLED] {
        change(word, |count| count + 1);
    }
}

/// A thread was not started after all.
pub(super) fn note_failed() {
    note_begun();
    note_settled();
}

/// A thread has begun and is listed. Nothing that it has done before waits for another one.
pub(super) fn note_begun() {
    change(&STARTED, |count| count.saturating_sub(1));
}

/// A thread runs what it was started for.
pub(super) fn note_settled() {
    change(&UNSETTLED, |count| count.saturating_sub(1));
}

/// Waits until all threads that [`spawn_quiet`](super::spawn_quiet) has started have begun, and are
/// listed by [`own`](super::own): before a fork of which glibc does not know, and before all of
/// them are told something.
pub fn await_begun() {
    await_none(&STARTED);
}

/// Waits until all these threads run what they were started for: before a filter for all threads.
pub fn await_settled() {
    await_none(&UNSETTLED);
}

fn await_none(word: &AtomicU64) {
    let process = std::process::id();
    for _ in 0..LOOKS {
        if count_of(word.load(Ordering::Acquire), process) == 0 {
            return;
        }
        // No point of cancellation, as a call of libc would be.
        let _ = rustix::thread::nanosleep(&PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_have_been_started_count_until_they_have_begun() {
        let two = [1, 1]
            .iter()
            .fold(0, |word, more| changed(word, 7, |count| count + more));
        assert_eq!(count_of(two, 7), 2);
        let none = changed(changed(two, 7, |count| count - 1), 7, |count| count - 1);
        assert_eq!(count_of(none, 7), 0);
        assert_eq!(
            count_of(changed(two, 8, |count| count + 1), 8),
            1,
            "a child"
        );
    }

    #[test]
    fn threads_of_a_parent_do_not_count() {
        let word = 7 << PROCESS_SHIFT | 2;
        assert_eq!(count_of(word, 7), 2);
        assert_eq!(count_of(word, 8), 0);
    }
}
