//! The members of one set and its ready list.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{OnceLock, Weak};

use slipstack_mem::{Descriptor, Lock};

use crate::attachment::Attachment;
use crate::epoll::home::Home;
use crate::errno::Errno;
use crate::idhash::BuildIdHasher;
use crate::kqueue::Queue;
use crate::ready::{Awaited, KernelLooks, Rings, Waiter, Watch, Watcher, bits};
use crate::socket::description::{Decided, Description};

const EDGE: u32 = libc::EPOLLET as u32;
pub(super) const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// EP_PRIVATE_BITS: the remaining event bits of a ONESHOT item that has fired.
pub(crate) const PRIVATE: u32 = EDGE | ONE_SHOT | EXCLUSIVE | libc::EPOLLWAKEUP as u32;

/// The event data of the shared set in a set of this process's own: a number that no program has
/// by chance.
pub(crate) const COMMON_DATA: u64 = 0x5ee9_c0d7_31b6_a84f;

/// Number of waits after which a set without a home is examined again.
const LOOK_EVERY: u32 = 256;

/// The target of an item of the ready list.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Socket(Arc<Description>),
    Set(Arc<Set>),
}

impl Target {
    pub(crate) fn id(&self) -> u64 {
        match self {
            Target::Socket(socket) => socket.id,
            Target::Set(set) => set.id,
        }
    }

    pub(crate) fn is_listener(&self) -> bool {
        match self {
            Target::Socket(socket) => matches!(socket.decided(), Some(Decided::Listener(_))),
            Target::Set(_) => false,
        }
    }

    pub(crate) fn readiness(&self) -> u32 {
        match self {
            Target::Socket(socket) => socket.readiness(),
            Target::Set(set) if set.has_ready() => bits::IN,
            Target::Set(_) => 0,
        }
    }

    pub(crate) fn come_back_if_attended(&self) {
        if let Target::Socket(socket) = self {
            socket.come_back_if_attended();
        }
    }

    pub(crate) fn awaited(&self) -> Arc<dyn Awaited> {
        match self {
            Target::Socket(socket) => Arc::<Description>::clone(socket),
            Target::Set(set) => Arc::<Set>::clone(set),
        }
    }

    pub(crate) fn watch(&self, watch: Watch) {
        match self {
            Target::Socket(socket) => socket.watch(watch),
            Target::Set(set) => set.watch(watch),
        }
    }

    pub(crate) fn unwatch(&self, is_it: &dyn Fn(&Watch) -> bool) {
        match self {
            Target::Socket(socket) => socket.unwatch(is_it),
            Target::Set(set) => set.unwatch(is_it),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) fd: i32,
    pub(crate) target: Target,
    pub(crate) events: u32,
    pub(crate) data: u64,
    pub(crate) is_queued: bool,
    /// Events since the last check.
    pub(crate) edges: u32,
    /// The number carries a kernel socket that is a member of the kernel's set too.
    pub(crate) has_kernel_part: bool,
    /// The kernel's part is not asked for room, because the stack's has none.
    pub(crate) is_without_room: bool,
    /// The events of an ONESHOT item that has fired in the kernel.
    pub(super) fired: u32,
}

impl Item {
    /// Returns the events to report. While a socket lives in both worlds its readiness leaves room
    /// to the kernel's part, which always has some: new room in the stack's part is an event.
    fn ready_events(&self) -> u32 {
        let room = match self.has_kernel_part {
            true => self.edges & bits::OUT,
            false => 0,
        };
        (self.target.readiness() | room) & self.events & !PRIVATE
    }
}

/// An event for the program, with whether its item lives in both worlds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) events: u32,
    pub(crate) data: u64,
    pub(crate) is_listener: bool,
    /// The number under which the kernel's set has it too.
    pub(crate) kernel_part: Option<i32>,
    /// EPOLLONESHOT: nothing more comes until it is set again.
    pub(crate) rests: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) items: HashMap<u64, Item, BuildIdHasher>,
    pub(crate) index: HashMap<(i32, u64), u64, BuildIdHasher>,
    next_item: u64,
    pub(crate) ready: VecDeque<u64>,
    pub(crate) waiters: Vec<Arc<Waiter>>,
    pub(crate) watches: Vec<Watch>,
    pub(crate) numbers: Vec<i32>,
    pub(crate) looks: KernelLooks,
    /// Items with a kernel part; few.
    pub(super) both: Vec<u64>,
    /// The engine that it is at home at, if it is not the first.
    home: Option<Arc<Attachment>>,
    /// Members that have come since the last wait and may be on another engine.
    pub(crate) remote_members: Vec<Weak<Description>>,
}

