//! The ready list as a kqueue uses it: members are taken off one by one, and put back explicitly.

use crate::epoll::set::{Inner, Set, Target};
use crate::ready::{Rings, bits, notify_all};

/// A member of a kqueue that has been taken off the ready list.
#[derive(Debug)]
pub(crate) struct Popped {
    pub(crate) item: u64,
    pub(crate) fd: i32,
    pub(crate) target: Target,
    /// Events that hold.
    pub(crate) ready: u32,
    /// Events since the last look.
    pub(crate) edges: u32,
}

impl Set {
    /// Number of members on the ready list.
    pub(crate) fn ready_len(&self) -> usize {
        self.inner.lock().ready.len()
    }

    /// Takes the first member off the ready list, of whose entries `left` are to be examined.
    /// Entries of removed members count too; a member that is put back is not returned again.
    pub(crate) fn pop_ready(&self, left: &mut usize) -> Option<Popped> {
        let mut inner = self.inner.lock();
        let Inner { items, ready, .. } = &mut *inner;
        loop {
            *left = left.checked_sub(1)?;
            let id = ready.pop_front()?;
            let Some(item) = items.get_mut(&id) else {
                continue;
            };
            item.is_queued = false;
            return Some(Popped {
                item: id,
                fd: item.fd,
                target: item.target.clone(),
                edges: std::mem::take(&mut item.edges),
                ready: item.target.readiness(),
            });
        }
    }

    /// Puts a member back at the end of the ready list, with its unreported events.
    pub(crate) fn queue_again(&self, item: u64) {
        let mut inner = self.inner.lock();
        let Some(found) = inner.items.get_mut(&item) else {
            return;
        };
        if !found.is_queued {
            found.is_queued = true;
            inner.ready.push_back(item);
        }
    }

    /// Returns the events of a member since the last check.
    pub(crate) fn edges_of(&self, fd: i32, target: u64) -> u32 {
        let inner = self.inner.lock();
        let item = inner.index.get(&(fd, target));
        item.and_then(|item| inner.items.get(item))
            .map_or(0, |item| item.edges)
    }

    /// Forgets the events of a member except `kept`.
    pub(crate) fn keep_edges(&self, fd: i32, target: u64, kept: u32) {
        let mut inner = self.inner.lock();
        let Inner { index, items, .. } = &mut *inner;
        let item = index.get(&(fd, target)).and_then(|id| items.get_mut(id));
        if let Some(item) = item {
            item.edges &= kept;
        }
    }

    /// Puts the member with this number on the ready list, without an event.
    pub(crate) fn queue_item_of(&self, fd: i32, target: u64) {
        let item = self.inner.lock().index.get(&(fd, target)).copied();
        if let Some(item) = item {
            self.queue_again(item);
            self.wake();
        }
    }

    /// Wakes threads that wait on the set, or on one that it is in.
    pub(crate) fn wake(&self) {
        let mut rings = Rings::default();
        let watches = {
            let inner = self.inner.lock();
            inner.wake_one(&mut rings);
            inner.watches.clone()
        };
        notify_all(&watches, bits::IN, &mut rings);
    }
}
