//! A stream's urgent data: Linux's tcp_recv_urg() and its effect on poll.

use std::sync::atomic::Ordering;

use slipstack_channel::Urgent;

use crate::errno::Errno;
use crate::socket::moved::ConnectionPlace;
use crate::socket::stream::{SHUT_READ, Stream, StreamError};

impl Stream {
    /// MSG_OOB. `None`: no byte, and the end of the stream.
    pub(crate) fn recv_urgent(&self, is_peek: bool) -> Result<Option<u8>, StreamError> {
        let here = self.here();
        let (program, sock) = (here.program(), here.sock());
        let failed = |errno| Err(StreamError::Errno(errno));
        if program.is_urgent_inline(sock) {
            return failed(Errno::EINVAL);
        }
        let found = if is_peek {
            program.urgent(sock)
        } else {
            program.take_urgent(sock)
        };
        match found {
            Urgent::Nothing => failed(Errno::EINVAL),
            Urgent::Here(byte) => Ok(Some(byte)),
            Urgent::Awaited if self.seen().is_closed() || self.has_shut(SHUT_READ) => Ok(None),
            Urgent::Awaited => failed(Errno::EAGAIN),
        }
    }

    /// The urgent byte waits to be taken.
    #[inline]
    pub(super) fn has_urgent(&self, here: ConnectionPlace<'_>) -> bool {
        let (program, sock) = (here.program(), here.sock());
        !program.urgent_word(sock).is_none() && matches!(program.urgent(sock), Urgent::Here(_))
    }

    /// SIOCATMARK.
    pub(crate) fn is_at_mark(&self) -> bool {
        let here = self.here();
        here.program().is_at_mark(here.sock())
    }

    /// Returns whether a peek at `len` bytes ends at the mark: no more of them will come.
    pub(crate) fn ends_at_mark(&self, len: usize) -> bool {
        let here = self.here();
        here.program().ends_at_mark(here.sock(), len)
    }

    /// SO_OOBINLINE.
    pub(crate) fn set_urgent_inline(&self, on: bool) {
        let here = self.here();
        here.program().set_urgent_inline(here.sock(), on);
    }

    /// Something about the mark that no watcher knows.
    #[inline]
    pub(super) fn is_urgent_news(&self, here: ConnectionPlace<'_>) -> bool {
        let word = here.program().urgent_word(here.sock());
        !word.is_none() && self.told_urgent.swap(word.bits(), Ordering::AcqRel) != word.bits()
    }

    /// F_SETOWN.
    pub(crate) fn set_owned(&self, on: bool) {
        let here = self.here();
        here.program().set_owned(here.sock(), on);
    }

    pub(crate) fn unsignalled_mark(&self) -> Option<u64> {
        let here = self.here();
        here.program().unsignalled_mark(here.sock())
    }

    pub(crate) fn note_signalled(&self, mark: u64) {
        let here = self.here();
        here.program().note_signalled(here.sock(), mark);
    }
}
