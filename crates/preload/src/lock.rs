//! A lock that works at any time: without libc, without thread-locals, and held over a fork.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::thread::futex;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and a thread may be asleep on the word.
const AWAITED: u32 = 2;

/// Taken inside an open guard only, so that no handler finds its own thread holding it. A thread
/// that waits sleeps by futex(2), which every filter of a program with a lock allows.
pub struct Lock {
    word: AtomicU32,
}

/// Looks before a thread goes to sleep.
const SPINS_MAX: u32 = 100;

impl Lock {
    pub const fn new() -> Lock {
        Lock {
            word: AtomicU32::new(FREE),
        }
    }

    pub fn take(&self) {
        for _ in 0..SPINS_MAX {
            let taken = self
                .word
                .compare_exchange_weak(FREE, TAKEN, Acquire, Relaxed);
            if taken.is_ok() {
                return;
            }
            core::hint::spin_loop();
        }
        while self.word.swap(AWAITED, Acquire) != FREE {
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, AWAITED, None);
        }
    }

    pub fn release(&self) {
        if self.word.swap(FREE, Release) == AWAITED {
            let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
        }
    }

    pub fn with<T>(&self, work: impl FnOnce() -> T) -> T {
        self.take();
        let result = work();
        self.release();
        result
    }
}
