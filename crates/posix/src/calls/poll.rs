//! poll, ppoll, and the check of descriptors that select shares with them.

use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use slipstack_mem::Descriptor;

use crate::epoll::Target;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::subject::Subject;
use crate::process::table::Entry;
use crate::process::wait::Plan;
use crate::socket::borrowed::Wish;
use crate::socket::description::{Decided, Description};
use crate::socket::kernel_socket::ready_in_kernel;

const ALWAYS: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

/// The descriptors of one call, separated into ours and the kernel's.
struct Sorted {
    /// Index in the program's array, and the object behind the number.
    ours: Vec<(usize, Target)>,
    /// Sockets that have no part in the kernel so far.
    undecided: Vec<Arc<Description>>,
    targets: Vec<Target>,
    /// Index in the program's array, for each of `kernel`.
    indices: Vec<usize>,
    kernel: Vec<libc::pollfd>,
}

impl Process {
    /// poll and ppoll. Writes `revents` and counts the entries that have any.
    pub fn poll(
        &self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
        mask: Option<&libc::sigset_t>,
    ) -> Outcome<usize> {
        let deadline_ns = self.deadline(timeout);
        loop {
            if let Some(count) = self.poll_sorted(fds, deadline_ns, mask)? {
                return Ok(count);
            }
        }
    }

    /// `None`: another thread has made something else of one of the sockets.
    fn poll_sorted(
        &self,
        fds: &mut [libc::pollfd],
        deadline_ns: Option<u64>,
        mask: Option<&libc::sigset_t>,
    ) -> Outcome<Option<usize>> {
        let sorted = self.sort(fds);
        // A wait of ours makes descriptors, which the sandbox of a child that serves a connection
        // of its parent's (seccomp, as sshd's) need not allow.
        let are_lent = || sorted.ours.iter().all(|(_, target)| is_lent(target));
        if self.waits_in_kernel() || are_lent() && self.engines.place.lock().is_none() {
            return Err(Divert::Kernel);
        }
        for target in &sorted.targets {
            match target {
                Target::Socket(socket) => self.realize_for_wait(socket),
                Target::Set(set) => self.realize_set(set),
            }
        }
        let plan = Plan {
            subject: Subject::Many(&sorted.targets),
            kernel: &sorted.kernel,
            deadline_ns,
            mask,
            // signal(7): poll and select are never restarted.
            may_restart: false,
        };
        let mut looks = 0;
        let count = self.wait(&plan, |kernel_look| {
            looks += 1;
            for fd in fds.iter_mut() {
                fd.revents = 0;
            }
            let mut count = look_at_ours(&sorted, fds);
            if kernel_look.is_due() || count > 0 {
                count = look_at_kernel(&sorted, fds);
            }
            if count == 0 && sorted.is_stale() {
                return Ok(Some(None));
            }
            Ok((count > 0).then_some(Some(count)))
        })?;
        match count {
            Some(None) => Ok(None),
            // After a wait the kernel looks up the descriptors again: do_pollfd().
            _ if looks > 1 => Ok(Some(self.look_for_closed(&sorted, fds))),
            count => Ok(Some(count.flatten().unwrap_or(0))),
        }
    }

    /// Reports numbers that another thread has closed meanwhile as POLLNVAL, or the state of the
    /// new file.
    fn look_for_closed(&self, sorted: &Sorted, fds: &mut [libc::pollfd]) -> usize {
        for (index, _) in &sorted.ours {
            let fd = &mut fds[*index];
            if self.table.find(fd.fd).is_none() {
                let events = PollFlags::from_bits_retain(fd.events as u16);
                fd.revents = ready_in_kernel(Descriptor::new(fd.fd), events).bits() as i16;
            }
        }
        fds.iter().filter(|fd| fd.revents != 0).count()
    }

    fn sort(&self, fds: &[libc::pollfd]) -> Sorted {
        let mut sorted = Sorted {
            ours: Vec::new(),
            undecided: Vec::new(),
            targets: Vec::new(),
            indices: Vec::new(),
            kernel: Vec::new(),
        };
        for (index, fd) in fds.iter().enumerate() {
            if fd.fd < 0 {
                continue;
            }
            let (target, has_kernel) = match self.table.find(fd.fd) {
                None | Some(Entry::Routes(_)) => (None, true),
                Some(Entry::Socket(socket)) => {
                    if let Some(Decided::Foreign(it)) = socket.decided() {
                        self.take_borrowed(
                            &socket,
                            it,
                            Wish::if_reads(fd.events & libc::POLLIN != 0),
                        );
                    }
                    let has_kernel = socket.kernel_speaks();
                    if !has_kernel && socket.decided().is_none() {
                        sorted.undecided.push(Arc::clone(&socket));
                    }
                    (Some(Target::Socket(socket)), has_kernel)
                }
                Some(Entry::Set(set)) => (Some(Target::Set(set)), true),
            };
            if let Some(target) = target {
                sorted.targets.push(target.clone());
                sorted.ours.push((index, target));
            }
            if has_kernel {
                sorted.indices.push(index);
                sorted.kernel.push(libc::pollfd { revents: 0, ..*fd });
            }
        }
        sorted
    }
}

impl Sorted {
    /// Whether the kernel has a part of one of them now of which this does not know.
    fn is_stale(&self) -> bool {
        self.undecided.iter().any(|socket| socket.kernel_speaks())
    }
}

/// Whether a connection's bytes come by a pair, of which the kernel knows everything.
fn is_lent(target: &Target) -> bool {
    let Target::Socket(socket) = target else {
        return false;
    };
    matches!(socket.decided(), Some(Decided::Foreign(it)) if it.is_taken())
}

fn look_at_ours(sorted: &Sorted, fds: &mut [libc::pollfd]) -> usize {
    let mut count = 0;
    for (index, target) in &sorted.ours {
        let fd = &mut fds[*index];
        // EPOLL's bits and POLL's are the same numbers.
        let ready = target.readiness() as i16 & (fd.events | ALWAYS);
        fd.revents = ready;
        count += usize::from(ready != 0);
    }
    count
}

/// Adds the kernel's results for its descriptors; returns the number of entries with any event.
fn look_at_kernel(sorted: &Sorted, fds: &mut [libc::pollfd]) -> usize {
    let numbers: Vec<Option<Descriptor>> = sorted
        .kernel
        .iter()
        .map(|fd| Descriptor::new(fd.fd))
        .collect();
    let mut polled: Vec<PollFd<'_>> = numbers
        .iter()
        .flatten()
        .zip(&sorted.kernel)
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
        for (index, polled) in sorted.indices.iter().zip(&polled) {
            fds[*index].revents |= polled.revents().bits() as i16;
        }
    }
    fds.iter().filter(|fd| fd.revents != 0).count()
}
