//! The descriptor table: our numbers and their descriptions.

use std::mem;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use slipstack_mem::{Descriptor, Lock};

use crate::epoll::Set;
use crate::errno::Errno;
use crate::interfaces::RouteSocket;
use crate::outcome::{Divert, Outcome};
use crate::process::renewal::{Left, Parentage, Renewal};
use crate::socket::description::{Decided, Description};
use std::sync::Arc;

const CHUNK: usize = 1024;
const CHUNKS: usize = 1024;

/// Numbers from here on are left to the kernel.
pub(crate) const NUMBERS_MAX: usize = CHUNK * CHUNKS;

const NOT_OURS: u8 = 0;
const OURS: u8 = 1;
/// Ours by a fork: the entry is the parent's until it is looked up.
const PARENTS: u8 = 2;

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

    fn is_connection(&self) -> bool {
        let is_it = |socket: &Description| {
            matches!(
                socket.decided(),
                Some(Decided::Stream(_) | Decided::Foreign(_))
            )
        };
        matches!(self, Entry::Socket(socket) if is_it(socket))
    }

    /// The socket that this is, unless it is a connection.
    pub(crate) fn into_unconnected(self) -> Option<Arc<Description>> {
        match self {
            Entry::Socket(_) if self.is_connection() => None,
            Entry::Socket(socket) => Some(socket),
            Entry::Set(_) | Entry::Routes(_) => None,
        }
    }
}

#[derive(Debug, Default)]
struct Slot {
    kind: AtomicU8,
    entry: Lock<Option<Entry>>,
}

/// The slots of numbers that follow each other.
#[derive(Debug)]
struct Chunk {
    slots: Box<[Slot]>,
    /// Slots from this one on have never had an entry.
    end: AtomicUsize,
}

impl Chunk {
    fn new() -> Chunk {
        Chunk {
            slots: (0..CHUNK).map(|_| Slot::default()).collect(),
            end: AtomicUsize::new(0),
        }
    }

    fn used(&self) -> &[Slot] {
        let end = self.end.load(Ordering::Acquire);
        self.slots.get(..end).unwrap_or_default()
    }
}

/// Number → entry, in chunks that come into being when a number in them is first used.
#[derive(Debug)]
pub(crate) struct Table {
    chunks: Box<[OnceLock<Chunk>]>,
    /// Chunks from this one on have never been used.
    end: AtomicUsize,
    /// Taken while an entry comes or goes, so that no fork comes in between.
    changing: Lock<()>,
    /// Changes with each entry that comes.
    version: AtomicU64,
    renewal: Renewal,
}

impl Table {
    pub(crate) fn new() -> Self {
        Table {
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            end: AtomicUsize::new(0),
            changing: Lock::new(()),
            version: AtomicU64::new(0),
            renewal: Renewal::default(),
        }
    }

    #[inline]
    fn slot(&self, number: i32) -> Option<&Slot> {
        let number = usize::try_from(number).ok()?;
        let chunk = self.chunks.get(number / CHUNK)?.get()?;
        chunk.slots.get(number % CHUNK)
    }

    /// The slot of a number of ours, with an entry that is this process's own.
    #[inline]
    fn own_slot(&self, number: i32) -> Option<&Slot> {
        let slot = self.slot(number)?;
        match slot.kind.load(Ordering::Relaxed) {
            OURS => {}
            NOT_OURS => return None,
            _ => self.renewal.renew(self, number),
        }
        Some(slot)
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
        self.own_slot(number)?.entry.lock().clone()
    }