impl Inner {
    /// Wakes one thread for an event; if it leaves without taking it, it wakes the next.
    pub(crate) fn wake_one(&self, rings: &mut Rings) {
        for waiter in &self.waiters {
            if rings.notify(waiter) {
                break;
            }
        }
    }

    pub(crate) fn forget(&mut self, item: u64) -> Option<Item> {
        let removed = self.items.remove(&item)?;
        self.index.remove(&(removed.fd, removed.target.id()));
        self.both.retain(|other| *other != item);
        Some(removed)
    }
}

/// One epoll instance.
#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) id: u64,
    pub(crate) inner: Lock<Inner>,
    /// Descriptors that were added to the kernel's set (an upper bound: closed ones leave by
    /// themselves).
    pub(crate) kernel_members: AtomicUsize,
    /// An intent of a member, or of a member of a set in it, has to be carried out.
    pub(crate) has_intents: AtomicBool,
    /// The kernel's set under the numbers is the parent's as well.
    pub(crate) is_inherited: AtomicBool,
    /// The set has been there at a fork: other processes may add to its part in the kernel.
    pub(crate) is_shared: AtomicBool,
    /// Number of the kernel's set that is shared with other processes, once the one under the
    /// program's numbers is this process's own: a member of that, with [`COMMON_DATA`]. -1: there
    /// is none.
    common: AtomicI32,
    /// The notes of a kqueue; not set for an epoll set.
    pub(crate) queue: OnceLock<Queue>,
    pub(crate) home: Home,
    /// Waits while it had no home.
    unsettled_waits: AtomicU32,
    /// Members have come that may be on another engine.
    pub(crate) has_remote_members: AtomicBool,
    /// See [`Item::is_without_room`].
    pub(super) is_any_without_room: AtomicBool,
}

impl Set {
    pub(crate) fn new(id: u64, number: i32) -> Self {
        let inner = Inner {
            numbers: vec![number],
            ..Inner::default()
        };
        Set {
            id,
            inner: Lock::new(inner),
            kernel_members: AtomicUsize::new(0),
            has_intents: AtomicBool::new(false),
            is_inherited: AtomicBool::new(false),
            is_shared: AtomicBool::new(false),
            common: AtomicI32::new(-1),
            queue: OnceLock::new(),
            home: Home::default(),
            unsettled_waits: AtomicU32::new(0),
            has_remote_members: AtomicBool::new(false),
            is_any_without_room: AtomicBool::new(false),
        }
    }

    /// Forgets a number that is closed. Returns whether this ends the set.
    pub(crate) fn close_number(&self, fd: i32) -> bool {
        let mut inner = self.inner.lock();
        inner.numbers.retain(|number| *number != fd);
        inner.numbers.is_empty()
    }

    /// A number of the real epoll descriptor.
    pub(crate) fn number(&self) -> Option<i32> {
        self.inner.lock().numbers.first().copied()
    }

    /// The kernel's set that other processes have too, if this process has its own beside it.
    pub(crate) fn common(&self) -> Option<Descriptor> {
        Descriptor::new(self.common.load(Ordering::Acquire))
    }

    /// Replaces it and returns the one that there was.
    pub(crate) fn set_common(&self, common: Option<Descriptor>) -> Option<Descriptor> {
        let number = common.map_or(-1, Descriptor::number);
        Descriptor::new(self.common.swap(number, Ordering::AcqRel))
    }

    /// Returns whether a wait on a set without a home examines its members. Less often, if that was
    /// often without result.
    pub(crate) fn is_look_due(&self) -> bool {
        let waits = self.unsettled_waits.load(Ordering::Relaxed).wrapping_add(1);
        self.unsettled_waits.store(waits, Ordering::Relaxed);
        waits.is_power_of_two() || waits.is_multiple_of(LOOK_EVERY)
    }

    /// The engine that it is at home at, if it is not the first.
    pub(crate) fn engine(&self) -> Option<Arc<Attachment>> {
        let home = self.inner.lock().home.clone();
        home.filter(|attachment| !attachment.is_dead())
    }

    /// As [`Set::engine`], also if it is dead.
    pub(crate) fn last_engine(&self) -> Option<Arc<Attachment>> {
        self.inner.lock().home.clone()
    }

    pub(crate) fn set_engine(&self, attachment: Option<Arc<Attachment>>) {
        self.inner.lock().home = attachment;
    }

    /// Clears the home of a set whose engine has ended.
    pub(crate) fn forget_home(&self, dead: &Arc<Attachment>) {
        let mut inner = self.inner.lock();
        if inner.home.as_ref().is_some_and(|it| Arc::ptr_eq(it, dead)) {
            inner.home = None;
            self.home.forget();
            self.look_soon();
        }
    }

    /// A new member may give it a home.
    pub(crate) fn look_soon(&self) {
        self.unsettled_waits.store(0, Ordering::Relaxed);
    }

