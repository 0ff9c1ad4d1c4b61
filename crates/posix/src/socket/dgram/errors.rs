//! Errors of a datagram socket that arrived from the network.

use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slipstack_channel::{Returned, SockId};

use crate::attachment::Attachment;
use crate::errno::Errno;
use crate::socket::Dgram;

impl Dgram {
    /// The attachment, if errors that come by it can be this socket's.
    pub(crate) fn hears_errors_of(&self) -> Option<Arc<Attachment>> {
        if !self.wants_returned.load(Ordering::Relaxed) && self.remote.lock().is_none() {
            return None;
        }
        self.part().map(|(attachment, _)| attachment)
    }

    /// The socket's error, once.
    pub(crate) fn take_error(&self) -> Option<Errno> {
        match self.part() {
            Some((attachment, sock)) => self.take_error_of(&attachment, sock),
            None => self.take_next_error(),
        }
    }

    pub(super) fn take_error_without_part(&self) -> Option<Errno> {
        self.take_refusal().or_else(|| self.take_next_error())
    }

    fn take_next_error(&self) -> Option<Errno> {
        let next = self.next_error.swap(0, Ordering::AcqRel);
        Some(Errno(next)).filter(|error| error.0 != 0)
    }

    pub(super) fn take_error_of(&self, attachment: &Attachment, sock: SockId) -> Option<Errno> {
        let next = self.take_next_error();
        // An error that has arrived since takes its place.
        attachment
            .program
            .take_error(sock)
            .map(Errno::from)
            .or(next)
    }

    /// Keeps an error that a call has met and not reported for the next one.
    pub(crate) fn keep_error(&self, error: Errno) {
        self.next_error.store(error.0, Ordering::Release);
    }

    pub(super) fn has_next_error(&self) -> bool {
        self.next_error.load(Ordering::Acquire) != 0
    }

    /// Takes the first error of the queue. The next one becomes the socket's error if the network
    /// has sent it, as in sock_dequeue_err_skb().
    pub(crate) fn take_returned(&self, bufs: &mut [IoSliceMut<'_>]) -> Option<(Returned, usize)> {
        let (attachment, sock) = self.part()?;
        let taken = attachment.program.take_returned(sock, bufs)?;
        let next = attachment.program.next_returned(sock);
        let next = next.filter(|next| !next.is_local());
        if next.is_some() || !taken.0.is_local() {
            attachment.program.take_error(sock);
            let next = next.map_or(0, |next| Errno::from(next.reason).0);
            self.next_error.store(next, Ordering::Release);
        }
        Some(taken)
    }

    /// Empties the error queue; the socket's error stays.
    pub(crate) fn forget_returned(&self) {
        if let Some((attachment, sock)) = self.part() {
            while attachment.program.take_returned(sock, &mut []).is_some() {}
        }
    }

    /// Returns the error that the next call will return.
    pub(crate) fn peek_error(&self) -> Option<Errno> {
        match self.next_error.load(Ordering::Acquire) {
            0 => self.part().and_then(|(attachment, sock)| {
                attachment.program.peek_error(sock).map(Errno::from)
            }),
            error => Some(Errno(error)),
        }
    }
}
