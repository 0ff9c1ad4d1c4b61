//! A thread that sleeps in a call, and its wake-up.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::EventfdFlags;
use slipstack_mem::{Lock, PrivateFd, raised};

const AWAKE: u32 = 0;
/// Bits: it sleeps or is about to; it was told to check again. Both: the doorbell was rung.
const ASLEEP: u32 = 1;
const NOTIFIED: u32 = 2;

/// One waiting thread. It sleeps in `ppoll` with `doorbell` among the descriptors.
#[derive(Debug)]
pub(crate) struct Waiter {
    state: AtomicU32,
    /// `None`: the process may have no more descriptors. Its sleeps are short then
    /// ([`BLIND_SLEEP_NS`]).
    doorbell: Option<PrivateFd>,
}

/// Longest sleep of a thread without a doorbell.
pub(crate) const BLIND_SLEEP_NS: u64 = 5_000_000;

impl Waiter {
    fn new() -> Self {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let low = rustix::event::eventfd(0, flags);
        Waiter {
            state: AtomicU32::new(AWAKE),
            doorbell: low.ok().map(raised),
        }
    }

    /// -1 = none, which `ppoll` passes over.
    pub(crate) fn doorbell(&self) -> RawFd {
        self.doorbell.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    pub(crate) fn has_doorbell(&self) -> bool {
        self.doorbell.is_some()
    }

    /// Tells the thread to look again. True if it was asleep and has been woken.
    pub(crate) fn notify(&self) -> bool {
        let was_asleep = self.tell();
        if was_asleep {
            self.ring();
        }
        was_asleep
    }

    /// The first half of [`Waiter::notify`]: true if the thread is asleep, and [`Waiter::ring`] has
    /// to follow.
    pub(crate) fn tell(&self) -> bool {
        self.state.fetch_or(NOTIFIED, Ordering::AcqRel) == ASLEEP
    }

    /// The system call of it. Not under a lock that the woken thread will want.
    pub(crate) fn ring(&self) {
        if let Some(doorbell) = &self.doorbell {
            let _ = rustix::io::write(doorbell, &1u64.to_ne_bytes());
        }
    }

    /// About to sleep; false if there was a notification since the last look.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.state
            .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Awake and looking: notifications before this count as seen.
    pub(crate) fn wake_up(&self, rang: bool) {
        let before = self.state.swap(AWAKE, Ordering::AcqRel);
        // A notifier that saw us asleep writes or has written; one that did not has no need to.
        if (rang || before == ASLEEP | NOTIFIED)
            && let Some(doorbell) = &self.doorbell
        {
            let _ = rustix::io::read(doorbell, &mut [0u8; 8]);
        }
    }
}

/// Threads with events, whose doorbells are rung when this is dropped: after the locks are released
/// under which they were found.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    first: Option<Arc<Waiter>>,
    others: Vec<Arc<Waiter>>,
}

impl Rings {
    /// Tells it; false if it was not asleep.
    pub(crate) fn notify(&mut self, waiter: &Arc<Waiter>) -> bool {
        let was_asleep = waiter.tell();
        if was_asleep {
            match self.first {
                None => self.first = Some(Arc::clone(waiter)),
                Some(_) => self.others.push(Arc::clone(waiter)),
            }
        }
        was_asleep
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        for waiter in self.first.iter().chain(&self.others) {
            waiter.ring();
        }
    }
}

/// Waiters that no thread uses now; each holds a descriptor, so they are used again.
#[derive(Debug, Default)]
pub(crate) struct WaiterPool {
    idle: Lock<Vec<Arc<Waiter>>>,
}

/// Idle waiters that are kept.
const IDLE_MAX: usize = 64;

impl WaiterPool {
    pub(crate) fn take(&self) -> Arc<Waiter> {
        match self.idle.lock().pop() {
            Some(waiter) => waiter,
            None => Arc::new(Waiter::new()),
        }
    }

    /// Gives a waiter back that no watch list names any more.
    pub(crate) fn give(&self, waiter: Arc<Waiter>) {
        // A notifier that writes after this look wakes the next user once for nothing, no more.
        waiter.wake_up(false);
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX && waiter.has_doorbell() {
            idle.push(waiter);
        }
    }

    pub(crate) fn hold(&self) {
        self.idle.hold();
    }

    pub(crate) fn release(&self) {
        self.idle.release();
    }

    /// Closes the doorbells in a forked child, because they are shared with the parent.
    pub(crate) fn clear(&self) {
        self.idle.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_before_sleep_prevents_it() {
        let waiter = Waiter::new();
        assert!(!waiter.notify());
        assert!(!waiter.fall_asleep());
        waiter.wake_up(false);
        assert!(waiter.fall_asleep());
        assert!(waiter.notify());
        waiter.wake_up(true);
        assert!(waiter.fall_asleep());
    }
}
