//! Signals that a kqueue watches: counted by a handler in front of the program's own.

mod sys;

use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use slipstack_posix::Errno;

const SIGNALS: usize = 65;

/// Number of times that each has come since it is watched.
static COUNTS: [AtomicU64; SIGNALS] = [const { AtomicU64::new(0) }; SIGNALS];
/// The program's handler of each, which ours calls.
static BEHIND: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(libc::SIG_DFL) }; SIGNALS];
/// The doorbell that each signal rings; -1: none.
static BELL: AtomicI32 = AtomicI32::new(-1);

/// Begins to count a signal.
pub fn watch(signal: i32, bell: i32) -> Result<(), Errno> {
    let index = usize::try_from(signal).map_err(|_| Errno::EINVAL)?;
    let behind = BEHIND.get(index).ok_or(Errno::EINVAL)?;
    BELL.store(bell, Ordering::Release);
    if let Some(before) = sys::stand_in_front(signal)? {
        behind.store(before, Ordering::Release);
    }
    Ok(())
}

pub fn seen(signal: i32) -> u64 {
    let index = usize::try_from(signal).unwrap_or(SIGNALS);
    let count = COUNTS.get(index);
    count.map_or(0, |count| count.load(Ordering::Acquire))
}

/// Counts a signal; returns the program's own handler.
fn on_signal(signal: i32) -> usize {
    let index = usize::try_from(signal).unwrap_or(0);
    if let Some(count) = COUNTS.get(index) {
        count.fetch_add(1, Ordering::AcqRel);
    }
    sys::ring(BELL.load(Ordering::Acquire));
    let behind = BEHIND.get(index);
    behind.map_or(libc::SIG_IGN, |behind| behind.load(Ordering::Acquire))
}
