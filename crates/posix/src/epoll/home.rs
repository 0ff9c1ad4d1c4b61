//! The home of a set: the engine that the threads waiting on it drive.

use std::sync::atomic::{AtomicU32, Ordering};

/// Values of [`Home`] that are no engine's number.
pub(crate) const UNSETTLED: u32 = 0;
pub(crate) const FIRST: u32 = 1;

/// Bit of a home that may become another one.
const OPEN: u32 = 1 << 31;

/// Which engine the threads that wait on an epoll set drive.
#[derive(Debug)]
pub(crate) struct Home(AtomicU32);

impl Default for Home {
    fn default() -> Self {
        Home(AtomicU32::new(OPEN | UNSETTLED))
    }
}

impl Home {
    /// Forgets the home, in a forked child and where the engine is gone.
    pub(crate) fn forget(&self) {
        self.0.store(OPEN | UNSETTLED, Ordering::Relaxed);
    }

    pub(crate) fn is_unsettled(&self) -> bool {
        self.number() == UNSETTLED
    }

    /// Returns whether the next waits look for an engine: there is no home, or a temporary one.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) & OPEN != 0
    }

    pub(crate) fn number(&self) -> u32 {
        self.0.load(Ordering::Acquire) & !OPEN
    }

    pub(crate) fn settle(&self, number: u32) {
        self.0.store(number, Ordering::Release);
    }

    /// As [`Home::settle`], temporarily.
    pub(crate) fn settle_temporarily(&self, number: u32) {
        self.0.store(OPEN | number, Ordering::Release);
    }
}
