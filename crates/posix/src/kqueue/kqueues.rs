//! The kqueues of a process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use rustix::event::{EventfdFlags, eventfd};
use slipstack_mem::{Lock, PrivateFd, raised};

use crate::epoll::Set;
use crate::errno::Errno;

/// Sets that are kqueues.
#[derive(Debug, Default)]
pub(crate) struct Kqueues {
    all: Lock<Vec<Weak<Set>>>,
    is_any: AtomicBool,
    /// Rung by signals that one of them watches.
    signal_bell: OnceLock<PrivateFd>,
}

impl Kqueues {
    /// Whether there is or was one.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    pub(crate) fn add(&self, set: &Arc<Set>) {
        {
            let mut all = self.all.lock();
            all.retain(|other| other.strong_count() > 0);
            all.push(Arc::downgrade(set));
        }
        self.is_any.store(true, Ordering::Release);
    }

    /// Returns the eventfd that watched signals ring, and makes it for the first of them.
    pub(crate) fn signal_bell(&self) -> Result<&PrivateFd, Errno> {
        if let Some(bell) = self.signal_bell.get() {
            return Ok(bell);
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fresh = raised(eventfd(0, flags)?);
        Ok(self.signal_bell.get_or_init(|| fresh))
    }

    /// Over a fork. Before the sockets and the sets, which are locked inside.
    pub(crate) fn hold(&self) {
        for set in self.living() {
            set.queue.get().inspect(|queue| queue.hold());
        }
        self.all.hold();
    }

    pub(crate) fn release(&self) {
        self.all.release();
        for set in self.living() {
            set.queue.get().inspect(|queue| queue.release());
        }
    }

    fn living(&self) -> Vec<Arc<Set>> {
        let all = self.all.lock();
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// A number is closed, or becomes another thing's: its notes go.
    pub(crate) fn forget_number(&self, fd: i32) {
        if !self.is_any() {
            return;
        }
        for set in self.living() {
            if let Some(queue) = set.queue.get() {
                let mut inner = queue.inner.lock();
                inner.members.remove(&fd);
                inner.forget_file(fd);
            }
        }
    }
}
