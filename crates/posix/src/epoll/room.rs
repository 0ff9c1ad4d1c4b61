//! Room for datagrams of sockets that live in both worlds. The kernel's part always has some, and
//! would end each wait at once while the stack's has none: until then it is not asked.

use std::sync::atomic::Ordering;

use rustix::event::epoll;

use crate::epoll::kernel_part::change_kernel_part;
use crate::epoll::set::{Item, ONE_SHOT, PRIVATE, Set, Target};
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
            let (both, items) = (inner.both.clone(), &mut inner.items);
            let mut both = both.into_iter();
            let is_it = |item: &Item| item.data == data && item.awaits_room();
            let Some(id) = both.find(|id| items.get(id).is_some_and(is_it)) else {
                return events;
            };
            let Some(item) = items.get_mut(&id) else {
                return events;
            };
            let is_edge = item.events & libc::EPOLLET as u32 != 0;
            let rests = item.events & ONE_SHOT != 0 && without != 0;
            (!is_edge && !rests).then(|| {
                item.is_without_room = true;
                (item.fd, item.events)
            })
        };
        if let Some((fd, asked)) = changed {
            self.is_any_without_room.store(true, Ordering::Release);
            self.ask_kernel(fd, asked & !bits::OUT, data);
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
        for item in self.inner.lock().items.values_mut() {
            if !item.is_without_room {
                continue;
            }
            if item.awaits_room() {
                are_left = true;
                continue;
            }
            item.is_without_room = false;
            if item.events & !PRIVATE != 0 && item.has_kernel_part {
                due.push((item.fd, item.events, item.data));
            }
        }
        self.is_any_without_room.store(are_left, Ordering::Release);
        for (fd, events, data) in due {
            self.ask_kernel(fd, events, data);
        }
    }

    fn ask_kernel(&self, fd: i32, events: u32, data: u64) {
        let flags = epoll::EventFlags::from_bits_retain(events);
        let data = epoll::EventData::new_u64(data);
        let _ = change_kernel_part(self, fd, |epfd, fd| {
            epoll::modify(epfd.as_fd(), fd.as_fd(), data, flags)
        });
    }
}
