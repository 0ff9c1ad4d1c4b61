//! Counters of a service, readable from other threads.

use std::sync::atomic::{AtomicU64, Ordering};

/// One figure: written by one thread alone.
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn add(&self, more: u64) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before + more, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// Counters of one engine's service.
#[derive(Debug, Default)]
pub struct Counts {
    /// Connections accepted.
    pub accepted: Tally,
    /// Connections opened by the service that were established.
    pub connected: Tally,
    /// Connections reset at once because the service had as many as it may, or did not want them.
    pub refused: Tally,
    /// Connections open now.
    pub open: Tally,
    /// Datagrams received.
    pub datagrams: Tally,
    /// Received datagrams that were passed on to workers.
    pub passed: Tally,
    /// Datagrams dropped because all workers' rings were full.
    pub ring_full: Tally,
    /// Datagrams that a handler wanted to send and that found no room.
    pub unsent: Tally,
    /// Handlers that panicked.
    pub panics: Tally,
    /// Jobs that found the pool's queue full.
    pub busy: Tally,
    /// Results of workers that arrived after their connection had ended.
    pub late_results: Tally,
}
