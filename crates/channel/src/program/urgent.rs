//! Urgent bytes on the program's side: reads stop at the mark, the byte is taken by itself or in
//! line (RFC 6093 2, as Linux does it).

use core::ops::DerefMut;
use core::sync::atomic::Ordering;
use std::io::{IoSlice, IoSliceMut};

use crate::cell::Cell;
use crate::command::Command;
use crate::ids::SockId;
use crate::urgent::{Urgent, UrgentWord};

use super::ProgramEnd;
use super::sockets::{NO_OWNER, RxSide, SockLocal};

/// The bytes that one read may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Start of the data: after the urgent byte if that is next.
    pub(super) from: u64,
    pub(super) len: usize,
}

impl ProgramEnd {
    /// SO_OOBINLINE.
    pub fn set_urgent_inline(&self, sock: SockId, on: bool) {
        if let Some(local) = self.inner.sockets.find(sock) {
            local.is_urgent_inline.store(on, Ordering::Relaxed);
        }
    }

    /// The engine's word; it changes with every new mark and when the byte comes.
    #[inline]
    pub fn urgent_word(&self, sock: SockId) -> UrgentWord {
        match self.cell(sock.index) {
            Some(cell) if cell.state().generation == sock.generation => cell.urgent(),
            _ => UrgentWord::default(),
        }
    }

    /// Returns the result that MSG_OOB would have.
    pub fn urgent(&self, sock: SockId) -> Urgent {
        self.look_at_urgent(sock, false)
    }

    /// MSG_OOB: takes the urgent byte.
    pub fn take_urgent(&self, sock: SockId) -> Urgent {
        self.look_at_urgent(sock, true)
    }

    fn look_at_urgent(&self, sock: SockId, takes: bool) -> Urgent {
        let Some((local, word)) = self.marked(sock) else {
            return Urgent::Nothing;
        };
        let mut rx = self.settled(sock, local);
        match word.mark() {
            Some(mark) if rx.tail <= mark && rx.urgent_taken <= mark => match word.byte() {
                None => Urgent::Awaited,
                Some(byte) => {
                    if takes {
                        rx.urgent_taken = mark + 1;
                    }
                    Urgent::Here(byte)
                }
            },
            _ => Urgent::Nothing,
        }
    }

    /// Returns the end of the urgent byte that was taken last, as an offset from the first unread
    /// byte; 0 = none there.
    pub fn urgent_taken(&self, sock: SockId) -> u64 {
        match self.marked(sock) {
            Some((local, _)) => {
                let rx = local.rx.lock();
                rx.urgent_taken.saturating_sub(rx.tail)
            }
            None => 0,
        }
    }

    /// Records [`ProgramEnd::urgent_taken`] in a socket from which nothing has been read.
    pub fn set_urgent_taken(&self, sock: SockId, taken: u64) {
        if let Some(local) = self.inner.sockets.find(sock) {
            let mut rx = local.rx.lock();
            rx.urgent_taken = rx.tail.saturating_add(taken);
        }
    }

    /// SIOCATMARK: the urgent byte is next, whether it was taken or not.
    pub fn is_at_mark(&self, sock: SockId) -> bool {
        self.marked(sock)
            .is_some_and(|(local, word)| word.mark() == Some(self.settled(sock, local).tail))
    }

    /// Returns whether a peek at the first `len` bytes ends at the mark.
    pub fn ends_at_mark(&self, sock: SockId, len: usize) -> bool {
        self.marked(sock).is_some_and(|(local, word)| {
            let end = self.settled(sock, local).tail + len as u64;
            word.mark() == Some(end)
        })
    }

    /// Bytes in front of the mark (SIOCINQ).
    pub fn rx_before_mark(&self, sock: SockId) -> usize {
        let marked = self.marked(sock);
        let tail = marked.map(|(local, _)| self.settled(sock, local).tail);
        let available = self.rx_available(sock);
        match marked.zip(tail) {
            Some(((local, word), tail)) if !local.is_urgent_inline.load(Ordering::Relaxed) => {
                match word.mark() {
                    Some(mark) if mark >= tail => available.min((mark - tail) as usize),
                    _ => available,
                }
            }
            _ => available,
        }
    }

    /// Returns whether a read would give bytes: an urgent byte that is not in line is none.
    #[inline]
    pub fn is_readable(&self, sock: SockId) -> bool {
        if self.urgent_word(sock).is_none() {
            return self.rx_available(sock) > 0;
        }
        self.is_readable_near_mark(sock)
    }

    #[cold]
    fn is_readable_near_mark(&self, sock: SockId) -> bool {
        let is_left_out = self.is_at_mark(sock) && !self.is_urgent_inline(sock);
        self.rx_available(sock) > usize::from(is_left_out)
    }

