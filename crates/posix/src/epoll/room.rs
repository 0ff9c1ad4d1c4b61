//! Room for datagrams of sockets that live in both worlds. The kernel's part always has some, and
//! would end each wait at once while the stack's has none: until then it is not asked.

use std::sync::atomic::Ordering;

use rustix::event::epoll;

use crate::epoll::kernel_part::change_kernel_part;
use crate::epoll::set::{Inner, Item, ONE_SHOT, PRIVATE, Set, Target};
use crate::ready::bits;

impl Item {
    fn awaits_room(&self) -> bool {
        match &self.target {
            Target::Socket(socket) => socket.awaits_room(),
            Target::Set(_) => false,
        }
    }
}

impl Set {
    /// The kernel reports `events`, room among them, of the item with this data. Returns them
    /// without room that the stack's part does not have.
    pub(crate) fn vet_room(&self, data: u64, events: u32) -> u32 {
        let without = events & !bits::OUT;
        let changed = {
            let mut inner = self.inner.lock();
            let Inner { items, both, .. } = &mut *inner;
            // One that is not asked already has not reported it: another has the same data.
            let is_it =
                |item: &Item| item.data == data && !item.is_without_room && item.awaits_room();
            let found = both
                .iter()
                .copied()
                .find(|id| items.get(id).is_some_and(is_it));
            let Some((id, item)) = found.and_then(|id| Some((id, items.get_mut(&id)?))) else {
                return events;
            };
            let is_edge = item.events & libc::EPOLLET as u32 != 0;
            let rests = item.events & ONE_SHOT != 0 && without != 0;
            item.is_without_room = !is_edge && !rests;
            if item.is_without_room {
                self.is_any_without_room.store(true, Ordering::Release);
            }
            item.is_without_room.then_some(id)
        };
        if let Some(id) = changed {
            self.ask_kernel(id);
        }
        without
    }

    /// Asks the kernel for room again, of members for which the stack has some, before a wait.
    #[inline]
    pub(crate) fn ask_for_room_again(&self) {
        if self.is_any_without_room.load(Ordering::Acquire) {
            self.ask_where_there_is_room();
        }
    }

    #[cold]
    fn ask_where_there_is_room(&self) {
        let mut are_left = false;
        let mut due = Vec::new();
        let mut inner = self.inner.lock();
        for (id, item) in &mut inner.items {
            if !item.is_without_room {
                continue;
            }
            if item.awaits_room() {
                are_left = true;
                continue;
            }
            item.is_without_room = false;
            if item.events & !PRIVATE != 0 && item.has_kernel_part {
                due.push(*id);
            }
        }
        self.is_any_without_room.store(are_left, Ordering::Release);
        drop(inner);
        for id in due {
            self.ask_kernel(id);
        }
    }

    /// Asks the kernel for an item's events, again if another thread has changed them meanwhile.
    fn ask_kernel(&self, id: u64) {
        let mut asked = None;
        while let Some(wanted) = self.wanted_of_kernel(id).filter(|it| asked != Some(*it)) {
            let (fd, events, data) = wanted;
            let flags = epoll::EventFlags::from_bits_retain(events);
            let data = epoll::EventData::new_u64(data);
            let _ = change_kernel_part(self, fd, |epfd, fd| {
                epoll::modify(epfd.as_fd(), fd.as_fd(), data, flags)
            });
            asked = Some(wanted);
        }
    }

    /// The number, events and data of an item for the kernel's set.
    fn wanted_of_kernel(&self, id: u64) -> Option<(i32, u32, u64)> {
        let inner = self.inner.lock();
        let item = inner.items.get(&id).filter(|item| item.has_kernel_part)?;
        let events = match item.is_without_room {
            true => item.events & !bits::OUT,
            false => item.events,
        };
        Some((item.fd, events, item.data))
    }
}
