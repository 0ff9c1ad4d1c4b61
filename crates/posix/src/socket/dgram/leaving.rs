//! The end of a datagram socket's part on the stack, while the socket goes on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use slipstack_channel::CloseMode;

use crate::attachment::Attachment;
use crate::errno::Errno;
use crate::socket::Dgram;

impl Dgram {
    /// Detaches the socket from an engine that is gone; a wait that goes on, or the next use, finds
    /// another one. A connected socket reports this once as an error, because a datagram it waits
    /// for may have been lost.
    pub(crate) fn forget_stack(&self, dead: &Arc<Attachment>) {
        let is_connected = self.remote.lock().is_some();
        let mut stack = self.stack.lock();
        if stack
            .as_ref()
            .is_none_or(|(attachment, _)| !Arc::ptr_eq(attachment, dead))
        {
            return;
        }
        *stack = None;
        self.forget_part();
        // A socket left over by a failed exec goes on without an error.
        if is_connected && !dead.is_left() {
            self.next_error.store(Errno::ENETDOWN.0, Ordering::Release);
        }
    }

    fn forget_part(&self) {
        self.is_realized.store(false, Ordering::Release);
        // The next part's ring begins at 0.
        self.filters.reset();
        self.found_empty.store(0, Ordering::Relaxed);
        self.is_peeked.store(false, Ordering::Relaxed);
    }

    /// Leaves the part on the stack, for a new one with another address. Its error stays.
    pub(crate) fn leave_stack(&self) {
        let Some((attachment, sock)) = self.stack.lock().take() else {
            return;
        };
        self.forget_part();
        self.is_refused.store(false, Ordering::Relaxed);
        if let Some(error) = self.take_error_of(&attachment, sock) {
            self.keep_error(error);
        }
        attachment.close(sock, CloseMode::Orderly);
        attachment.commands();
    }
}
