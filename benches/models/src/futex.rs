//! A futex under loom: a waiting thread yields to the others and checks again.

use crate::sync::{AtomicU32, Ordering};

pub fn futex_wait(word: &AtomicU32, expected: u32, _timeout_ns: Option<u64>) {
    if word.load(Ordering::Relaxed) == expected {
        loom::thread::yield_now();
    }
}

pub fn futex_wake(_word: &AtomicU32, _count: u32) {}
