//! A TCP socket that is connecting or connected on the stack.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::sync::{Arc, OnceLock};

use slipstack_channel::SockId;
use slipstack_mem::Lock;

use crate::attachment::Attachment;
use crate::attachment::seen::Seen;
use crate::errno::Errno;
use crate::socket::ancillary::RequestedControl;
use crate::socket::moved::{ConnectionPlace, MOVES_MAX};

/// The program has shut its receiving side down.
pub(super) const SHUT_READ: u8 = 1;
/// … its sending side.
pub(super) const SHUT_WRITE: u8 = 2;
/// The end of the sending direction waits for what other processes have written before.
pub(super) const AWAITS_OTHERS: u8 = 4;

/// State of the connection as last reported to the program.
pub(super) const CONNECTING: u8 = 0;
/// A non-blocking `connect` has reported success, or accept made it.
pub(super) const OPEN: u8 = 1;
/// The attempt failed and the program knows; it may try again.
pub(super) const FAILED: u8 = 2;
/// The program has ended it, and may use the socket again: tcp_disconnect().
pub(super) const ENDED: u8 = 3;
/// The attempt was refused before it looked for a port: the socket is as before it.
pub(super) const REFUSED: u8 = 4;

/// Reason why no bytes moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamError {
    /// Would have to wait.
    Wait,
    Errno(Errno),
    /// EPIPE that comes with SIGPIPE.
    Pipe,
}

/// The way in which bytes are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Take,
    /// MSG_PEEK, from this byte on.
    Peek(usize),
    /// MSG_TRUNC: nothing is copied.
    Drop,
}

/// The way in which bytes are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Push {
    Now,
    /// More follows soon (MSG_MORE).
    More,
    /// The last of them is urgent (MSG_OOB).
    Urgent,
    /// The last of them ends a record (MSG_EOR).
    Record,
    /// The bytes are in memory that stays unchanged: [`crate::Carved`].
    Lent,
    /// Another process has written them: they go before an end that awaits them.
    OfOther,
}

/// An engine and the connection's number there.
#[derive(Debug)]
pub(crate) struct EngineSocket {
    pub(super) attachment: Arc<Attachment>,
    pub(super) sock: AtomicU64,
}

impl EngineSocket {
    pub(super) fn new(attachment: Arc<Attachment>, sock: SockId) -> EngineSocket {
        let sock = AtomicU64::new(pack(sock));
        EngineSocket { attachment, sock }
    }
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(super) first: EngineSocket,
    /// New places of the socket, and how often it has moved.
    pub(super) moved: [OnceLock<EngineSocket>; MOVES_MAX],
    pub(super) moves: AtomicUsize,
    /// Times that bytes were taken.
    pub(super) reads: AtomicU32,
    /// Attempts to have it go to another engine.
    pub(super) tries: AtomicU32,
    /// The thread that waited for it alone, last, and how often in a row.
    pub(super) waiter: AtomicUsize,
    pub(super) waits: AtomicU32,
    /// The engine counts the stream as one of its users.
    pub(super) is_counted: AtomicBool,
    pub(super) phase: AtomicU8,
    pub(super) shut: AtomicU8,
    /// The error that the end of an attempt has left; 0 = none.
    pub(super) pending_error: AtomicI32,
    /// The program has got the error that the engine is gone.
    is_death_reported: AtomicBool,
    /// A send found too little room: the next room is news.
    pub(super) wants_space: AtomicBool,
    /// The channel's bits at the watchers' last notification.
    pub(super) told_seen: AtomicU64,
    /// The engine's urgent word at the watchers' last notification.
    pub(super) told_urgent: AtomicU64,
    /// Set until a `connect` has returned the result of the attempt.
    pub(super) is_unanswered: AtomicBool,
    /// SO_RCVLOWAT.
    low_water: AtomicUsize,
    /// Control messages that its data comes with: bits of `RequestedControl`.
    requested: AtomicU32,
    /// TCP_NOTSENT_LOWAT; 0 = none.
    pub(super) unsent_low: AtomicU32,
    /// SO_LINGER as (on, seconds).
    pub(crate) linger: Lock<Option<u32>>,
}

