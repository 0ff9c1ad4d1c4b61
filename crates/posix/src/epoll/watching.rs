//! A set as a watcher of its members, and as something that threads and other sets wait for.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::epoll::set::{PRIVATE, Set};
use crate::ready::{Awaited, Rings, Waiter, Watch, Watcher, bits, notify_all};

impl Set {
    /// The epoll set that a watch is for, and the item there.
    pub(crate) fn of(watch: &Watch) -> Option<(Arc<Set>, u64)> {
        let Watch::Item { watcher, item } = watch else {
            return None;
        };
        let watcher: Arc<dyn Any + Send + Sync> = Arc::<dyn Watcher>::clone(watcher);
        Some((watcher.downcast::<Set>().ok()?, *item))
    }

    /// Returns the watch by which item `item` of the set gets events of its subject.
    pub(crate) fn watch_of(set: &Arc<Set>, item: u64) -> Watch {
        Watch::Item {
            watcher: Arc::<Set>::clone(set),
            item,
        }
    }

    /// Whether a thread sleeps on the set, or watches it in a way that `counts`.
    fn is_waited_on(&self, counts: impl Fn(&Watch) -> bool) -> bool {
        let watches = {
            let inner = self.inner.lock();
            if !inner.waiters.is_empty() {
                return true;
            }
            // A set that contains this one is locked before this one.
            inner.watches.clone()
        };
        watches.iter().any(counts)
    }
}

impl Watcher for Set {
    /// ep_poll_callback().
    fn on_ready(&self, item: u64, edges: u32, rings: &mut Rings) {
        let mut inner = self.inner.lock();
        let Some(found) = inner.items.get_mut(&item) else {
            return;
        };
        if found.events & edges & !PRIVATE == 0 {
            return;
        }
        found.edges |= edges;
        if !found.is_queued {
            found.is_queued = true;
            inner.ready.push_back(item);
            inner.wake_one(rings);
        }
        // A poll of the set itself takes nothing off the list: conditions on it may have ended.
        if inner.watches.is_empty() {
            return;
        }
        // A set that contains this one is locked before this one when it looks.
        let watches = inner.watches.clone();
        drop(inner);
        notify_all(&watches, bits::IN, rings);
    }

    fn is_attended(&self, item: u64) -> bool {
        let asks = {
            let inner = self.inner.lock();
            let item = inner.items.get(&item);
            item.is_some_and(|it| it.events & bits::IN != 0)
        };
        asks && self.is_waited_on(Watch::is_attended)
    }

    fn has_sleepers(&self) -> bool {
        self.is_waited_on(Watch::has_sleepers)
    }

    fn forget(&self, item: u64) {
        self.inner.lock().forget(item);
    }

    fn note_intents(&self) {
        self.has_intents.store(true, Ordering::Release);
        let watches = self.inner.lock().watches.clone();
        watches.iter().for_each(Watch::note_intents);
    }
}

impl Awaited for Set {
    /// Asked while the list of sleeping threads is locked, which a fork locks after the set.
    fn is_of_stack(&self) -> bool {
        let inner = self.inner.try_lock();
        self.queue.get().is_some() || inner.is_none_or(|inner| !inner.items.is_empty())
    }

    fn watch(&self, watch: Watch) {
        self.inner.lock().watches.push(watch);
    }

    fn unwatch(&self, is_it: &dyn Fn(&Watch) -> bool) {
        self.inner.lock().watches.retain(|watch| !is_it(watch));
    }

    fn begin_wait(&self, waiter: &Arc<Waiter>) {
        self.inner.lock().waiters.push(Arc::clone(waiter));
    }

    /// Ends a wait; events that the thread leaves are for another one.
    fn end_wait(&self, waiter: &Arc<Waiter>) -> bool {
        let mut rings = Rings::default();
        let mut inner = self.inner.lock();
        inner.waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        if !inner.ready.is_empty() {
            inner.wake_one(&mut rings);
        }
        false
    }
}
