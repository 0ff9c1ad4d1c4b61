//! The descriptor table: our numbers and their descriptions.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use slipstack_mem::Lock;

use crate::epoll::Set;
use crate::errno::Errno;
use crate::interfaces::RouteSocket;
use crate::outcome::{Divert, Outcome};
use crate::socket::description::{Decided, Description};
use std::sync::Arc;

const CHUNK: usize = 1024;
const CHUNKS: usize = 1024;

/// Numbers from here on are left to the kernel.
pub(crate) const NUMBERS_MAX: usize = CHUNK * CHUNKS;

const NOT_OURS: u8 = 0;
const OURS: u8 = 1;

/// The object behind a number of ours.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Socket(Arc<Description>),
    Set(Arc<Set>),
    /// A NETLINK_ROUTE socket of the kernel, whose address lists are extended.
    Routes(Arc<RouteSocket>),
}

impl Entry {
    /// Sockets come before sets; the order in which several are locked.
    pub(crate) fn order(&self) -> (u8, u64) {
        match self {
            Entry::Socket(socket) => (0, socket.id),
            Entry::Set(set) => (1, set.id),
            Entry::Routes(socket) => (2, socket.id),
        }
    }
}

#[derive(Debug, Default)]
struct Slot {
    kind: AtomicU8,
    entry: Lock<Option<Entry>>,
}

/// Number → entry, in chunks that come into being when a number in them is first used.
#[derive(Debug)]
pub(crate) struct Table {
    chunks: Box<[OnceLock<Box<[Slot]>>]>,
    /// Taken while a chunk comes into being and its first number is put there, so that no fork
    /// comes in between.
    growing: Lock<()>,
}

impl Table {
    pub(crate) fn new() -> Self {
        Table {
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            growing: Lock::new(()),
        }
    }

    #[inline]
    fn slot(&self, number: i32) -> Option<&Slot> {
        let number = usize::try_from(number).ok()?;
        self.chunks.get(number / CHUNK)?.get()?.get(number % CHUNK)
    }

    #[inline]
    pub(crate) fn is_ours(&self, number: i32) -> bool {
        match self.slot(number) {
            Some(slot) => slot.kind.load(Ordering::Relaxed) != NOT_OURS,
            None => false,
        }
    }

    #[inline]
    pub(crate) fn find(&self, number: i32) -> Option<Entry> {
        let slot = self.slot(number)?;
        if slot.kind.load(Ordering::Relaxed) == NOT_OURS {
            return None;
        }
        slot.entry.lock().clone()
    }

    #[inline]
    pub(crate) fn socket(&self, number: i32) -> Option<Arc<Description>> {
        let slot = self.slot(number)?;
        if slot.kind.load(Ordering::Relaxed) == NOT_OURS {
            return None;
        }
        match &*slot.entry.lock() {
            Some(Entry::Socket(socket)) => Some(Arc::clone(socket)),
            _ => None,
        }
    }

    pub(crate) fn set(&self, number: i32) -> Option<Arc<Set>> {
        match self.find(number)? {
            Entry::Set(set) => Some(set),
            Entry::Socket(_) | Entry::Routes(_) => None,
        }
    }

    /// Puts `entry` under `number` (below [`NUMBERS_MAX`]) and returns the old entry.
    pub(crate) fn put(&self, number: i32, entry: Entry) -> Option<Entry> {
        let index = usize::try_from(number).ok()?;
        let chunk = self.chunks.get(index / CHUNK)?;
        let _growing = chunk.get().is_none().then(|| self.growing.lock());
        let slots = chunk.get_or_init(|| (0..CHUNK).map(|_| Slot::default()).collect());
        let slot = &slots[index % CHUNK];
        let mut place = slot.entry.lock();
        let before = place.replace(entry);
        slot.kind.store(OURS, Ordering::Release);
        before
    }

    /// Forgets `number` and returns its entry.
    pub(crate) fn take(&self, number: i32) -> Option<Entry> {
        let slot = self.slot(number)?;
        let mut place = slot.entry.lock();
        slot.kind.store(NOT_OURS, Ordering::Release);
        place.take()
    }

    fn slots(&self) -> impl Iterator<Item = (i32, &Slot)> {
        self.chunks
            .iter()
            .enumerate()
            .filter_map(|(base, chunk)| Some((base, chunk.get()?)))
            .flat_map(|(base, slots)| {
                slots
                    .iter()
                    .enumerate()
                    .map(move |(index, slot)| ((base * CHUNK + index) as i32, slot))
            })
    }

    /// Returns all descriptors of the table with their entries.
    pub(crate) fn all(&self) -> Vec<(i32, Entry)> {
        self.slots()
            .filter(|(_, slot)| slot.kind.load(Ordering::Acquire) != NOT_OURS)
            .filter_map(|(number, slot)| Some((number, slot.entry.lock().clone()?)))
            .collect()
    }

    /// Every socket, once for each of its numbers.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = Arc<Description>> {
        self.all().into_iter().filter_map(|(_, entry)| match entry {
            Entry::Socket(socket) => Some(socket),
            Entry::Set(_) | Entry::Routes(_) => None,
        })
    }

    /// Locks before a fork, because no other thread may change a slot while the process is copied.
    pub(crate) fn hold(&self) {
        self.growing.hold();
        for (_, slot) in self.slots() {
            slot.entry.hold();
        }
    }

    pub(crate) fn release(&self) {
        for (_, slot) in self.slots() {
            slot.entry.release();
        }
        self.growing.release();
    }

    /// The socket behind a number; `Kernel` if the number is not ours any more.
    #[inline]
    pub(crate) fn socket_of(&self, number: i32) -> Outcome<Arc<Description>> {
        self.socket(number).ok_or(Divert::Kernel)
    }

    /// The connection of the stack behind a number.
    pub(crate) fn connection(&self, fd: i32) -> Outcome<Arc<Description>> {
        let socket = self.socket_of(fd)?;
        match socket.decided() {
            Some(Decided::Stream(_)) => Ok(socket),
            Some(_) => Err(Errno::EOPNOTSUPP.into()),
            None => Err(Errno::ENOTCONN.into()),
        }
    }
}