    #[inline]
    pub(crate) fn socket(&self, number: i32) -> Option<Arc<Description>> {
        match &*self.own_slot(number)?.entry.lock() {
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
        self.own_slot(number);
        self.put_own(number, entry)
    }

    /// As [`Table::put`], also in the place of an entry of the parent's.
    pub(crate) fn put_own(&self, number: i32, entry: Entry) -> Option<Entry> {
        let index = usize::try_from(number).ok()?;
        let chunk = self.chunks.get(index / CHUNK)?;
        let _changing = self.changing.lock();
        let chunk = chunk.get_or_init(Chunk::new);
        chunk.end.fetch_max(index % CHUNK + 1, Ordering::AcqRel);
        self.end.fetch_max(index / CHUNK + 1, Ordering::AcqRel);
        let slot = &chunk.slots[index % CHUNK];
        let mut place = slot.entry.lock();
        let before = place.replace(entry);
        self.version.fetch_add(1, Ordering::AcqRel);
        slot.kind.store(OURS, Ordering::Release);
        before
    }

    /// Forgets `number` and returns its entry.
    pub(crate) fn take(&self, number: i32) -> Option<Entry> {
        self.own_slot(number);
        let slot = self.slot(number)?;
        let _changing = self.changing.lock();
        let mut place = slot.entry.lock();
        slot.kind.store(NOT_OURS, Ordering::Release);
        place.take()
    }

    /// The slots that have had an entry.
    fn slots(&self) -> impl Iterator<Item = (i32, &Slot)> {
        let chunks = self.chunks.iter().enumerate();
        let used = chunks.take(self.end.load(Ordering::Acquire));
        used.filter_map(|(base, chunk)| Some((base, chunk.get()?)))
            .flat_map(|(base, chunk)| {
                let slots = chunk.used().iter().enumerate();
                slots.map(move |(index, slot)| ((base * CHUNK + index) as i32, slot))
            })
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns all descriptors of the table with their entries.
    pub(crate) fn all(&self) -> Vec<(i32, Entry)> {
        self.own_all();
        self.slots()
            .filter(|(_, slot)| slot.kind.load(Ordering::Acquire) != NOT_OURS)
            .filter_map(|(number, slot)| Some((number, slot.entry.lock().clone()?)))
            .collect()
    }

    /// Every epoll set, once.
    pub(crate) fn sets(&self) -> Vec<Arc<Set>> {
        let numbers = self.numbers_of(|_, entry| matches!(entry, Entry::Set(_)));
        let mut sets: Vec<Arc<Set>> = Vec::new();
        for set in numbers.into_iter().filter_map(|number| self.set(number)) {
            if !sets.iter().any(|it| Arc::ptr_eq(it, &set)) {
                sets.push(set);
            }
        }
        sets
    }

    /// Every socket, once for each of its numbers.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = Arc<Description>> {
        self.all().into_iter().filter_map(|(_, entry)| match entry {
            Entry::Socket(socket) => Some(socket),
            Entry::Set(_) | Entry::Routes(_) => None,
        })
    }

    /// Every socket that is no connection, once for each of its numbers. A parent's connections
    /// stay the parent's.
    pub(crate) fn unconnected(&self) -> impl Iterator<Item = Arc<Description>> {
        let others = self.numbers_of(|_, entry| !entry.is_connection());
        let others = others.into_iter();
        others.filter_map(|number| self.find(number)?.into_unconnected())
    }

    /// Every socket that is neither the stack's nor the kernel's yet, once for each of its numbers.
    pub(crate) fn undecided(&self) -> impl Iterator<Item = Arc<Description>> {
        // Others of a parent are not touched, so that they stay the parent's.
        let is_it = |_, entry: &Entry| match entry {
            Entry::Socket(socket) => socket.decided().is_none(),
            Entry::Set(_) | Entry::Routes(_) => false,
        };
        let numbers = self.numbers_of(is_it).into_iter();
        numbers.filter_map(|number| self.socket_of(number).ok())
    }

    /// Whether a connection of another process is among the sockets.
    pub(crate) fn has_foreign(&self) -> bool {
        let is_it = |kind, entry: &Entry| match entry {
            _ if kind == PARENTS => entry.is_connection(),
            Entry::Socket(socket) => socket.is_from_elsewhere(),
            Entry::Set(_) | Entry::Routes(_) => false,
        };
        !self.numbers_of(is_it).is_empty()
    }

    /// The numbers whose entries `is_it` names, with their kinds.
    fn numbers_of(&self, is_it: impl Fn(u8, &Entry) -> bool) -> Vec<i32> {
        let found = self.slots().filter(|(_, slot)| {
            let kind = slot.kind.load(Ordering::Acquire);
            kind != NOT_OURS && slot.entry.lock().as_ref().is_some_and(|it| is_it(kind, it))
        });
        found.map(|(number, _)| number).collect()
    }

    /// Shows every socket with each of its numbers, also while a fork holds the table.
    pub(crate) fn each_socket(&self, mut see: impl FnMut(i32, &Description)) {
        for (number, slot) in self.slots() {
            if slot.kind.load(Ordering::Acquire) != NOT_OURS
                && let Some(Entry::Socket(socket)) = &*slot.entry.lock()
            {
                see(number, socket);
            }
        }
    }

    /// All descriptors of the table.
    pub(crate) fn numbers(&self) -> Vec<i32> {
        self.numbers_of(|_, _| true)
    }

    /// Locks before a fork, because no other thread may change a slot while the process is copied.
    /// The slots themselves stay as they are: each that was locked would be a page to copy.
    pub(crate) fn hold(&self) {
        self.renewal.hold();
        self.changing.hold();
    }

    pub(crate) fn release(&self) {
        self.changing.release();
        self.renewal.release();
    }

    /// Frees, in a forked child, the slots at which other threads of the parent were looking.
    pub(crate) fn free_in_child(&self) {
        for (_, slot) in self.slots() {
            slot.entry.free_in_child();
        }
    }

    /// Marks the sockets and sets as the parent's, in a forked child.
    pub(crate) fn inherit(&self, parentage: Parentage) {
        let inherited = self.numbers_of(|_, entry| !matches!(entry, Entry::Routes(_)));
        for slot in inherited.iter().filter_map(|number| self.slot(*number)) {
            slot.kind.store(PARENTS, Ordering::Release);
        }
        self.renewal.begin(parentage);
    }

    fn own_all(&self) {
        if self.renewal.is_any() {
            self.renewal.renew_all(self);
        }
    }

    /// Takes numbers that the program closes, as far as it has not used what is under them since
    /// the fork; see [`Renewal::leave`].
    pub(crate) fn leave_unused(&self, is_closed: &dyn Fn(i32) -> bool) -> Left {
        match self.renewal.is_any() {
            true => self.renewal.leave(self, is_closed),
            false => Left::default(),
        }
    }

    /// Takes the number of a set that the program closes without having used one since the fork.
    pub(crate) fn leave_set(&self, number: i32) -> Option<Option<Descriptor>> {
        let slot = self.slot(number)?;
        let is_parents = slot.kind.load(Ordering::Relaxed) == PARENTS;
        is_parents.then(|| self.renewal.leave_set(self, number))?
    }

    /// Shows every entry of the parent's. None of them is copied, which would write to the parent's
    /// memory.
    pub(crate) fn each_parents_entry(&self, mut see: impl FnMut(i32, &Entry)) {
        for (number, slot) in self.slots() {
            if slot.kind.load(Ordering::Acquire) == PARENTS
                && let Some(entry) = &*slot.entry.lock()
            {
                see(number, entry);
            }
        }
    }

    /// Forgets a number of the parent's.
    pub(crate) fn forget_parents(&self, number: i32) {
        if let Some(slot) = self.slot(number) {
            let _changing = self.changing.lock();
            let mut place = slot.entry.lock();
            slot.kind.store(NOT_OURS, Ordering::Release);
            // The entry is the parent's: its destructor must not run.
            mem::forget(place.take());
        }
    }

    /// The numbers whose entries are the parent's.
    pub(crate) fn parents_numbers(&self) -> Vec<i32> {
        self.numbers_of(|kind, _| kind == PARENTS)
    }

    /// The parent's entry under `number`.
    pub(crate) fn parents_entry(&self, number: i32) -> Option<Entry> {
        let slot = self.slot(number)?;
        let is_it = slot.kind.load(Ordering::Acquire) == PARENTS;
        slot.entry.lock().clone().filter(|_| is_it)
    }

    /// Whether `socket` is the parent's entry under `number`.
    pub(crate) fn is_parents(&self, number: i32, socket: &Arc<Description>) -> bool {
        let Some(slot) = self.slot(number) else {
            return false;
        };
        slot.kind.load(Ordering::Acquire) == PARENTS
            && matches!(&*slot.entry.lock(), Some(Entry::Socket(it)) if Arc::ptr_eq(it, socket))
    }

    /// The parent's sets are this process's: they are the same objects.
    pub(crate) fn own_sets(&self) {
        let is_set = |entry: &Entry| matches!(entry, Entry::Set(_));
        for number in self.numbers_of(|kind, entry| kind == PARENTS && is_set(entry)) {
            if let Some(slot) = self.slot(number) {
                slot.kind.store(OURS, Ordering::Release);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Family;
    use crate::socket::description::{Kind, New};

    fn socket(id: u64) -> Entry {
        Entry::Socket(Arc::new(Description::new(New {
            id,
            family: Family::V4,
            kind: Kind::Stream,
            protocol: 0,
            is_nonblocking: false,
        })))
    }

    #[test]
    fn numbers_far_apart_are_found_until_they_are_taken() {
        let table = Table::new();
        let numbers = [0, 5, 1023, 1024, 70_000];
        for number in numbers {
            assert!(table.put(number, socket(number as u64)).is_none());
        }
        assert_eq!(table.numbers(), numbers);
        assert!(table.take(1024).is_some() && table.find(1024).is_none());
        assert_eq!(table.numbers(), [0, 5, 1023, 70_000]);
    }

    #[test]
    fn a_child_finds_what_another_thread_of_its_parent_was_looking_at() {
        let table = Table::new();
        table.put(5, socket(1));
        mem::forget(table.slot(5).map(|slot| slot.entry.lock()));
        table.hold();
        table.release();
        table.free_in_child();
        assert!(table.socket(5).is_some() && table.take(5).is_some());
    }
}
