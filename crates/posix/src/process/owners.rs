//! Owners of sockets (F_SETOWN): they get SIGURG when a peer announces urgent data, and SIGIO
//! (O_ASYNC).
//!
//! On the kernel the signal arrives whatever the program does. Here a thread has to wait for the
//! events: it starts with the first owner, waits on the sockets as any thread of the program would,
//! and ends with the last owner. Programs without owners have no such thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use slipstack_mem::Lock;

use crate::socket::description::Description;

/// The sockets that have an owner.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    owned: Lock<Vec<Weak<Description>>>,
    /// Changes with the list.
    pub(crate) version: AtomicU64,
    pub(crate) is_served: AtomicBool,
}

impl Owners {
    pub(crate) fn add(&self, socket: &Arc<Description>) {
        let mut owned = self.owned.lock();
        owned.retain(|it| it.strong_count() > 0 && !std::ptr::eq(it.as_ptr(), &**socket));
        owned.push(Arc::downgrade(socket));
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn living(&self) -> Vec<Arc<Description>> {
        let mut owned = self.owned.lock();
        let is_owned = |it: &Weak<Description>| {
            it.upgrade()
                .is_some_and(|socket| !socket.is_over() && socket.cold.lock().owner.is_any())
        };
        owned.retain(is_owned);
        owned.iter().filter_map(Weak::upgrade).collect()
    }

    /// Locks over a fork, before any socket, because code that holds the list locks its sockets.
    pub(crate) fn hold(&self) {
        self.owned.hold();
    }

    pub(crate) fn release(&self) {
        self.owned.release();
    }

    /// Forgets the signalling thread in a forked child, which has none.
    pub(crate) fn reset(&self) {
        self.owned.lock().clear();
        self.is_served.store(false, Ordering::Release);
    }
}

impl Description {
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
}
