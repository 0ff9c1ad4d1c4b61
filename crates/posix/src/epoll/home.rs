//! Which engine the threads that wait on a set drive.

use std::sync::atomic::{AtomicU32, Ordering};

/// Values of [`Home`] that are no engine's number.
pub(crate) const UNSETTLED: u32 = 0;
pub(crate) const FIRST: u32 = 1;

/// Which engine the threads that wait on an epoll set drive.
#[derive(Debug, Default)]
pub(crate) struct Home(AtomicU32);

impl Home {
    /// In a forked child, and where the engine is gone.
    pub(crate) fn forget(&self) {
        self.0.store(UNSETTLED, Ordering::Relaxed);
    }

    pub(crate) fn is_unsettled(&self) -> bool {
        self.number() == UNSETTLED
    }

    pub(crate) fn number(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn settle(&self, number: u32) {
        self.0.store(number, Ordering::Release);
    }
}
