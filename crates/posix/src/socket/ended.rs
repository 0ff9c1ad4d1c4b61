//! Connections and attempts that have ended while their sockets are open.

use std::sync::atomic::Ordering;

use slipstack_channel::{CloseMode, SockId};

use super::stream::{CONNECTING, ENDED, FAILED, REFUSED, Stream};
use crate::errno::Errno;

/// A generation that no socket of a channel ever has.
const NO_GENERATION: u32 = 0;

impl Stream {
    /// The attempt has failed before its SYN; its port is free, as __inet_hash_connect() leaves it.
    pub(crate) fn fail(&self) {
        self.phase.store(FAILED, Ordering::Release);
    }

    /// The attempt was refused before it looked for a port: tcp_v4_connect() leaves the socket as
    /// it was.
    pub(crate) fn refuse(&self) {
        self.leave(REFUSED);
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.phase.load(Ordering::Acquire) == REFUSED
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= FAILED
    }

    /// Returns whether an attempt has failed after it began, or the connection has ended on both
    /// sides.
    pub(crate) fn has_ended(&self) -> bool {
        !self.is_refused() && (self.is_failed() || self.seen().is_closed())
    }

    /// Returns whether it was disconnected: the socket is as if it had never been connected.
    pub(crate) fn is_ended(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= ENDED
    }

    /// tcp_disconnect(): a connection is reset, an attempt given up with an error.
    pub(crate) fn disconnect(&self) {
        let seen = self.seen();
        // tcp_need_reset(), and SYN-SENT.
        if !(seen.is_error() || seen.is_hup() || seen.is_closed() || self.is_failed()) {
            self.pending_error
                .store(Errno::ECONNRESET.0, Ordering::Relaxed);
        }
        self.leave(ENDED);
    }

    /// Leaves its cell of the channel.
    fn leave(&self, phase: u8) {
        let here = self.here();
        let sock = here.sock();
        self.take_unanswered();
        self.shut.store(0, Ordering::Relaxed);
        self.phase.store(phase, Ordering::Release);
        let none = SockId {
            generation: NO_GENERATION,
            ..sock
        };
        here.forget(none);
        here.attachment().close(sock, CloseMode::Abort);
        here.attachment().commands();
    }

    /// Whether it is under way to its peer: SYN-SENT.
    pub(crate) fn is_attempt(&self) -> bool {
        let seen = self.seen();
        self.phase.load(Ordering::Acquire) == CONNECTING
            && !(seen.is_connected() || seen.is_error() || seen.is_closed())
    }
}
