//! A lock that works at any time: without libc, without thread-locals, and held over a fork.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Release};

/// Taken inside an open guard only, so that no handler finds its own thread holding it.
pub struct Lock {
    is_taken: AtomicU32,
}

/// Spins before the core is yielded to another thread.
const SPINS_MAX: u32 = 100;

impl Lock {
    pub const fn new() -> Lock {
        Lock {
            is_taken: AtomicU32::new(0),
        }
    }

    pub fn take(&self) {
        let mut spins = 0;
        while self
            .is_taken
            .compare_exchange_weak(0, 1, Acquire, Acquire)
            .is_err()
        {
            spins += 1;
            if spins % SPINS_MAX == 0 {
                rustix::thread::sched_yield();
            }
            core::hint::spin_loop();
        }
    }

    pub fn release(&self) {
        self.is_taken.store(0, Release);
    }

    pub fn with<T>(&self, work: impl FnOnce() -> T) -> T {
        self.take();
        let result = work();
        self.release();
        result
    }
}