impl Stream {
    pub(crate) fn connecting(attachment: Arc<Attachment>, sock: SockId) -> Self {
        Stream {
            first: EngineSocket::new(attachment, sock),
            moved: Default::default(),
            moves: AtomicUsize::new(0),
            reads: AtomicU32::new(0),
            tries: AtomicU32::new(0),
            waiter: AtomicUsize::new(0),
            waits: AtomicU32::new(0),
            is_counted: AtomicBool::new(false),
            phase: AtomicU8::new(CONNECTING),
            shut: AtomicU8::new(0),
            pending_error: AtomicI32::new(0),
            is_death_reported: AtomicBool::new(false),
            wants_space: AtomicBool::new(true),
            told_seen: AtomicU64::new(0),
            told_urgent: AtomicU64::new(0),
            is_unanswered: AtomicBool::new(false),
            low_water: AtomicUsize::new(1),
            requested: AtomicU32::new(0),
            unsent_low: AtomicU32::new(0),
            linger: Lock::new(None),
        }
    }

    pub(crate) fn accepted(attachment: Arc<Attachment>, sock: SockId) -> Self {
        let stream = Stream::connecting(attachment, sock);
        stream.phase.store(OPEN, Ordering::Relaxed);
        stream.wants_space.store(false, Ordering::Relaxed);
        stream
    }

    pub(super) fn has_shut(&self, what: u8) -> bool {
        self.shut.load(Ordering::Relaxed) & what != 0
    }

    #[inline]
    pub(super) fn seen(&self) -> Seen {
        self.seen_at(self.here())
    }

    #[inline]
    pub(super) fn seen_at(&self, here: ConnectionPlace<'_>) -> Seen {
        let seen = here.attachment().seen(here.sock());
        if here.attachment().is_dead() && !self.is_death_reported.load(Ordering::Relaxed) {
            return seen.with_error();
        }
        seen
    }

    /// Returns whether there is an unreported error.
    pub(crate) fn has_error(&self) -> bool {
        self.seen().is_error()
    }

    /// Returns the error that the next call will return.
    pub(crate) fn peek_error(&self) -> Option<Errno> {
        match self.pending_error.load(Ordering::Relaxed) {
            0 => {
                let here = self.here();
                here.program().peek_error(here.sock()).map(Errno::from)
            }
            error => Some(Errno(error)),
        }
    }

    fn take_pending_error(&self) -> Option<Errno> {
        match self.pending_error.swap(0, Ordering::AcqRel) {
            0 => None,
            error => Some(Errno(error)),
        }
    }

    /// Returns the result of the attempt to connect; `None` while it goes on.
    pub(crate) fn poll_connect(&self) -> Option<Result<(), Errno>> {
        let here = self.here();
        let seen = self.seen_at(here);
        if seen.is_error() {
            let error = self.take_error();
            self.phase.store(FAILED, Ordering::Release);
            return Some(Err(error.unwrap_or(Errno::ECONNABORTED)));
        }
        if seen.is_established() || self.takes_opening(here, seen) {
            self.phase.store(OPEN, Ordering::Release);
            return Some(Ok(()));
        }
        if seen.is_closed() {
            self.phase.store(FAILED, Ordering::Release);
            return Some(Err(Errno::ECONNABORTED));
        }
        if self.is_ended() {
            return Some(Err(self
                .take_pending_error()
                .unwrap_or(Errno::ECONNABORTED)));
        }
        None
    }

    /// Returns the result of a second `connect` on this socket.
    pub(crate) fn connect_again(&self) -> Result<(), Errno> {
        if self.phase.load(Ordering::Acquire) == OPEN {
            let seen = self.seen();
            if seen.is_opening() && seen.is_over() {
                return self.poll_opened().unwrap_or(Err(Errno::EALREADY));
            }
            return Err(
                match seen.is_opening() && !self.takes_opening(self.here(), seen) {
                    true => Errno::EALREADY,
                    false => Errno::EISCONN,
                },
            );
        }
        match self.poll_connect() {
            None => Err(Errno::EALREADY),
            Some(outcome) => outcome,
        }
    }

