//! Connections of other processes that are used here, and when they are to be requested.
//!
//! A connection is requested with a call on it once it has been used for a while. A call that waits
//! longer than that is interrupted for the request: the process may wait for ever, and the owner
//! may be killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use slipstack_mem::Lock;

use crate::socket::borrowed::Borrowed;
use crate::socket::description::{Decided, Description};

/// Connections for which waits are interrupted at most; others are requested with their next call.
const USED_MAX: usize = 64;

/// The connections of others that this process has used.
#[derive(Debug, Default)]
pub(crate) struct InUse {
    sockets: Lock<Vec<Weak<Description>>>,
    is_any: AtomicBool,
}

impl InUse {
    /// A call on the connection has been made.
    pub(crate) fn note(&self, socket: &Arc<Description>) {
        let mut sockets = self.sockets.lock();
        sockets.retain(|it| it.upgrade().is_some_and(|it| due_of(&it).is_some()));
        let is_it = |it: &Weak<Description>| std::ptr::eq(it.as_ptr(), Arc::as_ptr(socket));
        if sockets.len() < USED_MAX && !sockets.iter().any(is_it) {
            sockets.push(Arc::downgrade(socket));
        }
        self.is_any.store(!sockets.is_empty(), Ordering::Release);
    }

    /// Returns the time at which a wait of `thread` is to be interrupted.
    #[inline]
    pub(crate) fn due_ns(&self, thread: impl FnOnce() -> usize) -> Option<u64> {
        match self.is_any.load(Ordering::Acquire) {
            true => self.all_of(thread()).into_iter().map(|(_, due)| due).min(),
            false => None,
        }
    }

    /// The connections on which `thread` has made the last call, with the times at which they are
    /// to be requested.
    #[cold]
    pub(crate) fn all_of(&self, thread: usize) -> Vec<(Arc<Description>, u64)> {
        let mut sockets = self.sockets.lock();
        let mut found = Vec::new();
        sockets.retain(|it| {
            let Some(socket) = it.upgrade() else {
                return false;
            };
            let Some((it, due)) = due_of(&socket) else {
                return false;
            };
            if it.turns.is_user(thread) {
                found.push((Arc::clone(&socket), due));
            }
            true
        });
        self.is_any.store(!sockets.is_empty(), Ordering::Release);
        found
    }

    /// Forgets them in a forked child: its own are other descriptions.
    pub(crate) fn forget(&self) {
        std::mem::forget(std::mem::take(&mut *self.sockets.lock()));
        self.is_any.store(false, Ordering::Release);
    }

    pub(crate) fn hold(&self) {
        self.sockets.hold();
    }

    pub(crate) fn release(&self) {
        self.sockets.release();
    }
}

/// The time at which a connection of another process is to be requested, unless it is here or stays
/// where it is.
fn due_of(socket: &Description) -> Option<(&Borrowed, u64)> {
    match socket.decided() {
        Some(Decided::Foreign(it)) => Some((it, it.due_ns()?)),
        _ => None,
    }
}
