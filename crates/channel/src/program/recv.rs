//! Stream bytes from the engine to the program.
//!
//! The engine owns the receive rings and may replace one at any time (it grows while bytes
//! wait), so the reader looks at the ring word again after copying and starts over when it has
//! changed.

use core::sync::atomic::{Ordering, fence};
use std::io::IoSliceMut;

use slipstack_mem::ByteRing;

use crate::cell::Cell;
use crate::command::Command;
use crate::ids::SockId;
use crate::loan::Loan;

use super::ProgramEnd;
use super::sockets::RxSide;
use super::urgent::Asked;

/// Outcome of [`ProgramEnd::give`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// No bytes wait.
    Empty,
    /// The next byte is an urgent one, or the program keeps bytes in the ring.
    NotPlain,
    /// The result of passing bytes on.
    Passed(Option<usize>),
}

impl ProgramEnd {
    /// Bytes that wait to be read (for datagrams including their framing).
    #[inline]
    pub fn rx_available(&self, sock: SockId) -> usize {
        match self.cell(sock.index) {
            Some(cell) if cell.state().generation == sock.generation => {
                cell.rx_head()
                    .saturating_sub(cell.rx_tail().max(cell.rx_read())) as usize
            }
            _ => 0,
        }
    }

    /// Copies waiting bytes out and consumes them.
    pub fn recv(&self, sock: SockId, bufs: &mut [IoSliceMut<'_>]) -> usize {
        self.take(sock, bufs, 0, true)
    }

    /// Copies waiting bytes from `skip` bytes on (SO_PEEK_OFF) without consuming them.
    pub fn peek(&self, sock: SockId, bufs: &mut [IoSliceMut<'_>], skip: usize) -> usize {
        self.take(sock, bufs, skip, false)
    }

    /// Passes waiting bytes of a stream to another process with `pass`, and then consumes as many
    /// as that returns: if this process is killed, they are in one of both. `buf` is room for them;
    /// `loan` is recorded for that time.
    pub fn give(
        &self,
        sock: SockId,
        buf: &mut [u8],
        loan: Loan,
        pass: impl FnOnce(&[u8]) -> Option<usize>,
    ) -> Given {
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return Given::NotPlain;
        };
        // No other thread reads meanwhile.
        let mut rx = local.rx.lock();
        let waiting = self.waiting(sock, &cell, rx.tail);
        if waiting == 0 {
            return Given::Empty;
        }
        // The mark is read after the head, because the engine writes it before the head.
        let plain = plain_before_mark(&cell, rx.tail, waiting);
        if plain == 0 || rx.kept_count() > 0 {
            return Given::NotPlain;
        }
        let count = plain.min(buf.len());
        let len = self.copy_out(&cell, rx.tail, count, &mut [IoSliceMut::new(buf)]);
        cell.set_loan(loan.giving().at(cell.tx_head(), rx.tail));
        let passed = pass(&buf[..len]);
        rx.tail += passed.unwrap_or(0) as u64;
        self.consumed(sock, &cell, &rx);
        Given::Passed(passed)
    }

    /// Consumes up to `len` waiting bytes unseen (MSG_TRUNC).
    pub fn discard(&self, sock: SockId, len: usize) -> usize {
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return 0;
        };
        let mut rx = local.rx.lock();
        if !cell.urgent().is_none() {
            let asked = Asked {
                skip: 0,
                most: len,
                consume: true,
            };
            return self.take_near_mark(sock, local, &cell, &mut rx, None, &asked);
        }
        let len = len.min(self.waiting(sock, &cell, rx.tail));
        rx.tail += len as u64;
        self.consumed(sock, &cell, &rx);
        len
    }

    pub(super) fn waiting(&self, sock: SockId, cell: &Cell<'_>, tail: u64) -> usize {
        if cell.state().generation != sock.generation {
            return 0;
        }
        cell.rx_head().saturating_sub(tail) as usize
    }

    fn take(&self, sock: SockId, bufs: &mut [IoSliceMut<'_>], skip: usize, consume: bool) -> usize {
        let (Some(local), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index))
        else {
            return 0;
        };
        let mut rx = local.rx.lock();
        let waiting = self.waiting(sock, &cell, rx.tail);
        if skip >= waiting {
            return 0;
        }
        // The mark is read after the head, because the engine writes it before the head.
        if !cell.urgent().is_none() {
            let asked = Asked {
                skip,
                most: bufs.iter().map(|buf| buf.len()).sum(),
                consume,
            };
            return self.take_near_mark(sock, local, &cell, &mut rx, Some(bufs), &asked);
        }
        let from = rx.tail + skip as u64;
        let len = self.copy_out(&cell, from, waiting - skip, bufs);
        if consume && len > 0 {
            rx.tail += len as u64;
            self.consumed(sock, &cell, &rx);
        }
        len
    }