    pub(crate) fn remote(&self) -> Result<SocketAddr, Errno> {
        let here = self.here();
        let seen = self.seen_at(here);
        if !seen.is_connected() || seen.is_closed() {
            if !self.is_here(here) {
                return self.remote();
            }
            return Err(Errno::ENOTCONN);
        }
        here.program().remote(here.sock()).ok_or(Errno::ENOTCONN)
    }

    /// Returns the peer's address also if the connection has ended.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        let here = self.here();
        here.program().remote(here.sock())
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        if self.is_ended() {
            return None;
        }
        let here = self.here();
        here.program().local(here.sock())
    }

    /// Reads SO_ERROR and clears it.
    pub(crate) fn take_error(&self) -> Option<Errno> {
        let here = self.here();
        let mut error = here.program().take_error(here.sock()).map(Errno::from);
        if here.attachment().is_dead() && !self.is_death_reported.swap(true, Ordering::Relaxed) {
            error = error.or(Some(Errno::ECONNRESET));
        }
        let Some(error) = error else {
            return self.take_pending_error();
        };
        let phase = self.phase.load(Ordering::Acquire);
        if phase == CONNECTING || phase == OPEN && self.seen().is_opening() {
            self.phase.store(FAILED, Ordering::Release);
        }
        Some(error)
    }

    /// Takes bytes that have arrived. `Ok(0)` is the end of the stream.
    pub(crate) fn dequeue(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        how: How,
    ) -> Result<usize, StreamError> {
        self.dequeue_as(bufs, how, Stream::take_error)
    }

    /// As [`Stream::dequeue`], with another way to have an error than to take it.
    pub(crate) fn dequeue_as(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        how: How,
        error: fn(&Stream) -> Option<Errno>,
    ) -> Result<usize, StreamError> {
        let here = self.here();
        let (program, sock) = (here.program(), here.sock());
        let count = match how {
            How::Take => program.recv(sock, bufs),
            How::Peek(skip) => program.peek(sock, bufs, skip),
            How::Drop => {
                let len = bufs.iter().map(|buf| buf.len()).sum();
                program.discard(sock, len)
            }
        };
        if count > 0 {
            self.note_read();
            return Ok(count);
        }
        self.why_nothing(here, bufs, how, error)
    }

    /// A look without room for a byte: whether there is something to read, the end or an error,
    /// which is taken.
    pub(crate) fn recv_nothing(&self) -> Result<(), StreamError> {
        self.recv_nothing_as(Stream::take_error)
    }

    fn recv_nothing_as(&self, error: fn(&Stream) -> Option<Errno>) -> Result<(), StreamError> {
        let here = self.here();
        if here.program().is_readable(here.sock()) {
            return Ok(());
        }
        self.why_nothing(here, &mut [], How::Peek(0), error)
            .map(|_| ())
    }

    /// Returns why there were no bytes: the end of the stream, an error, or a reason to wait.
    fn why_nothing(
        &self,
        here: ConnectionPlace<'_>,
        bufs: &mut [IoSliceMut<'_>],
        how: How,
        error: fn(&Stream) -> Option<Errno>,
    ) -> Result<usize, StreamError> {
        let seen = self.seen_at(here);
        let program = here.program();
        let has_bytes = program.rx_available(here.sock()) > 0;
        let is_readable = program.is_readable(here.sock());
        let look_again = |bufs: &mut [IoSliceMut<'_>]| match bufs {
            [] => self.recv_nothing_as(error).map(|()| 0),
            _ => self.dequeue_as(bufs, how, error),
        };
        if !self.is_here(here) {
            // The connection has moved meanwhile, with its bytes.
            return look_again(bufs);
        }
        if self.is_ended() {
            return match self.take_pending_error() {
                Some(error) => Err(StreamError::Errno(error)),
                None if self.has_shut(SHUT_READ) => Ok(0),
                None => Err(StreamError::Errno(Errno::ENOTCONN)),
            };
        }
        // tcp_recvmsg(): the peer's FIN comes before an error, an error before the program's own
        // shutdown.
        if self.shut.load(Ordering::Relaxed) & SHUT_READ != 0
            && (seen.is_done() || !seen.is_error())
        {
            return Ok(0);
        }
        let is_end = seen.is_done() || (seen.is_fin() && !seen.is_error());
        if is_end && !has_bytes {
            return Ok(0);
        }
        // A peek from a later byte on (SO_PEEK_OFF) may find none of those that there are.
        let is_later = matches!(how, How::Peek(1..));
        let is_held = self.is_at_mark() && self.unsignalled_mark().is_some();
        if is_readable && !is_later && !is_held {
            // The bytes have come between the two looks.
            return look_again(bufs);
        }
        if seen.is_error() {
            return match error(self) {
                Some(error) => Err(StreamError::Errno(error)),
                None => Ok(0),
            };
        }
        if seen.is_fin() || seen.is_closed() || seen.is_hup() {
            return Ok(0);
        }
        if self.is_failed() {
            return Err(StreamError::Errno(Errno::ENOTCONN));
        }
        Err(StreamError::Wait)
    }

    /// Puts bytes into the send ring; at least one, or an error.
    pub(crate) fn enqueue(&self, bufs: &[IoSlice<'_>], push: Push) -> Result<usize, StreamError> {
        let here = self.here();
        let seen = self.seen_at(here);
        if (seen.is_over() || !seen.is_connected()) && !self.is_here(here) {
            return self.enqueue(bufs, push);
        }
        // sk_stream_error(): an error comes before the program's own shutdown.
        if seen.is_error() {
            return match self.take_error() {
                Some(Errno::EPIPE) | None => Err(StreamError::Pipe),
                Some(error) => Err(StreamError::Errno(error)),
            };
        }
        let shut = self.shut.load(Ordering::Relaxed);
        let goes_before = shut & AWAITS_OTHERS != 0 && push == Push::OfOther;
        let is_shut = shut & SHUT_WRITE != 0 && !goes_before;
        if is_shut || seen.is_closed() || seen.is_hup() || self.is_failed() {
            let error = self.take_pending_error().map(StreamError::Errno);
            return Err(error.unwrap_or(StreamError::Pipe));
        }
        if !(seen.is_established() || self.takes_opening(here, seen)) {
            return Err(StreamError::Wait);
        }
        if self.unsent_low.load(Ordering::Relaxed) != 0 && push != Push::Urgent {
            return self.send_low(here, bufs, push);
        }
        let count = self.put(here, bufs, push);
        let asked: usize = bufs.iter().map(|buf| buf.len()).sum();
        if count < asked {
            self.wants_space.store(true, Ordering::SeqCst);
        }
        if count == 0 && asked > 0 {
            if !self.is_here(here) {
                return self.enqueue(bufs, push);
            }
            return Err(StreamError::Wait);
        }
        Ok(count)
    }

    /// Whether the first bytes may be written, which the SYN waits for.
    #[cold]
    pub(super) fn takes_opening(&self, here: ConnectionPlace<'_>, seen: Seen) -> bool {
        seen.is_opening() && here.program().tx_unacked(here.sock()) == 0
    }

    /// Whether the SYN-ACK of a connection that takes data with its SYN has not come.
    #[inline]
    pub(crate) fn is_opening(&self) -> bool {
        self.seen().is_opening()
    }

    /// Returns the outcome of a handshake whose SYN has data; `None` while it goes on.
    pub(crate) fn poll_opened(&self) -> Option<Result<(), Errno>> {
        let seen = self.seen();
        if seen.is_error() || seen.is_closed() {
            let error = self.take_error();
            self.phase.store(FAILED, Ordering::Release);
            return Some(Err(error.unwrap_or(Errno::ECONNABORTED)));
        }
        (!seen.is_opening()).then_some(Ok(()))
    }

    /// Returns whether bytes may be sent at all.
    pub(crate) fn may_send(&self) -> Result<(), StreamError> {
        self.enqueue(&[], Push::Now).map(drop)
    }

    /// Whether the sending direction is shut down, or the connection has ended and its error was
    /// taken.
    pub(crate) fn sends_no_more(&self) -> bool {
        let seen = self.seen();
        self.has_shut(SHUT_WRITE) || seen.is_over() && !seen.is_error()
    }

    /// Whether there is an error that nobody has taken, or was, which is the next that a reader
    /// learns.
    pub(crate) fn is_reset_without_fin(&self) -> bool {
        let here = self.here();
        let seen = self.seen_at(here);
        let is_reset = seen.is_error() || seen.is_closed();
        is_reset && !seen.is_done() && here.program().rx_available(here.sock()) == 0
    }

    /// Whether there is an error that nobody has taken, which a reader does not learn.
    pub(crate) fn is_reset_behind_fin(&self) -> bool {
        let seen = self.seen();
        seen.is_error() && seen.is_done()
    }

    /// `shutdown`; the caller has checked `how`.
    pub(crate) fn shutdown(&self, read: bool, write: bool) -> Result<(), Errno> {
        self.shut(if read { SHUT_READ } else { 0 } | if write { SHUT_WRITE } else { 0 })
    }

    /// Records that directions are shut down, and has the engine end the sending one unless that
    /// awaits others.
    pub(super) fn shut(&self, asked: u8) -> Result<(), Errno> {
        let seen = self.seen();
        if !seen.is_connected() || seen.is_closed() || seen.is_hup() {
            if self.is_attempt() {
                // inet_shutdown(): there is nothing yet of which a side could be shut.
                self.disconnect();
                return Ok(());
            }
            // inet_shutdown(): a closed socket is shut all the same.
            self.add_shut(asked & !AWAITS_OTHERS);
            return Err(Errno::ENOTCONN);
        }
        let (before, after) = self.add_shut(asked);
        // Reading alone is no concern of the stack's: data is still acknowledged.
        if after != before && after & (SHUT_WRITE | AWAITS_OTHERS) == SHUT_WRITE {
            self.send_end();
        }
        Ok(())
    }

    /// Has the engine end the sending direction, wherever the connection is.
    pub(super) fn send_end(&self) {
        let is_full = || self.shut.load(Ordering::SeqCst) & SHUT_READ != 0;
        let here = self.here();
        here.attachment().shutdown(here.sock(), is_full());
        if !self.is_here(here) {
            self.send_end();
        }
    }

    /// Repeats, after a move, a shutdown that another thread may have sent to the former engine.
    pub(crate) fn repeat_end(&self) {
        if self.has_shut(SHUT_WRITE) && !self.awaits_others() {
            self.send_end();
        }
    }

    pub(crate) fn low_water(&self) -> usize {
        self.low_water.load(Ordering::Relaxed)
    }

    pub(crate) fn set_low_water(&self, bytes: usize) {
        self.low_water.store(bytes, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn requested(&self) -> RequestedControl {
        RequestedControl::from_bits(self.requested.load(Ordering::Relaxed))
    }

    pub(crate) fn set_requested(&self, requested: RequestedControl) {
        self.requested.store(requested.bits(), Ordering::Relaxed);
    }

    /// tcp_inq_hint(): unread bytes; the peer's FIN counts as a byte, also when it has been read.
    pub(crate) fn inq(&self) -> i32 {
        let here = self.here();
        let is_done = self.seen_at(here).is_done();
        let left = here.program().rx_available(here.sock()) + usize::from(is_done);
        i32::try_from(left).unwrap_or(i32::MAX)
    }

    /// An owner gets signals of later events, not of the connection itself.
    pub(crate) fn note_connected(&self) {
        let known = self.seen().only_connected();
        self.told_seen
            .fetch_or(u64::from(known.bits()), Ordering::AcqRel);
    }

    /// Whether a reader that waits may still be given more.
    pub(crate) fn may_bring_more(&self) -> bool {
        let seen = self.seen();
        !(seen.is_fin() || seen.is_error() || seen.is_hup() || seen.is_closed())
            && self.shut.load(Ordering::Relaxed) & SHUT_READ == 0
    }

    /// Returns the written bytes that have not left yet.
    pub(crate) fn unsent(&self) -> Result<usize, Errno> {
        let info = self.info()?;
        Ok(info.notsent_bytes.try_into().unwrap_or(usize::MAX))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.seen().is_over()
    }

    /// Bytes that have arrived and are not read.
    pub(crate) fn unread(&self) -> usize {
        let here = self.here();
        here.program().rx_before_mark(here.sock())
    }
}

pub(super) fn pack(sock: SockId) -> u64 {
    u64::from(sock.generation) << 32 | u64::from(sock.index)
}

pub(super) fn unpack(word: u64) -> SockId {
    SockId {
        index: word as u32,
        generation: (word >> 32) as u32,
    }
}
