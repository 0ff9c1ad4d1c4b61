//! On which engine a connection is, and that it may go to another one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use slipstack_channel::{ProgramEnd, SockId};

use crate::link::Link;
use crate::socket::Stream;
use crate::socket::stream::{CONNECTING, OPEN, Place, pack, unpack};

impl Stream {
    #[inline]
    pub(super) fn place(&self) -> &Place {
        self.moved.get().unwrap_or(&self.first)
    }

    #[inline]
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.place().link
    }

    /// The program's end of the channel to that engine.
    #[inline]
    pub(super) fn program(&self) -> &ProgramEnd {
        &self.place().link.program
    }

    #[inline]
    pub(crate) fn sock(&self) -> SockId {
        unpack(self.place().sock.load(Ordering::Acquire))
    }

    /// Both, of one moment.
    pub(crate) fn link_and_sock(&self) -> (&Arc<Link>, SockId) {
        let place = self.place();
        (&place.link, unpack(place.sock.load(Ordering::Acquire)))
    }

    /// It has gone to another engine.
    pub(crate) fn set_moved(&self, link: Arc<Link>, sock: SockId) {
        let _ = self.moved.set(Place::new(link, sock));
        self.told_seen.store(0, Ordering::Relaxed);
    }

    /// Whether it may go to another engine, if nobody has used it yet.
    pub(crate) fn may_move(&self) -> bool {
        self.moved.get().is_none()
            && self.phase.load(Ordering::Relaxed) == OPEN
            && self.shut.load(Ordering::Relaxed) == 0
            && self.reads.load(Ordering::Relaxed) == 0
    }

    /// Whether it is open in both directions, as far as the program knows.
    pub(crate) fn is_whole(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == OPEN && self.shut.load(Ordering::Relaxed) == 0
    }

    /// How often bytes were taken.
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