    /// Copies up to `len` bytes from stream offset `from` on.
    pub(super) fn copy_out(
        &self,
        cell: &Cell<'_>,
        from: u64,
        len: usize,
        bufs: &mut [IoSliceMut<'_>],
    ) -> usize {
        loop {
            let word = cell.rx_ring();
            let mut copied = 0;
            if let Some(ring) = ByteRing::validate(word, &self.inner.receive_arena) {
                for buf in bufs.iter_mut() {
                    let part = buf.len().min(len - copied);
                    copied += ring.read(&self.inner.region, from + copied as u64, &mut buf[..part]);
                    if copied == len {
                        break;
                    }
                }
            }
            fence(Ordering::Acquire);
            if cell.rx_ring() == word {
                return copied;
            }
        }
    }

    /// Publishes how far the program has read, and notifies the engine if it asked for that.
    pub(super) fn consumed(&self, sock: SockId, cell: &Cell<'_>, rx: &RxSide) {
        let tail = rx.released();
        if rx.kept_count() > 0 {
            cell.set_rx_read(rx.tail);
        }
        cell.set_rx_tail(tail);
        self.notify_consumed(sock, cell, tail);
    }

    /// Notifies the engine that the program has read up to `tail`, if it asked for that.
    #[inline]
    pub(super) fn notify_consumed(&self, sock: SockId, cell: &Cell<'_>, tail: u64) {
        if tail >= cell.notify_at() && cell.raise_rx() {
            self.push(Command::Consumed { sock });
        }
    }
}

/// Returns how many of `waiting` bytes from `tail` on come before an urgent one.
fn plain_before_mark(cell: &Cell<'_>, tail: u64, waiting: usize) -> usize {
    let word = cell.urgent();
    if word.is_none() {
        return waiting;
    }
    if cell.urgent_skipped() == tail + 1 {
        return 0;
    }
    let ahead = word.mark().and_then(|mark| mark.checked_sub(tail));
    ahead.map_or(waiting, |ahead| {
        waiting.min(ahead.min(usize::MAX as u64) as usize)
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::cell::Limits;
    use crate::engine_end::EngineEnd;
    use crate::receive_ring::ReceiveRing;
    use slipstack_terms::Transport;

    /// Makes the two ends of a socket that receives, and its ring.
    pub(in crate::program) fn receiving() -> (EngineEnd, ProgramEnd, SockId, ReceiveRing) {
        let mut engine = EngineEnd::create().unwrap();
        let program = ProgramEnd::open(engine.region().clone()).unwrap();
        let sock = program.open_socket(Transport::Tcp).unwrap();
        let receive = 1 << 20;
        assert!(engine.begin(sock, Limits { send: 0, receive }));
        (engine, program, sock, ReceiveRing::NEW)
    }

    #[test]
    fn bytes_are_counted_once_while_they_are_given_to_another_process() {
        let (mut engine, program, sock, mut ring) = receiving();
        assert!(ring.store(&mut engine, sock, 0, b"own, the child's"));
        ring.publish(&mut engine, sock, 16, 1 << 20);
        let mut own = [0; 5];
        assert_eq!(program.recv(sock, &mut [IoSliceMut::new(&mut own)]), 5);

        let loan = || engine.cell(sock.index).unwrap().loan();
        let mut room = [0; 9];
        let mut give = |given: u32, count: usize| {
            let pass = |bytes: &[u8]| {
                assert!(loan().is_sound() && loan().is_giving());
                let upto = 5 + u64::from(given);
                assert_eq!(loan().given_upto(given, upto), upto, "killed before");
                let all = given + bytes.len() as u32;
                assert_eq!(loan().given_upto(all, upto), upto + bytes.len() as u64);
                Some(count)
            };
            program.give(sock, &mut room, Loan::to(1, 0, given), pass)
        };
        assert_eq!(give(0, 4), Given::Passed(Some(4)), "the child took less");
        assert_eq!(loan().given_upto(4, 9), 9, "it has no more than those");
        assert_eq!(give(4, 7), Given::Passed(Some(7)));
        assert_eq!(give(11, 0), Given::Empty);
        assert_eq!(program.rx_available(sock), 0);
    }

    #[test]
    fn bytes_before_and_behind_an_urgent_one_are_given_and_it_is_not() {
        let (mut engine, program, sock, mut ring) = receiving();
        let give = || {
            let loan = Loan::to(1, 0, 0);
            program.give(sock, &mut [0; 9], loan, |bytes| Some(bytes.len()))
        };
        assert!(ring.store(&mut engine, sock, 0, b"ab!cd"));
        ring.mark_urgent(&mut engine, sock, 2, Some(b'!'));
        ring.publish(&mut engine, sock, 5, 1 << 20);
        assert_eq!(give(), Given::Passed(Some(2)));
        assert_eq!(give(), Given::NotPlain);
        let mut room = [0; 1];
        assert_eq!(program.recv(sock, &mut [IoSliceMut::new(&mut room)]), 1);
        assert_eq!(room, *b"c", "the urgent byte is left out");
        assert_eq!(give(), Given::Passed(Some(1)));
        assert_eq!(give(), Given::Empty);
    }
}
