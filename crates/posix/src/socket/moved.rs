//! The engine of a connection, which may change.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use slipstack_channel::{ProgramEnd, SockId, SocketOption, TcpInfo};

use crate::attachment::Attachment;
use crate::errno::Errno;
use crate::ready::bits;
use crate::socket::Stream;
use crate::socket::stream::{CONNECTING, EngineSocket, OPEN, pack, unpack};

/// Waits of one thread in a row after which a connection is that thread's.
const WAITS: u32 = 8;
/// Moves of a connection: to its thread's engine, and from there to one that threads share.
pub(super) const MOVES_MAX: usize = 2;
/// Attempts to have a connection go, of which each finds something of it in use.
const TRIES_MAX: u32 = 64;

/// The place of a connection at one moment. A caller that no longer finds it there asks again.
#[derive(Clone, Copy)]
pub(crate) struct ConnectionPlace<'a> {
    place: &'a EngineSocket,
    sock: SockId,
}

impl<'a> ConnectionPlace<'a> {
    #[inline]
    pub(crate) fn attachment(self) -> &'a Arc<Attachment> {
        &self.place.attachment
    }

    #[inline]
    pub(crate) fn sock(self) -> SockId {
        self.sock
    }

    /// Forgets the connection's number there: `none` belongs to no socket.
    pub(super) fn forget(self, none: SockId) {
        self.place.sock.store(pack(none), Ordering::Release);
    }

    /// The program's end of the channel to that engine.
    #[inline]
    pub(super) fn program(self) -> &'a ProgramEnd {
        &self.place.attachment.program
    }
}

impl Stream {
    #[inline]
    pub(crate) fn here(&self) -> ConnectionPlace<'_> {
        let place = self.place();
        let sock = unpack(place.sock.load(Ordering::Acquire));
        ConnectionPlace { place, sock }
    }

    /// Whether the connection is still there.
    #[inline]
    pub(crate) fn is_here(&self, here: ConnectionPlace<'_>) -> bool {
        std::ptr::eq(self.place(), here.place)
    }

    #[inline]
    pub(super) fn place(&self) -> &EngineSocket {
        match self.moves.load(Ordering::Acquire) {
            0 => &self.first,
            moves => self.moved[moves - 1].get().unwrap_or(&self.first),
        }
    }

    #[inline]
    pub(crate) fn attachment(&self) -> &Arc<Attachment> {
        &self.place().attachment
    }

    /// The engine and the connection's number there, of one moment.
    pub(crate) fn attachment_and_sock(&self) -> (&Arc<Attachment>, SockId) {
        let here = self.here();
        (here.attachment(), here.sock)
    }

    /// Sets an option, wherever the connection is.
    pub(crate) fn set_option(&self, option: SocketOption) {
        let here = self.here();
        here.attachment().set_option(here.sock(), option);
        if !self.is_here(here) {
            self.set_option(option);
        }
    }

    pub(crate) fn info(&self) -> Result<TcpInfo, Errno> {
        let here = self.here();
        match here.attachment().info(here.sock()) {
            Err(_) if !self.is_here(here) => self.info(),
            Err(_) if self.is_ended() => Err(Errno::ENOTCONN),
            result => result,
        }
    }

    /// Records its move to another engine, by the thread that has frozen its rings.
    pub(crate) fn set_moved(&self, attachment: Arc<Attachment>, sock: SockId) {
        let moves = self.moves.load(Ordering::Relaxed);
        debug_assert!(moves < MOVES_MAX, "it may move no more");
        if let Some(place) = self.moved.get(moves) {
            let _ = place.set(EngineSocket::new(attachment, sock));
            self.moves.store(moves + 1, Ordering::Release);
        }
    }

    /// Whether it may go to another engine, where it stays.
    pub(crate) fn may_move(&self) -> bool {
        self.moves.load(Ordering::Relaxed) == 0 && self.is_at_rest()
    }

    /// Whether it may go from the engine to which it has moved to one that threads share.
    pub(crate) fn may_return(&self) -> bool {
        self.moves.load(Ordering::Relaxed) < MOVES_MAX
            && self.tries.load(Ordering::Relaxed) < TRIES_MAX
            && self.is_at_rest()
    }

    pub(crate) fn has_moves_left(&self) -> bool {
        self.moves.load(Ordering::Acquire) < MOVES_MAX
    }

    fn is_at_rest(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == OPEN
            && self.shut.load(Ordering::Relaxed) == 0
            && self.unsent_low.load(Ordering::Relaxed) == 0
    }

    /// Counts an attempt to have it go. Returns false if there were enough.
    pub(crate) fn tries_to_move(&self) -> bool {
        let tries = self.tries.load(Ordering::Relaxed);
        self.tries.store(tries.saturating_add(1), Ordering::Relaxed);
        tries < TRIES_MAX
    }

    /// Prevents moves.
    pub(crate) fn stay(&self) {
        self.tries.store(TRIES_MAX, Ordering::Relaxed);
    }

    /// Returns the readiness that watchers are notified of after a move, without room that no
    /// thread waits for.
    pub(crate) fn readiness_after_move(&self) -> u32 {
        let ready = self.readiness();
        match self.wants_space.load(Ordering::SeqCst) {
            true => ready,
            false => ready & !bits::OUT,
        }
    }

    /// A wait of `thread` for this connection alone has ended. Returns whether so many of that
    /// thread's have in a row that the connection is taken to be that thread's.
    pub(crate) fn is_waited_for_by(&self, thread: usize) -> bool {
        if self.waiter.swap(thread, Ordering::Relaxed) != thread {
            self.waits.store(0, Ordering::Relaxed);
            return false;
        }
        let waits = self.waits.load(Ordering::Relaxed);
        self.waits.store((waits + 1).min(WAITS), Ordering::Relaxed);
        waits == WAITS
    }

    /// Counts the connection as a user of its engine.
    pub(crate) fn count_user(&self) {
        self.is_counted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_counted(&self) -> bool {
        self.is_counted.load(Ordering::Relaxed)
    }

    /// The thread's waits are counted again.
    pub(crate) fn wait_longer(&self) {
        self.waits.store(0, Ordering::Relaxed);
    }

    /// Number of times that bytes were taken.
    pub(crate) fn reads(&self) -> u32 {
        self.reads.load(Ordering::Relaxed)
    }

    /// A new attempt after one that failed.
    pub(crate) fn try_again(&self, sock: SockId) {
        self.place().sock.store(pack(sock), Ordering::Release);
        self.told_seen.store(0, Ordering::Relaxed);
        self.wants_space.store(true, Ordering::Relaxed);
        self.phase.store(CONNECTING, Ordering::Release);
    }

    /// Bytes were taken.
    #[inline]
    pub(super) fn note_read(&self) {
        let reads = self.reads.load(Ordering::Relaxed);
        self.reads.store(reads.saturating_add(1), Ordering::Relaxed);
    }
}
