//! The descriptors of one poll, separated into ours and the kernel's, and the checks of them.

use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};
use slipstack_mem::Descriptor;

use crate::epoll::Target;
use crate::poll::LooksAt;
use crate::ready::Look;
use crate::socket::borrowed::Borrowed;
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::kernel_socket::ready_in_kernel;

const ALWAYS: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

/// The descriptors of one call, separated into ours and the kernel's.
#[derive(Default)]
pub(crate) struct Sorted {
    /// Indices in the program's array, for each of `targets`.
    ours: Vec<usize>,
    targets: Vec<Target>,
    /// Sockets that have no part in the kernel so far.
    undecided: Vec<Arc<Description>>,
    /// Sockets that live in other processes.
    elsewhere: Vec<Arc<Description>>,
    /// Indices in the program's array, for each of `kernel`.
    indices: Vec<usize>,
    kernel: Vec<libc::pollfd>,
    /// Indices in the program's array of sockets that have parts on both sides and no room on ours:
    /// the kernel is not asked for room.
    without_room: Vec<(usize, Arc<Description>)>,
    /// Some are datagram sockets of other processes.
    pub(crate) has_lent_datagrams: bool,
}

impl Sorted {
    /// Takes the entry of the program's array at `index` in. `target`: the object of ours behind
    /// its number.
    pub(crate) fn add(&mut self, index: usize, fd: &libc::pollfd, target: Option<Target>) {
        let has_kernel = match &target {
            None | Some(Target::Set(_)) => true,
            Some(Target::Socket(socket)) => {
                let has_kernel = socket.kernel_speaks();
                if !has_kernel && socket.decided().is_none() {
                    self.undecided.push(Arc::clone(socket));
                }
                has_kernel
            }
        };
        let mut events = fd.events;
        if let Some(Target::Socket(socket)) = &target
            && has_kernel
            && events & libc::POLLOUT != 0
            && socket.awaits_room()
        {
            events &= !libc::POLLOUT;
            self.without_room.push((index, Arc::clone(socket)));
        }
        if let Some(target) = target {
            if let Some((socket, _)) = lent(&target) {
                self.has_lent_datagrams |= socket.kind == Kind::Dgram;
                self.elsewhere.push(Arc::clone(socket));
            }
            self.targets.push(target);
            self.ours.push(index);
        }
        if has_kernel {
            self.indices.push(index);
            self.kernel.push(libc::pollfd {
                revents: 0,
                events,
                ..*fd
            });
        }
    }

    /// The sockets and sets that are ours.
    pub(crate) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Descriptors for which the kernel answers, alone or beside us.
    pub(crate) fn kernel(&self) -> &[libc::pollfd] {
        &self.kernel
    }

    /// Whether the kernel has a part of one of them now of which this does not know, or one of
    /// another process has come to this one.
    pub(crate) fn is_stale(&self) -> bool {
        let has_part = |socket: &Arc<Description>| socket.kernel_speaks();
        let has_come = |socket: &Arc<Description>| socket.is_brought();
        self.undecided.iter().any(has_part) || self.elsewhere.iter().any(has_come)
    }

    /// Whether the bytes of all that are ours come by pairs, of which the kernel knows everything,
    /// and no other thread uses them.
    pub(crate) fn are_one_threads(&self) -> bool {
        let is_one = |it: &Borrowed| !it.turns.has_several_users();
        let mut targets = self.targets.iter();
        targets.all(|target| lent(target).is_some_and(|(_, it)| is_one(it)))
    }

    /// The sockets that live in other processes.
    pub(crate) fn elsewhere(&self) -> &[Arc<Description>] {
        &self.elsewhere
    }

