//! The present state of a connection's rings.

use std::io::IoSlice;
use std::sync::atomic::Ordering;

use slipstack_channel::{Given, KeepError, Loan};
use slipstack_mem::RawSlice;

use crate::socket::moved::ConnectionPlace;
use crate::socket::{Push, Stream};

impl Stream {
    /// Sizes of the send and the receive buffer, as they are now.
    pub(crate) fn buffers(&self) -> [usize; 2] {
        let here = self.here();
        let (program, sock) = (here.program(), here.sock());
        [program.tx_limit(sock), program.rx_limit(sock)]
    }

    /// Puts bytes into the ring, whatever the state. Returns how many there was room for.
    pub(super) fn put(&self, here: ConnectionPlace<'_>, bufs: &[IoSlice<'_>], push: Push) -> usize {
        let (program, sock) = (here.program(), here.sock());
        match push {
            Push::Now | Push::OfOther => program.send(sock, bufs, false),
            Push::More => program.send(sock, bufs, true),
            Push::Urgent => program.send_urgent(sock, bufs),
            Push::Record => program.send_record(sock, bufs),
            Push::Lent => program.send_carved(sock, bufs),
        }
    }

    pub(crate) fn reserve(&self, len: usize) -> [libc::iovec; 2] {
        self.stay();
        let here = self.here();
        let space = here.program().reserve(here.sock(), len);
        let found = space.map(|space| space.as_iovec());
        if found[0].iov_len + found[1].iov_len < len {
            self.wants_space.store(true, Ordering::SeqCst);
        }
        found
    }

    pub(crate) fn commit(&self, len: usize) {
        let here = self.here();
        here.program().commit(here.sock(), len, false);
    }

    pub(crate) fn look_in_place(&self) -> [libc::iovec; 2] {
        self.stay();
        let here = self.here();
        here.program().peek_in_place(here.sock()).map(as_iovec)
    }

    pub(crate) fn keep_in_place(&self, most: usize) -> Result<(u64, [libc::iovec; 2]), KeepError> {
        self.stay();
        let here = self.here();
        let kept = here.program().keep(here.sock(), most)?;
        self.note_read();
        Ok((kept.at, kept.pieces.map(as_iovec)))
    }

    pub(crate) fn give_back_in_place(&self, at: u64) -> bool {
        let here = self.here();
        here.program().give_segment_back(here.sock(), at)
    }

    pub(crate) fn consume_in_place(&self, len: usize) {
        let here = self.here();
        here.program().consume(here.sock(), len);
    }

    /// As [`slipstack_channel::ProgramEnd::give`].
    pub(crate) fn give_bytes(
        &self,
        buf: &mut [u8],
        loan: Loan,
        pass: impl FnOnce(&[u8]) -> Option<usize>,
    ) -> Given {
        let here = self.here();
        let given = here.program().give(here.sock(), buf, loan, pass);
        if matches!(given, Given::Passed(_)) {
            self.note_read();
        }
        given
    }

    /// Records which other processes may use the connection, for the keeper.
    pub(crate) fn set_loan(&self, loan: Loan) {
        let here = self.here();
        here.program().set_loan(here.sock(), loan);
    }
}

fn as_iovec(slice: RawSlice<'_>) -> libc::iovec {
    libc::iovec {
        iov_base: slice.as_ptr().cast_mut().cast(),
        iov_len: slice.len(),
    }
}
