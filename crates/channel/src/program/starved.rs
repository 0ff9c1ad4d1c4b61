//! Sockets that found the send arena full. The engine has no event for new room: it appears when
//! another socket gives a ring back, which only the program knows.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::VecDeque;

use slipstack_mem::{Arena, ByteRing, Lock};

use crate::cell::Cell;
use crate::event::{ChannelEvent, EventKind};
use crate::ids::SockId;

use super::ProgramEnd;
use super::sockets::TxSide;

#[derive(Debug, Default)]
pub(super) struct Starved {
    is_any: AtomicBool,
    /// A ring was freed since a socket began to wait.
    has_freed: AtomicBool,
    list: Lock<VecDeque<SockId>>,
}

impl ProgramEnd {
    /// Records that the arena had no ring for all of `wanted` bytes. Tries once more after the
    /// socket is listed as waiting, so that a ring freed in between is not missed.
    #[cold]
    pub(super) fn starve(
        &self,
        sock: SockId,
        cell: &Cell<'_>,
        tx: &mut TxSide,
        wanted: usize,
    ) -> usize {
        if tx.is_sealed {
            return 0;
        }
        if !core::mem::replace(&mut tx.is_starved, true) {
            self.inner.starved.list.lock().push_back(sock);
        }
        self.inner.starved.is_any.store(true, Ordering::SeqCst);
        cell.want_tx();
        self.make_room(sock, cell, tx, wanted)
    }

    /// Every ring that is not in use any more goes this way.
    pub(super) fn give_back(&self, arena: &mut Arena, ring: ByteRing) {
        arena.free(ring);
        if self.inner.starved.is_any.load(Ordering::SeqCst) {
            self.inner.starved.has_freed.store(true, Ordering::SeqCst);
        }
    }

    /// Returns whether a socket waits for memory: before a thread blocks, or gives up, it then
    /// calls [`ProgramEnd::notify_starved`].
    #[inline]
    pub fn is_starving(&self) -> bool {
        self.inner.starved.is_any.load(Ordering::Relaxed)
    }

    /// Sockets that wait for memory have an event if there may be some. `true`: they still wait,
    /// and this is to be called again soon.
    pub fn notify_starved(&self) -> bool {
        let starved = &self.inner.starved;
        if !self.is_starving() {
            return false;
        }
        self.release_idle();
        if !starved.has_freed.swap(false, Ordering::SeqCst) {
            return true;
        }
        starved.is_any.store(false, Ordering::SeqCst);
        let waiting = core::mem::take(&mut *starved.list.lock());
        for sock in waiting {
            let Some(local) = self.inner.sockets.find(sock) else {
                continue;
            };
            local.tx.lock().is_starved = false;
            self.inner.early.lock().push_back(ChannelEvent {
                sock,
                kind: EventKind::Changed,
            });
            self.inner.has_early.store(true, Ordering::Release);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::datagram::Envelope;
    use crate::engine_end::EngineEnd;
    use crate::program::Unsent;
    use slipstack_mem::RING_LOG2_MAX;
    use slipstack_terms::Transport;

    /// A program whose send arena is full, and the rings that fill it.
    fn full() -> (EngineEnd, ProgramEnd, Vec<ByteRing>) {
        let engine = EngineEnd::create().unwrap();
        let program = ProgramEnd::open(engine.region().clone()).unwrap();
        let taken = {
            let mut arena = program.inner.arena.lock();
            core::iter::from_fn(|| arena.allocate(1 << RING_LOG2_MAX)).collect()
        };
        (engine, program, taken)
    }

    fn send(program: &ProgramEnd, sock: SockId) -> usize {
        program.send(sock, &[IoSlice::new(b"abc")], false)
    }

    #[test]
    fn a_writer_that_found_no_memory_is_woken_when_there_is_some() {
        let (_engine, program, mut taken) = full();
        let sock = program.open_socket(Transport::Tcp).unwrap();
        let other = program.open_socket(Transport::Tcp).unwrap();
        assert!(!program.notify_starved());
        for _ in 0..2 {
            assert_eq!((send(&program, sock), send(&program, other)), (0, 0));
        }
        assert!(program.notify_starved());
        assert_eq!(program.poll_event(), None);
        let ring = taken.pop().unwrap();
        program.give_back(&mut program.inner.arena.lock(), ring);
        assert!(!program.notify_starved());
        for sock in [sock, other] {
            let kind = EventKind::Changed;
            assert_eq!(program.poll_event(), Some(ChannelEvent { sock, kind }));
            assert_eq!(send(&program, sock), 3);
        }
        assert_eq!(program.poll_event(), None);
        assert!(!program.notify_starved());
    }

    #[test]
    fn a_closed_socket_gets_no_events() {
        let (_engine, program, mut taken) = full();
        let sock = program.open_socket(Transport::Tcp).unwrap();
        assert_eq!(send(&program, sock), 0);
        program.inner.sockets.release(sock);
        let ring = taken.pop().unwrap();
        program.give_back(&mut program.inner.arena.lock(), ring);
        assert!(!program.notify_starved());
        assert_eq!(program.poll_event(), None);
    }

    #[test]
    fn a_datagram_without_memory_is_refused_instead_of_waiting() {
        let (_engine, program, _taken) = full();
        let sock = program.open_socket(Transport::Udp).unwrap();
        let sent = program.udp_send(sock, &Envelope::default(), &[IoSlice::new(b"abc")]);
        assert_eq!(sent, Err(Unsent::NoMemory));
    }
}
