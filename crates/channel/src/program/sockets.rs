//! Private state of the program's side for each socket.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::collections::VecDeque;
use std::sync::OnceLock;

use slipstack_mem::{ByteRing, Lock};

use slipstack_terms::Transport;

use crate::cell::TxMark;
use crate::ids::{SockId, next_generation};
use crate::layout::{PROGRAM_SOCKETS, SOCKETS};
use crate::lazy_box::LazyBox;
use crate::shrink::Lap;
use crate::state::StateWord;

use super::blocks::Lent;

const CHUNK: usize = 256;

/// No process gets a signal for urgent data.
pub(super) const NO_OWNER: u64 = u64::MAX;

/// The sending direction.
#[derive(Debug, Default)]
pub(super) struct TxSide {
    pub(super) ring: Option<ByteRing>,
    /// Generation of the last ring word written.
    pub(super) generation: u32,
    /// Stream offset after the last byte written.
    pub(super) head: u64,
    /// Replaced rings that the engine may still read, with the generation that replaced them.
    pub(super) retired: LazyBox<Vec<(ByteRing, u32)>>,
    /// Used part of a large ring.
    pub(super) lap: Lap,
    /// The socket is listed with those that wait for memory.
    pub(super) is_starved: bool,
    /// The program writes nothing more ([`ProgramEnd::seal`](super::ProgramEnd::seal)).
    pub(super) is_sealed: bool,
    /// Bytes outside the ring, once there have been some.
    pub(super) lent: Option<Box<Lent>>,
}

impl TxSide {
    /// The stream offset of the next byte. `None`: there is to be none.
    #[inline]
    pub(super) fn open_head(&self) -> Option<u64> {
        (!self.is_sealed).then_some(self.head)
    }

    #[inline]
    pub(super) fn mark(&self, more: bool) -> TxMark {
        TxMark::new(more, self.lent.as_ref().map_or(0, |lent| lent.end))
    }
}

/// The receiving direction.
#[derive(Debug, Default)]
pub(super) struct RxSide {
    /// Stream offset after the last byte read.
    pub(super) tail: u64,
    /// After the last urgent byte that was taken by itself.
    pub(super) urgent_taken: u64,
    /// Segments that the program keeps, in the stream's order.
    pub(super) kept: LazyBox<VecDeque<Kept>>,
}

/// A segment that the program keeps: see [`super::kept`].
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) start: u64,
    pub(super) is_back: bool,
}

impl RxSide {
    /// Returns how many segments the program keeps.
    #[inline]
    pub(super) fn kept_count(&self) -> usize {
        self.kept.get().map_or(0, VecDeque::len)
    }

    /// Returns the position up to which the engine may use the ring again.
    #[inline]
    pub(super) fn released(&self) -> u64 {
        let first = self.kept.get().and_then(VecDeque::front);
        first.map_or(self.tail, |first| first.start)
    }
}

/// One socket.
#[derive(Debug, Default)]
pub(super) struct SockLocal {
    /// Generation of the current use; 0 = none.
    pub(super) generation: AtomicU32,
    /// Generation of the last use of an index of the program's half.
    last_generation: AtomicU32,
    /// Listed in `ring_holders`; belongs to the index, not to its present use, so that an index
    /// is listed once however often it is used. Changes with `tx` locked.
    pub(super) is_listed: AtomicBool,
    pub(super) is_udp: AtomicBool,
    pub(super) is_closing: AtomicBool,
    /// The mark that the socket's owner has had a signal for, plus one; [`NO_OWNER`].
    pub(super) signalled: AtomicU64,
    /// SO_OOBINLINE.
    pub(super) is_urgent_inline: AtomicBool,
    pub(super) errors_taken: AtomicU8,
    pub(super) tx: Lock<TxSide>,
    pub(super) rx: Lock<RxSide>,
    pub(super) accepted: Lock<LazyBox<VecDeque<SockId>>>,
    /// Index, plus one, of the listener that the connection came from.
    listener: AtomicU32,
}

impl SockLocal {
    /// Returns whether the error in this word has been taken (or there is none).
    #[inline]
    pub(super) fn has_taken(&self, word: StateWord) -> bool {
        word.error_count == self.errors_taken.load(Ordering::Acquire)
    }

    fn begin(&self, generation: u32, kind: Transport) {
        *self.tx.lock() = TxSide::default();
        *self.rx.lock() = RxSide::default();
        self.accepted.lock().take();
        self.listener.store(0, Ordering::Relaxed);
        self.errors_taken.store(0, Ordering::Relaxed);
        self.is_closing.store(false, Ordering::Relaxed);
        self.is_urgent_inline.store(false, Ordering::Relaxed);
        self.signalled.store(NO_OWNER, Ordering::Relaxed);
        self.is_udp.store(kind == Transport::Udp, Ordering::Relaxed);
        self.last_generation.store(generation, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Release);
    }
}

