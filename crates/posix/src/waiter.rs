//! A thread that sleeps in a call, and how it is woken.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::EventfdFlags;
use slipstack_mem::{Lock, raised};

const AWAKE: u32 = 0;
/// Bits: it sleeps or is about to; somebody has told it to look again. Both: the doorbell was rung.
const ASLEEP: u32 = 1;
const NOTIFIED: u32 = 2;

/// One waiting thread. It sleeps in `ppoll` with `doorbell` among the descriptors.
#[derive(Debug)]
pub(crate) struct Waiter {
    state: AtomicU32,
    doorbell: OwnedFd,
}

impl Waiter {
    fn new() -> rustix::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let low = rustix::event::eventfd(0, flags)?;
        Ok(Waiter {
            state: AtomicU32::new(AWAKE),
            doorbell: raised(low),
        })
    }

    pub(crate) fn doorbell(&self) -> RawFd {
        self.doorbell.as_fd().as_raw_fd()
    }

    /// Tells the thread to look again. True if it was asleep and has been woken.
    pub(crate) fn notify(&self) -> bool {
        let was_asleep = self.state.fetch_or(NOTIFIED, Ordering::AcqRel) == ASLEEP;
        if was_asleep {
            let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        }
        was_asleep
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
        if rang || before == ASLEEP | NOTIFIED {
            let _ = rustix::io::read(&self.doorbell, &mut [0u8; 8]);
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
    pub(crate) fn take(&self) -> rustix::io::Result<Arc<Waiter>> {
        match self.idle.lock().pop() {
            Some(waiter) => Ok(waiter),
            None => Waiter::new().map(Arc::new),
        }
    }

    /// Gives a waiter back that no watch list names any more.
    pub(crate) fn give(&self, waiter: Arc<Waiter>) {
        // What a notifier writes after this look rings the next user once too often, no more.
        waiter.wake_up(false);
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(waiter);
        }
    }

    pub(crate) fn numbers(&self) -> Vec<RawFd> {
        self.idle
            .lock()
            .iter()
            .map(|waiter| waiter.doorbell())
            .collect()
    }

    pub(crate) fn hold(&self) {
        self.idle.hold();
    }

    pub(crate) fn release(&self) {
        self.idle.release();
    }

    /// In a forked child: the doorbells are shared with the parent, so they go.
    pub(crate) fn clear(&self) {
        self.idle.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_before_sleep_prevents_it() {
        let waiter = Waiter::new().unwrap();
        assert!(!waiter.notify());
        assert!(!waiter.fall_asleep());
        waiter.wake_up(false);
        assert!(waiter.fall_asleep());
        assert!(waiter.notify());
        waiter.wake_up(true);
        assert!(waiter.fall_asleep());
    }
}