    /// The reading side, behind a former urgent byte that is not read any more.
    fn settled<'a>(
        &self,
        sock: SockId,
        local: &'a SockLocal,
    ) -> impl DerefMut<Target = RxSide> + 'a {
        let mut rx = local.rx.lock();
        if let Some(cell) = self.cell(sock.index) {
            self.pass_skipped(sock, local, &cell, &mut rx);
        }
        rx
    }

    fn pass_skipped(&self, sock: SockId, local: &SockLocal, cell: &Cell<'_>, rx: &mut RxSide) {
        let is_inline = local.is_urgent_inline.load(Ordering::Relaxed);
        if !is_inline
            && cell.urgent_skipped() == rx.tail + 1
            && self.waiting(sock, cell, rx.tail) > 0
        {
            rx.tail += 1;
            self.consumed(sock, cell, rx);
        }
    }

    /// SO_OOBINLINE.
    #[cold]
    pub fn is_urgent_inline(&self, sock: SockId) -> bool {
        let local = self.inner.sockets.find(sock);
        local.is_some_and(|local| local.is_urgent_inline.load(Ordering::Relaxed))
    }

    /// Records whether F_SETOWN has set an owner: a read passes an urgent mark only after the owner
    /// had its signal. Marks that were announced before have no owner.
    pub fn set_owned(&self, sock: SockId, on: bool) {
        if let Some(local) = self.inner.sockets.find(sock) {
            let next = self.urgent_word(sock).mark().map_or(0, |mark| mark + 1);
            let signalled = if on { next } else { NO_OWNER };
            local.signalled.store(signalled, Ordering::Release);
        }
    }

    /// A mark that the owner has had no signal for.
    pub fn unsignalled_mark(&self, sock: SockId) -> Option<u64> {
        let (local, word) = self.marked(sock)?;
        let mark = word.mark()?;
        let signalled = local.signalled.load(Ordering::Acquire);
        (signalled != NO_OWNER && signalled != mark + 1).then_some(mark)
    }

    /// The owner has had the signal for this mark.
    pub fn note_signalled(&self, sock: SockId, mark: u64) {
        if let Some(local) = self.inner.sockets.find(sock)
            && local.signalled.load(Ordering::Acquire) != NO_OWNER
        {
            local.signalled.store(mark + 1, Ordering::Release);
        }
    }

    fn marked(&self, sock: SockId) -> Option<(&SockLocal, UrgentWord)> {
        let word = self.urgent_word(sock);
        if word.is_none() {
            return None;
        }
        Some((self.inner.sockets.find(sock)?, word))
    }

    /// As [`ProgramEnd::send`], with the last byte urgent. The engine learns of the mark before it
    /// can see the bytes.
    pub fn send_urgent(&self, sock: SockId, bufs: &[IoSlice<'_>]) -> usize {
        self.send_marked(sock, bufs, |upto, _| {
            self.push(Command::Urgent { sock, upto });
        })
    }

    /// Puts bytes into the send ring that end a record, as far as there is room: [`Self::send`].
    /// The record ends if all of them are in.
    #[cold]
    pub fn send_record(&self, sock: SockId, bufs: &[IoSlice<'_>]) -> usize {
        self.send_marked(sock, bufs, |upto, are_all| {
            if are_all {
                self.push(Command::Record { sock, upto });
            }
        })
    }

    /// Takes the bytes before the mark, or after it: Linux's tcp_recvmsg().
    #[cold]
    pub(super) fn take_near_mark(
        &self,
        sock: SockId,
        local: &SockLocal,
        cell: &Cell<'_>,
        rx: &mut RxSide,
        mut bufs: Option<&mut [IoSliceMut<'_>]>,
        asked: &Asked,
    ) -> usize {
        let &Asked {
            skip,
            most,
            consume,
        } = asked;
        let is_inline = local.is_urgent_inline.load(Ordering::Relaxed);
        self.pass_skipped(sock, local, cell, rx);
        let begin = rx.tail + skip as u64;
        let waiting = self.waiting(sock, cell, begin);
        let mark = cell.urgent().mark().unwrap_or(u64::MAX);
        // tcp_recvmsg(): a signal comes before the urgent byte is passed over.
        if mark == begin && self.unsignalled_mark(sock) == Some(mark) {
            return 0;
        }
        let span = limit(
            Span {
                from: begin,
                len: waiting.min(most),
            },
            waiting,
            mark,
            is_inline,
        );
        let len = match &mut bufs {
            Some(bufs) => self.copy_out(cell, span.from, span.len, bufs),
            None => span.len,
        };
        let end = span.from + len as u64;
        if consume && end > rx.tail {
            rx.tail = end;
            self.consumed(sock, cell, rx);
        }
        len
    }
}

/// The request of a read near the mark.
pub(super) struct Asked {
    /// Bytes in front that are left alone (SO_PEEK_OFF).
    pub(super) skip: usize,
    pub(super) most: usize,
    /// The bytes are consumed, not peeked at.
    pub(super) consume: bool,
}

/// Limits a read from `asked.from` on while the mark is at `mark`.
fn limit(asked: Span, waiting: usize, mark: u64, is_inline: bool) -> Span {
    let Span { from, len } = asked;
    if mark < from || len == 0 {
        return asked;
    }
    if mark > from {
        let len = len.min((mark - from).min(usize::MAX as u64) as usize);
        return Span { from, len };
    }
    if is_inline {
        return asked;
    }
    // The urgent byte is skipped, and lost if it was not read.
    Span {
        from: from + 1,
        len: len.min(waiting - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_stop_at_the_mark_and_leave_the_byte_out() {
        let span = |from, len| Span { from, len };
        for (asked, waiting, mark, is_inline, want) in [
            (span(0, 10), 10, 4, false, span(0, 4)),
            (span(0, 10), 10, 4, true, span(0, 4)),
            (span(0, 3), 10, 4, false, span(0, 3)),
            (span(4, 6), 6, 4, false, span(5, 5)),
            (span(4, 6), 6, 4, true, span(4, 6)),
            (span(4, 2), 6, 4, false, span(5, 2)),
            (span(4, 1), 1, 4, false, span(5, 0)),
            (span(5, 5), 5, 4, false, span(5, 5)),
            (span(4, 0), 0, 4, false, span(4, 0)),
        ] {
            let got = limit(asked, waiting, mark, is_inline);
            assert_eq!(got, want, "{asked:?} {mark} {is_inline}");
        }
    }
}
