//! Datagrams that go to other processes which have the socket, while this one leaves some unread.

use std::sync::atomic::{Ordering, fence};

use super::Dgram;

impl Dgram {
    /// Notes whether datagrams go to others. The check for waiting threads comes after this.
    pub(crate) fn note_yielding(&self) {
        if let Some((attachment, sock)) = self.part()
            && attachment.seen(sock).is_yielding()
        {
            self.is_yielding.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }

    pub(crate) fn is_yielding(&self) -> bool {
        self.is_yielding.load(Ordering::SeqCst)
    }

    /// Takes datagrams again, because a thread waits for one.
    pub(crate) fn come_back(&self) {
        if self.is_yielding()
            && self.is_yielding.swap(false, Ordering::AcqRel)
            && let Some((attachment, sock)) = self.part()
        {
            attachment.resume(sock);
        }
    }
}
