//! The end of a sending direction that waits for what other processes have written before it.
//!
//! The bytes are on their way to the send ring by pairs, and stay there while a peer takes nothing.
//! What is written once the direction is shut down is not sent.

use std::sync::atomic::Ordering;

use crate::errno::Errno;
use crate::socket::stream::{AWAITS_OTHERS, SHUT_READ, SHUT_WRITE, Stream};

impl Stream {
    /// As [`Stream::shutdown`] of the sending direction, which ends with
    /// [`Stream::end_after_others`].
    pub(crate) fn shut_behind_others(&self, read: bool) -> Result<(), Errno> {
        let read = if read { SHUT_READ } else { 0 };
        self.shut(read | SHUT_WRITE | AWAITS_OTHERS)
    }

    /// Records that directions are shut down. Returns the former ones, and those that are now: an
    /// end that has been sent awaits nobody.
    pub(super) fn add_shut(&self, asked: u8) -> (u8, u8) {
        let with = |before: u8| match before & SHUT_WRITE {
            0 => before | asked,
            _ => before | asked & !AWAITS_OTHERS,
        };
        let update = |before| Some(with(before));
        let order = Ordering::SeqCst;
        match self.shut.fetch_update(order, order, update) {
            Ok(before) | Err(before) => (before, with(before)),
        }
    }

    /// Whether the direction is shut down and its end awaits bytes.
    #[inline]
    pub(crate) fn awaits_others(&self) -> bool {
        self.shut.load(Ordering::SeqCst) & AWAITS_OTHERS != 0
    }

    /// Ends the direction: all bytes of others are in the ring.
    pub(crate) fn end_after_others(&self) {
        let before = self.shut.fetch_and(!AWAITS_OTHERS, Ordering::SeqCst);
        if before & AWAITS_OTHERS != 0 {
            self.send_end();
        }
    }
}
