//! State of an engine that is away: its instance was killed, stopped or has not started yet.
//! Commands for it wait until there is one again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use slipstack_channel::AttachError;

use crate::process::report::Reason;

/// Interval at which waiting threads ask for the engine while it is away.
const ASK_NS: u64 = 100_000_000;
/// As [`ASK_NS`], where all slots are taken: a server may have hundreds of workers more than there
/// are.
const ASK_FOR_SLOT_NS: u64 = 1_000_000_000;

/// Whether the engine is away.
#[derive(Debug, Default)]
pub(crate) struct Absence {
    is_now: AtomicBool,
    /// Set once the engine has been away or an exec has failed: threads that sleep since then may
    /// wait for an intent.
    has_been: AtomicBool,
    /// The time before which no thread asks again.
    ask_next_ns: AtomicU64,
}

impl Absence {
    /// Notes that threads which sleep now may wait for sockets without an engine.
    pub(crate) fn note(&self) {
        self.has_been.store(true, Ordering::Release);
    }

    pub(crate) fn begin(&self) {
        self.note();
        self.is_now.store(true, Ordering::Release);
    }

    pub(crate) fn end(&self) {
        self.is_now.store(false, Ordering::Release);
    }

    /// Records that asking for an engine failed. An instance that took long to fail (stopped, or
    /// not yet working) is not asked again for as long, because the asking thread waits for nothing
    /// else meanwhile.
    pub(crate) fn on_trouble(&self, error: &AttachError, begun_ns: u64, now_ns: u64) {
        let least = match error.why {
            Reason::NoSlot => ASK_FOR_SLOT_NS,
            _ => ASK_NS,
        };
        let pause_ns = least.max(now_ns.saturating_sub(begun_ns));
        self.ask_next_ns
            .store(now_ns.saturating_add(pause_ns), Ordering::Relaxed);
        match error.may_pass {
            true => self.begin(),
            false => self.end(),
        }
    }

    pub(crate) fn has_been(&self) -> bool {
        self.has_been.load(Ordering::Relaxed)
    }

    pub(crate) fn is_now(&self) -> bool {
        self.is_now.load(Ordering::Acquire)
    }

    /// Returns whether this thread may ask for an engine. One of several threads does.
    pub(crate) fn may_ask(&self, now_ns: u64) -> bool {
        if !self.is_now() {
            return true;
        }
        let next = self.ask_next_ns.load(Ordering::Relaxed);
        let order = Ordering::Relaxed;
        now_ns >= next
            && self
                .ask_next_ns
                .compare_exchange(next, now_ns.saturating_add(ASK_NS), order, order)
                .is_ok()
    }

    /// Returns the time after which a sleeping thread wakes up to ask.
    pub(crate) fn sleep_ns(&self) -> Option<u64> {
        self.is_now().then_some(ASK_NS)
    }
}
