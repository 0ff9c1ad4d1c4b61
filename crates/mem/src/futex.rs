//! Sleeping on a word of shared memory.

use core::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;

/// Reason why [`futex_wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// Woken, or the word no longer held the expected value: look again.
    Woken,
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

/// Sleeps while `word` holds `expected`, at most `timeout_ns`. Works across processes.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) -> WaitOutcome {
    let timeout = timeout_ns.map(|ns| Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    });
    match futex::wait(word, futex::Flags::empty(), expected, timeout.as_ref()) {
        Err(Errno::TIMEDOUT) => WaitOutcome::TimedOut,
        Err(Errno::INTR) => WaitOutcome::Interrupted,
        Ok(()) | Err(_) => WaitOutcome::Woken,
    }
}

/// Wakes up to `count` sleepers.
pub fn futex_wake(word: &AtomicU32, count: u32) {
    let _ = futex::wake(word, futex::Flags::empty(), count);
}
