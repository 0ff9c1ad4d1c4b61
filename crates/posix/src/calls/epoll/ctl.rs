//! epoll_create1 and epoll_ctl.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::epoll;
use slipstack_mem::Descriptor;

use crate::epoll::{Set, Target, add_kernel_part, change_kernel_part};
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::table::{Entry, NUMBERS_MAX};
use crate::ready::Watcher;
use crate::socket::borrowed::ReadRequest;
use crate::socket::description::Decided;

const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// EPOLLEXCLUSIVE_OK_BITS.
const EXCLUSIVE_ALLOWED: u32 = (libc::EPOLLIN
    | libc::EPOLLOUT
    | libc::EPOLLERR
    | libc::EPOLLHUP
    | libc::EPOLLWAKEUP
    | libc::EPOLLET
    | libc::EPOLLEXCLUSIVE) as u32;

impl Process {
    /// epoll_create, epoll_create1.
    pub fn epoll_create1(&self, flags: i32) -> Outcome<i32> {
        if flags & !libc::EPOLL_CLOEXEC != 0 {
            return Err(Errno::EINVAL.into());
        }
        let flags = epoll::CreateFlags::from_bits_retain(flags as u32);
        let number = Descriptor::give(epoll::create(flags)?).number();
        if (number as usize) < NUMBERS_MAX {
            let set = Arc::new(Set::new(self.ids.next(), number));
            if let Some(stale) = self.table.put(number, Entry::Set(set)) {
                self.let_go(number, stale);
            }
        }
        Ok(number)
    }

    /// `epoll_ctl`.
    pub fn epoll_ctl(
        &self,
        epfd: i32,
        op: i32,
        fd: i32,
        event: Option<libc::epoll_event>,
    ) -> Outcome<()> {
        if self.kqueues.is_any() && self.is_kqueue(epfd) {
            return Err(Errno::EINVAL.into());
        }
        self.set_ctl(epfd, op, fd, event)
    }

    /// As [`Process::epoll_ctl`], on a kqueue's set too.
    pub(crate) fn set_ctl(
        &self,
        epfd: i32,
        op: i32,
        fd: i32,
        event: Option<libc::epoll_event>,
    ) -> Outcome<()> {
        let set = self.table.set(epfd).ok_or(Divert::Kernel)?;
        if event.is_none() && op != libc::EPOLL_CTL_DEL {
            return Err(Errno::EFAULT.into());
        }
        let (events, data) = event.map_or((0, 0), |event| (event.events, event.u64));
        if fd == epfd {
            return Err(Errno::EINVAL.into());
        }
        let target = match self.table.find(fd) {
            None | Some(Entry::Routes(_)) => {
                return kernel_ctl(&set, epfd, op, fd, (events, data));
            }
            Some(Entry::Socket(socket)) => {
                if let Some(Decided::Foreign(it)) = socket.decided() {
                    self.lending.part_from_parent(&set)?;
                    self.take_borrowed(
                        &socket,
                        it,
                        ReadRequest::if_reads(events & libc::EPOLLIN as u32 != 0),
                    );
                }
                Target::Socket(socket)
            }
            Some(Entry::Set(inner)) => Target::Set(inner),
        };
        match op {
            libc::EPOLL_CTL_ADD => {
                // No set is put into another while a fork locks them in the order of their nesting.
                let nesting = matches!(target, Target::Set(_)).then(|| self.nesting.lock());
                add(&set, epfd, fd, target.clone(), events, data)?;
                drop(nesting);
                if let Target::Socket(socket) = &target {
                    self.engines.note_member(&set, socket);
                }
                self.realize_for_sleepers(&set);
                Ok(())
            }
            libc::EPOLL_CTL_MOD => modify(&set, fd, &target, (events, data)),
            libc::EPOLL_CTL_DEL => delete(&set, fd, &target),
            _ => Err(Errno::EINVAL.into()),
        }
    }
}

fn add(set: &Arc<Set>, epfd: i32, fd: i32, target: Target, events: u32, data: u64) -> Outcome<()> {
    if events & EXCLUSIVE != 0
        && (events & !EXCLUSIVE_ALLOWED != 0 || matches!(target, Target::Set(_)))
    {
        return Err(Errno::EINVAL.into());
    }
    let is_nested = matches!(target, Target::Set(_));
    if is_nested {
        // The kernel holds the chain of sets: it knows loops and depth.
        kernel_ctl(set, epfd, libc::EPOLL_CTL_ADD, fd, (events, data))?;
    }
    let item = set.add(fd, target.clone(), events, data)?;
    target.watch(Set::watch_of(set, item));
    match &target {
        Target::Set(inner) => {
            set.set_kernel_part(item, true);
            if inner.has_intents.load(Ordering::Acquire) {
                set.note_intents();
            }
        }
        Target::Socket(socket) => {
            if socket.kernel_speaks() {
                add_kernel_part(set, item);
            }
            let is_intent = match socket.decided() {
                // A listener that is real already counts as an intent too, so that the first wait
                // on the set is noticed.
                Some(Decided::Listener(_)) => true,
                Some(Decided::Dgram(dgram)) => dgram.is_intent(),
                _ => false,
            };
            if is_intent {
                set.note_intents();
            }
        }
    }
    set.look_at(item);
    target.come_back_if_attended();
    Ok(())
}

fn modify(set: &Arc<Set>, fd: i32, target: &Target, (events, data): (u32, u64)) -> Outcome<()> {
    let (item, has_kernel_part) = set.modify(fd, target, events, data)?;
    if has_kernel_part {
        let flags = epoll::EventFlags::from_bits_retain(events);
        change_kernel_part(set, fd, |epfd, fd| {
            let data = epoll::EventData::new_u64(data);
            epoll::modify(epfd.as_fd(), fd.as_fd(), data, flags)
        })?;
    }
    set.look_at(item);
    target.come_back_if_attended();
    Ok(())
}

fn delete(set: &Arc<Set>, fd: i32, target: &Target) -> Outcome<()> {
    let (item, member) = set.remove(fd, target).ok_or(Errno::ENOENT)?;
    target.unwatch(&|watch| watch.is_item(set, item));
    if member.has_kernel_part {
        change_kernel_part(set, fd, |epfd, fd| epoll::delete(epfd.as_fd(), fd.as_fd()))?;
        set.kernel_member_left();
    }
    Ok(())
}

/// A member of the kernel's: its own epoll, with the program's data. One that other processes share
/// has them too.
fn kernel_ctl(set: &Set, epfd: i32, op: i32, fd: i32, (events, data): (u32, u64)) -> Outcome<()> {
    let set_fd = set.common().or_else(|| Descriptor::new(epfd));
    let (Some(set_fd), Some(fd)) = (set_fd, Descriptor::new(fd)) else {
        return Err(Errno::EBADF.into());
    };
    let flags = epoll::EventFlags::from_bits_retain(events);
    let data = epoll::EventData::new_u64(data);
    match op {
        libc::EPOLL_CTL_ADD => {
            epoll::add(set_fd.as_fd(), fd.as_fd(), data, flags)?;
            set.kernel_members.fetch_add(1, Ordering::Relaxed);
        }
        libc::EPOLL_CTL_MOD => epoll::modify(set_fd.as_fd(), fd.as_fd(), data, flags)?,
        libc::EPOLL_CTL_DEL => {
            epoll::delete(set_fd.as_fd(), fd.as_fd())?;
            set.kernel_member_left();
        }
        _ => return Err(Errno::EINVAL.into()),
    }
    Ok(())
}