/// Indices of the program's half that are free.
#[derive(Debug, Default)]
struct Indices {
    free: Vec<u32>,
    untouched: u32,
}

/// All sockets, in chunks that come into being when first touched.
#[derive(Debug)]
pub(super) struct Sockets {
    chunks: Vec<OnceLock<Box<[SockLocal]>>>,
    indices: Lock<Indices>,
}

impl Sockets {
    pub(super) fn new() -> Sockets {
        Sockets {
            chunks: (0..SOCKETS / CHUNK).map(|_| OnceLock::new()).collect(),
            indices: Lock::new(Indices::default()),
        }
    }

    pub(super) fn slot(&self, index: u32) -> Option<&SockLocal> {
        let chunk = self.chunks.get(index as usize / CHUNK)?;
        let chunk =
            chunk.get_or_init(|| (0..CHUNK).map(|_| SockLocal::default()).collect::<Box<_>>());
        chunk.get(index as usize % CHUNK)
    }

    /// The socket if the id is current.
    #[inline]
    pub(super) fn find(&self, sock: SockId) -> Option<&SockLocal> {
        let chunk = self.chunks.get(sock.index as usize / CHUNK)?.get()?;
        let local = chunk.get(sock.index as usize % CHUNK)?;
        (local.generation.load(Ordering::Acquire) == sock.generation && sock.generation != 0)
            .then_some(local)
    }

    /// A fresh use of an index of the program's half.
    pub(super) fn open(&self, kind: Transport) -> Option<SockId> {
        let index = {
            let mut indices = self.indices.lock();
            match indices.free.pop() {
                Some(index) => index,
                None if (indices.untouched as usize) < PROGRAM_SOCKETS => {
                    indices.untouched += 1;
                    indices.untouched - 1
                }
                None => return None,
            }
        };
        let local = self.slot(index)?;
        let generation = next_generation(local.last_generation.load(Ordering::Relaxed));
        local.begin(generation, kind);
        Some(SockId { index, generation })
    }

    /// Begins the use of an index of the engine's half, which the engine chose.
    pub(super) fn adopt(&self, sock: SockId) -> bool {
        if (sock.index as usize) < PROGRAM_SOCKETS || sock.generation == 0 {
            return false;
        }
        let Some(local) = self.slot(sock.index) else {
            return false;
        };
        local.begin(sock.generation, Transport::Tcp);
        true
    }

    /// Frees an index that the engine has released.
    pub(super) fn release(&self, sock: SockId) {
        let Some(local) = self.find(sock) else { return };
        local.generation.store(0, Ordering::Release);
        if (sock.index as usize) < PROGRAM_SOCKETS {
            self.indices.lock().free.push(sock.index);
        }
    }

    /// Queues a connection at its listener; `None` when the listener is closed.
    pub(super) fn queue_accepted(&self, listener: u16, sock: SockId) -> Option<SockId> {
        let local = self.slot(u32::from(listener))?;
        let id = SockId {
            index: u32::from(listener),
            generation: local.generation.load(Ordering::Acquire),
        };
        let mut accepted = local.accepted.lock();
        if id.generation == 0 || local.is_closing.load(Ordering::Acquire) {
            return None;
        }
        accepted.make().push_back(sock);
        if let Some(it) = self.find(sock) {
            it.listener
                .store(u32::from(listener) + 1, Ordering::Relaxed);
        }
        Some(id)
    }

    /// A connection waits in no queue any more.
    pub(super) fn on_taken(&self, sock: SockId) {
        if let Some(it) = self.find(sock) {
            it.listener.store(0, Ordering::Relaxed);
        }
    }

    /// Takes a connection out of the queue that it waits in; the listener.
    pub(super) fn unqueue(&self, local: &SockLocal, sock: SockId) -> Option<SockId> {
        let index = local.listener.load(Ordering::Relaxed).checked_sub(1)?;
        let listener = self.slot(index)?;
        let mut accepted = listener.accepted.lock();
        let queue = accepted.get_mut()?;
        let at = queue.iter().position(|other| *other == sock)?;
        queue.remove(at);
        Some(SockId {
            index,
            generation: listener.generation.load(Ordering::Acquire),
        })
    }

    /// Everything that waits at a listener.
    pub(super) fn take_accepted(&self, listener: &SockLocal) -> VecDeque<SockId> {
        listener.accepted.lock().take()
    }
}