    /// Replaces the kernel's answer about datagram sockets of other processes, whose pairs carry
    /// notifications, by that of `ask`. Returns the number of entries with any event.
    pub(crate) fn ask_owners(
        &self,
        fds: &mut [libc::pollfd],
        ask: impl Fn(&Arc<Description>, &Borrowed) -> Option<u32>,
    ) -> usize {
        for (index, target) in self.ours.iter().zip(&self.targets) {
            let fd = &mut fds[*index];
            if fd.revents & libc::POLLIN != 0
                && let Some((socket, it)) = lent(target)
                && socket.kind == Kind::Dgram
                && let Some(ready) = ask(socket, it)
            {
                let others = fd.revents & libc::POLLOUT;
                fd.revents = others | ready as i16 & (fd.events & !libc::POLLOUT | ALWAYS);
            }
        }
        fds.iter().filter(|fd| fd.revents != 0).count()
    }

    /// Writes the state of each entry; returns the number of entries with any event. The kernel is
    /// asked as `looks` says, and where only it knows whether there is room.
    pub(crate) fn look(&self, fds: &mut [libc::pollfd], look: Look, looks: LooksAt<'_>) -> usize {
        for fd in fds.iter_mut() {
            fd.revents = 0;
        }
        let count = self.look_at_ours(fds);
        if self.kernel.is_empty() {
            return count;
        }
        let is_due = looks.are_due(look, count > 0) || count > 0 && self.asks_for_room();
        if !is_due {
            return count;
        }
        let all = self.look_at_kernel(fds);
        looks.end(all > count);
        all
    }

    fn asks_for_room(&self) -> bool {
        let mut kernel = self.kernel.iter();
        kernel.any(|fd| fd.events & libc::POLLOUT != 0)
    }

    fn look_at_ours(&self, fds: &mut [libc::pollfd]) -> usize {
        let mut count = 0;
        for (index, target) in self.ours.iter().zip(&self.targets) {
            let fd = &mut fds[*index];
            // EPOLL's bits and POLL's are the same numbers.
            let ready = target.readiness() as i16 & (fd.events | ALWAYS);
            fd.revents = ready;
            count += usize::from(ready != 0);
        }
        for (index, socket) in &self.without_room {
            if !socket.awaits_room() {
                let fd = &mut fds[*index];
                count += usize::from(fd.revents == 0);
                fd.revents |= libc::POLLOUT;
            }
        }
        count
    }

    /// Adds the kernel's results for its descriptors; returns the number of entries with any event.
    fn look_at_kernel(&self, fds: &mut [libc::pollfd]) -> usize {
        let numbers: Vec<Option<Descriptor>> = self
            .kernel
            .iter()
            .map(|fd| Descriptor::new(fd.fd))
            .collect();
        let mut polled: Vec<PollFd<'_>> = numbers
            .iter()
            .flatten()
            .zip(&self.kernel)
            .map(|(number, fd)| {
                let events = PollFlags::from_bits_retain(fd.events as u16);
                PollFd::from_borrowed_fd(number.as_fd(), events)
            })
            .collect();
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if !polled.is_empty() && matches!(rustix::event::poll(&mut polled, Some(&now)), Ok(1..)) {
            for (index, polled) in self.indices.iter().zip(&polled) {
                fds[*index].revents |= polled.revents().bits() as i16;
            }
        }
        fds.iter().filter(|fd| fd.revents != 0).count()
    }

    /// Reports numbers that another thread has closed during a wait as POLLNVAL, or the state of
    /// the new file. Returns the number of entries with any event.
    pub(crate) fn look_for_closed(
        &self,
        fds: &mut [libc::pollfd],
        is_closed: impl Fn(i32) -> bool,
    ) -> usize {
        for index in &self.ours {
            let fd = &mut fds[*index];
            if is_closed(fd.fd) {
                let events = PollFlags::from_bits_retain(fd.events as u16);
                fd.revents = ready_in_kernel(Descriptor::new(fd.fd), events).bits() as i16;
            }
        }
        fds.iter().filter(|fd| fd.revents != 0).count()
    }
}

/// The socket of a target whose bytes or notifications come by a pair.
fn lent(target: &Target) -> Option<(&Arc<Description>, &Borrowed)> {
    let Target::Socket(socket) = target else {
        return None;
    };
    match socket.decided() {
        Some(Decided::Foreign(it)) if it.is_taken() => Some((socket, it)),
        _ => None,
    }
}