    pub(crate) fn is_kernel_only(&self) -> bool {
        self.inner.lock().items.is_empty()
    }

    pub(crate) fn has_kernel_members(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed) || self.kernel_members.load(Ordering::Relaxed) > 0
    }

    /// Adds a member on our side; its identity for [`Set::on_ready`].
    pub(crate) fn add(
        &self,
        fd: i32,
        target: Target,
        events: u32,
        data: u64,
    ) -> Result<u64, Errno> {
        let mut rings = Rings::default();
        let mut inner = self.inner.lock();
        let key = (fd, target.id());
        if inner.index.contains_key(&key) {
            return Err(Errno::EEXIST);
        }
        if inner.items.is_empty() {
            // A thread that sleeps on the set may lead from now on.
            inner.wake_one(&mut rings);
        }
        let item = inner.next_item;
        inner.next_item += 1;
        inner.index.insert(key, item);
        inner.items.insert(
            item,
            Item {
                fd,
                target,
                events: events | bits::ERR | bits::HUP,
                data,
                is_queued: false,
                edges: 0,
                has_kernel_part: false,
                is_without_room: false,
                fired: 0,
            },
        );
        Ok(item)
    }

    /// Changes a member; its identity and whether the kernel has a part of it.
    pub(crate) fn modify(
        &self,
        fd: i32,
        target: &Target,
        events: u32,
        data: u64,
    ) -> Result<(u64, bool), Errno> {
        let mut inner = self.inner.lock();
        let item = *inner.index.get(&(fd, target.id())).ok_or(Errno::ENOENT)?;
        let found = inner.items.get_mut(&item).ok_or(Errno::ENOENT)?;
        // ep_modify() never touches an EXCLUSIVE member.
        if (found.events | events) & EXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        found.events = events | bits::ERR | bits::HUP;
        found.data = data;
        found.is_without_room = false;
        Ok((item, found.has_kernel_part))
    }

    pub(crate) fn remove(&self, fd: i32, target: &Target) -> Option<(u64, Item)> {
        let mut inner = self.inner.lock();
        let item = *inner.index.get(&(fd, target.id()))?;
        Some((item, inner.forget(item)?))
    }

    /// The events and data of an item, and the number it was added under.
    pub(crate) fn item(&self, item: u64) -> Option<(i32, u32, u64)> {
        let inner = self.inner.lock();
        let item = inner.items.get(&item)?;
        Some((item.fd, item.events, item.data))
    }

    pub(crate) fn kernel_member_left(&self) {
        // Closed members left by themselves, so the count may already be too high, never too low.
        let _ = self
            .kernel_members
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    }

    pub(crate) fn set_kernel_part(&self, item: u64, has_it: bool) {
        let mut inner = self.inner.lock();
        let Some(found) = inner.items.get_mut(&item) else {
            return;
        };
        if found.has_kernel_part != has_it {
            found.has_kernel_part = has_it;
            if has_it {
                inner.both.push(item);
            } else {
                inner.both.retain(|other| *other != item);
            }
        }
    }

    /// Looks at a member that was just added or changed.
    pub(crate) fn look_at(&self, item: u64) {
        let target = match self.inner.lock().items.get(&item) {
            Some(found) => found.target.clone(),
            None => return,
        };
        let ready = target.readiness();
        if ready != 0 {
            self.on_ready(item, ready, &mut Rings::default());
        }
    }

    /// Returns the sets that contain this one, with the items; they get no more events of it.
    pub(crate) fn take_outer(&self) -> Vec<(Arc<Set>, u64)> {
        let mut inner = self.inner.lock();
        let outer = inner.watches.iter().filter_map(Set::of).collect();
        inner
            .watches
            .retain(|watch| matches!(watch, Watch::Thread(_)));
        outer
    }

    /// Whether a poll of the set's own number would find something on our side.
    pub(crate) fn has_ready(&self) -> bool {
        if self.queue.get().is_some_and(Queue::is_active) {
            return true;
        }
        self.ready_count(1) > 0
    }

    /// Returns the number of listed members that are ready, up to `max`.
    pub(crate) fn ready_count(&self, max: usize) -> usize {
        let inner = self.inner.lock();
        let is_ready = |item: &&u64| {
            let item = inner.items.get(*item);
            item.is_some_and(|item| item.ready_events() != 0)
        };
        inner.ready.iter().filter(is_ready).take(max).count()
    }

    /// Takes up to `max` events off the ready list: ep_send_events().
    pub(crate) fn collect(&self, max: usize, mut found: impl FnMut(Found)) -> usize {
        let mut inner = self.inner.lock();
        let Inner { items, ready, .. } = &mut *inner;
        let mut count = 0;
        for _ in 0..ready.len() {
            if count == max {
                break;
            }
            let Some(id) = ready.pop_front() else {
                break;
            };
            let Some(item) = items.get_mut(&id) else {
                continue;
            };
            item.is_queued = false;
            let events = item.ready_events();
            item.edges = 0;
            if events == 0 {
                continue;
            }
            found(Found {
                events,
                data: item.data,
                is_listener: item.target.is_listener(),
                kernel_part: item.has_kernel_part.then_some(item.fd),
                rests: item.events & ONE_SHOT != 0,
            });
            count += 1;
            if item.events & ONE_SHOT != 0 {
                item.events &= PRIVATE;
            } else if item.events & EDGE == 0 {
                item.is_queued = true;
                ready.push_back(id);
            }
        }
        count
    }

    pub(crate) fn lives_in_both(&self) -> bool {
        !self.inner.lock().both.is_empty()
    }

    /// ONESHOT members of both worlds that have fired: their numbers.
    pub(crate) fn rested_kernel_parts(&self) -> Vec<i32> {
        let inner = self.inner.lock();
        inner
            .both
            .iter()
            .filter_map(|id| inner.items.get(id))
            .filter(|item| item.events & ONE_SHOT != 0 && item.events & !PRIVATE == 0)
            .map(|item| item.fd)
            .collect()
    }

    /// Connections of a parent process among the members that the kernel does not know: item,
    /// socket and events.
    pub(crate) fn not_borrowed(&self) -> Vec<(u64, Arc<Description>, u32)> {
        let inner = self.inner.lock();
        let is_unknown = |socket: &Description, has_kernel_part: bool| match socket.decided() {
            // The kernel knows a datagram socket's own part.
            Some(Decided::Foreign(it)) => !has_kernel_part || !it.is_taken(),
            _ => false,
        };
        let found = inner
            .items
            .iter()
            .filter_map(|(id, item)| match &item.target {
                Target::Socket(socket) if is_unknown(socket, item.has_kernel_part) => {
                    Some((*id, Arc::clone(socket), item.events))
                }
                _ => None,
            });
        found.collect()
    }

    /// The sets among the members.
    pub(crate) fn sets(&self) -> Vec<Arc<Set>> {
        let Inner { items, both, .. } = &*self.inner.lock();
        let members = both.iter().filter_map(|id| items.get(id));
        members
            .filter_map(|item| match &item.target {
                Target::Set(set) => Some(Arc::clone(set)),
                Target::Socket(_) => None,
            })
            .collect()
    }

    /// Returns the nesting depth of the set: the longest chain of sets. The kernel refuses loops,
    /// and chains longer than its limit.
    pub(crate) fn depth(&self) -> usize {
        let inner = self.sets();
        let below = inner.iter().map(|set| set.depth() + 1);
        below.max().unwrap_or(0)
    }

    /// The sockets among the members.
    pub(crate) fn sockets(&self) -> Vec<Arc<Description>> {
        let inner = self.inner.lock();
        inner
            .items
            .values()
            .filter_map(|item| match &item.target {
                Target::Socket(socket) => Some(Arc::clone(socket)),
                Target::Set(_) => None,
            })
            .collect()
    }

    /// Forgets the waiting threads in a forked child: they were the parent's.
    pub(crate) fn forget_waiters(&self) {
        let mut inner = self.inner.lock();
        inner.waiters.clear();
        // The objects they refer to belong to the parent.
        std::mem::forget(std::mem::take(&mut inner.remote_members));
        std::mem::forget(inner.home.take());
        inner
            .watches
            .retain(|watch| matches!(watch, Watch::Item { .. }));
    }

    pub(crate) fn members(&self) -> Vec<(u64, Target)> {
        self.members_that(|_| true)
    }

    pub(crate) fn members_that(&self, are_it: impl Fn(&Target) -> bool) -> Vec<(u64, Target)> {
        let inner = self.inner.lock();
        let members = inner.items.iter().filter(|(_, item)| are_it(&item.target));
        members
            .map(|(id, item)| (*id, item.target.clone()))
            .collect()
    }

    /// Points an item at its target's replacement; returns the old target.
    pub(crate) fn retarget(&self, item: u64, target: Target) -> Option<Target> {
        let mut inner = self.inner.lock();
        let Inner { items, index, .. } = &mut *inner;
        let found = items.get_mut(&item)?;
        index.remove(&(found.fd, found.target.id()));
        index.insert((found.fd, target.id()), item);
        Some(std::mem::replace(&mut found.target, target))
    }

    /// Everything, forgotten: the set is closed.
    pub(crate) fn clear(&self) -> Vec<(u64, Item)> {
        let mut inner = self.inner.lock();
        inner.index.clear();
        inner.ready.clear();
        inner.both.clear();
        inner.items.drain().collect()
    }
}
