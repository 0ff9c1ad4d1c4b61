//! TCP_NOTSENT_LOWAT: bytes that have not been sent count, beside the room in the send buffer.

use std::io::IoSlice;
use std::sync::atomic::Ordering;

use crate::socket::moved::ConnectionPlace;
use crate::socket::{Push, Stream, StreamError};

/// Smallest number of bytes taken, if any: tcp_sendmsg() checks when it begins a new buffer.
const TAKEN_MIN: usize = 16 << 10;

impl Stream {
    /// `connect` has come back before the end of its attempt.
    pub(crate) fn leave_unanswered(&self) {
        self.is_unanswered.store(true, Ordering::Relaxed);
    }

    /// Returns whether the next `connect` has to return the result of the last attempt.
    pub(crate) fn take_unanswered(&self) -> bool {
        self.is_unanswered.swap(false, Ordering::Relaxed)
    }

    /// Consumes bytes that were peeked at.
    pub(crate) fn discard(&self, count: usize) {
        let here = self.here();
        here.program().discard(here.sock(), count);
    }

    /// The next room is news.
    pub(crate) fn want_space(&self) {
        self.wants_space.store(true, Ordering::SeqCst);
    }

    pub(crate) fn room(&self) -> usize {
        let here = self.here();
        here.program().tx_space(here.sock())
    }

    /// Bytes that were sent and are not acknowledged.
    pub(crate) fn queued(&self) -> usize {
        let here = self.here();
        here.program().tx_unacked(here.sock())
    }

    /// As [`Self::queued`], for a caller that waits until there are none: the watchers are notified
    /// of each decrease.
    pub(crate) fn await_acked(&self) -> usize {
        self.wants_space.store(true, Ordering::SeqCst);
        let here = self.here();
        here.program().await_acked(here.sock())
    }

    /// As [`Self::await_acked`], without an event for a thread that waits for room.
    pub(crate) fn watch_acked(&self) -> usize {
        let here = self.here();
        here.program().await_acked(here.sock())
    }

    pub(crate) fn set_unsent_low(&self, bytes: u32) {
        self.unsent_low.store(bytes, Ordering::Relaxed);
    }

    /// __sk_stream_is_writeable(). If it is not, an event comes when it is.
    pub(super) fn is_writable(&self, here: ConnectionPlace<'_>) -> bool {
        here.program().is_writable(here.sock()) && self.is_low(here)
    }

    /// tcp_stream_memory_free() for a waiting thread: half of the limit is free.
    #[inline]
    fn is_low(&self, here: ConnectionPlace<'_>) -> bool {
        match self.unsent_low.load(Ordering::Relaxed) {
            0 => true,
            low => is_below(here, low),
        }
    }

    /// As [`Stream::enqueue`], of an open connection.
    #[cold]
    pub(super) fn send_low(
        &self,
        here: ConnectionPlace<'_>,
        bufs: &[IoSlice<'_>],
        push: Push,
    ) -> Result<usize, StreamError> {
        let (program, sock) = (here.program(), here.sock());
        let low = self.unsent_low.load(Ordering::Relaxed);
        let room = || match (low as usize).saturating_sub(program.tx_unsent(sock)) {
            0 => 0,
            room => room.max(TAKEN_MIN),
        };
        let asked: usize = bufs.iter().map(|buf| buf.len()).sum();
        let mut taken = room().min(asked);
        if taken < asked {
            self.wants_space.store(true, Ordering::SeqCst);
            program.want_sent(sock, low);
            taken = room().min(asked);
        }
        let count = self.put(here, &front(bufs, taken), push);
        if count < asked {
            self.wants_space.store(true, Ordering::SeqCst);
        }
        if count > 0 {
            program.tell_sent(sock);
        }
        match count {
            0 if asked > 0 => Err(StreamError::Wait),
            count => Ok(count),
        }
    }
}

#[cold]
fn is_below(here: ConnectionPlace<'_>, low: u32) -> bool {
    let (program, sock) = (here.program(), here.sock());
    let is_below = || program.tx_unsent(sock) as u64 * 2 < u64::from(low);
    if is_below() {
        return true;
    }
    program.want_sent(sock, low);
    is_below()
}

/// The first `len` bytes.
fn front<'a>(bufs: &'a [IoSlice<'_>], mut len: usize) -> Vec<IoSlice<'a>> {
    let mut front = Vec::with_capacity(bufs.len());
    for buf in bufs {
        let count = buf.len().min(len);
        front.push(IoSlice::new(&buf[..count]));
        len -= count;
        if len == 0 {
            break;
        }
    }
    front
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_of_several_buffers_may_end_within_a_buffer() {
        let bufs = [
            IoSlice::new(b"abc"),
            IoSlice::new(b""),
            IoSlice::new(b"defg"),
        ];
        for (len, expected) in [(0, ""), (2, "ab"), (3, "abc"), (5, "abcde"), (7, "abcdefg")] {
            let front = front(&bufs, len);
            let bytes: Vec<u8> = front.iter().flat_map(|buf| buf.to_vec()).collect();
            assert_eq!(bytes, expected.as_bytes(), "{len}");
        }
    }
}
