//! A connection's rings, as they are.

use std::io::IoSlice;
use std::sync::atomic::Ordering;

use slipstack_channel::{KeepError, SockId};
use slipstack_mem::RawSlice;

use crate::socket::{Push, Stream};

impl Stream {
    /// Sizes of the send and the receive buffer, as they are now.
    pub(crate) fn buffers(&self, sock: SockId) -> [usize; 2] {
        let program = self.program();
        [program.tx_limit(sock), program.rx_limit(sock)]
    }

    /// Puts bytes into the ring, whatever the state. Returns how many there was room for.
    pub(super) fn put(&self, sock: SockId, bufs: &[IoSlice<'_>], push: Push) -> usize {
        match push {
            Push::Now => self.program().send(sock, bufs, false),
            Push::More => self.program().send(sock, bufs, true),
            Push::Urgent => self.program().send_urgent(sock, bufs),
        }
    }

    pub(crate) fn reserve(&self, len: usize) -> [libc::iovec; 2] {
        let space = self.program().reserve(self.sock(), len);
        let found = space.map(|space| space.as_iovec());
        if found[0].iov_len + found[1].iov_len < len {
            self.wants_space.store(true, Ordering::SeqCst);
        }
        found
    }

    pub(crate) fn commit(&self, len: usize) {
        self.program().commit(self.sock(), len, false);
    }

    pub(crate) fn look_in_place(&self) -> [libc::iovec; 2] {
        self.program().peek_in_place(self.sock()).map(as_iovec)
    }

    pub(crate) fn keep_in_place(&self, most: usize) -> Result<(u64, [libc::iovec; 2]), KeepError> {
        let kept = self.program().keep(self.sock(), most)?;
        self.note_read();
        Ok((kept.at, kept.pieces.map(as_iovec)))
    }

    pub(crate) fn give_back_in_place(&self, at: u64) -> bool {
        self.program().give_segment_back(self.sock(), at)
    }

    pub(crate) fn consume_in_place(&self, len: usize) {
        self.program().consume(self.sock(), len);
    }
}

fn as_iovec(slice: RawSlice<'_>) -> libc::iovec {
    libc::iovec {
        iov_base: slice.as_ptr().cast_mut().cast(),
        iov_len: slice.len(),
    }
}
