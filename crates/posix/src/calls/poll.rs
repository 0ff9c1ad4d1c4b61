//! poll, ppoll, select and pselect.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::epoll::Target;
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::poll::{Sorted, wanted, write_back};
use crate::process::Process;
use crate::process::subject::Subject;
use crate::process::table::Entry;
use crate::process::wait::Plan;
use crate::process::wait::deadline_of;
use crate::socket::borrowed::ReadRequest;
use crate::socket::description::Decided;

/// Outcome of a poll.
struct Polled {
    /// Number of entries that have any events.
    count: usize,
    /// The descriptors were looked at more than once.
    has_waited: bool,
}

impl Process {
    /// poll and ppoll. Writes `revents` and counts the entries that have any.
    pub fn poll(
        &self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
        mask: Option<&libc::sigset_t>,
    ) -> Outcome<usize> {
        Ok(self.poll_again(fds, timeout, mask)?.count)
    }

    fn poll_again(
        &self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
        mask: Option<&libc::sigset_t>,
    ) -> Outcome<Polled> {
        let deadline_ns = deadline_of(&*self.kernel, timeout);
        let mut is_begun = false;
        loop {
            if let Some(polled) = self.poll_sorted(fds, (deadline_ns, is_begun), mask)?
                && !self.take_hung_up_among(fds)
            {
                self.add_errors(fds);
                return Ok(polled);
            }
            is_begun = true;
        }
    }

    /// `None`: another thread has made something else of one of the sockets, or one has come from
    /// another process. `is_begun`: this has happened before in the same call.
    fn poll_sorted(
        &self,
        fds: &mut [libc::pollfd],
        (deadline_ns, is_begun): (Option<u64>, bool),
        mask: Option<&libc::sigset_t>,
    ) -> Outcome<Option<Polled>> {
        let sorted = self.sort(fds);
        // A wait of ours makes descriptors, which the sandbox of a child that serves a connection
        // of its parent's (seccomp, as sshd's) need not allow.
        let asks = sorted.has_lent_datagrams && !self.lending.keeps_out.load(Ordering::Relaxed);
        let are_lent = || sorted.are_one_threads() && self.engines.place.lock().is_none();
        if self.lending.waits_in_kernel() {
            return Err(Divert::Kernel);
        }
        if !asks && are_lent() {
            let lent = sorted.elsewhere();
            let count = self.poll_elsewhere((fds, lent), (deadline_ns, is_begun), mask)?;
            return Ok(count.map(|count| Polled {
                count,
                has_waited: false,
            }));
        }
        for target in sorted.targets() {
            match target {
                Target::Socket(socket) => self.realize_for_wait(socket),
                Target::Set(set) => self.realize_set(set),
            }
        }
        let plan = Plan {
            subject: Subject::Many(sorted.targets()),
            kernel: sorted.kernel(),
            deadline_ns,
            mask,
            // signal(7): poll and select are never restarted.
            may_restart: false,
            ends_when_stopped: false,
            is_part: false,
        };
        let schedule = self.poll_looks.at(self.kernel.thread(), sorted.kernel());
        let mut looks = 0;
        let count = self.wait(&plan, |kernel_look| {
            looks += 1;
            if sorted.is_stale() {
                return Ok(Some(None));
            }
            let mut count = sorted.look(fds, kernel_look, schedule);
            if asks && count > 0 {
                count = sorted.ask_owners(fds, |socket, it| self.readiness_elsewhere(socket, it));
                if count == 0 && sorted.is_stale() {
                    return Ok(Some(None));
                }
            }
            Ok((count > 0).then_some(Some(count)))
        })?;
        let has_waited = looks > 1;
        let count = match count {
            Some(None) => return Ok(None),
            // After a wait the kernel looks up the descriptors again: do_pollfd().
            _ if has_waited => {
                let is_closed = |fd| self.table.find(fd).is_none();
                sorted.look_for_closed(fds, is_closed)
            }
            count => count.flatten().unwrap_or(0),
        };
        Ok(Some(Polled { count, has_waited }))
    }

    /// Takes connections of killed processes over that the kernel says have ended. Returns whether
    /// any has come here.
    fn take_hung_up_among(&self, fds: &[libc::pollfd]) -> bool {
        let are_over = libc::POLLHUP | libc::POLLERR;
        let over = fds.iter().filter(|fd| fd.revents & are_over != 0);
        let sockets: Vec<_> = over.filter_map(|fd| self.table.socket(fd.fd)).collect();
        self.take_all_hung_up(sockets.iter())
    }

    fn sort(&self, fds: &[libc::pollfd]) -> Sorted {
        let mut sorted = Sorted::default();
        for (index, fd) in fds.iter().enumerate().filter(|(_, fd)| fd.fd >= 0) {
            let target = match self.table.find(fd.fd) {
                None | Some(Entry::Routes(_)) => None,
                Some(Entry::Socket(socket)) => {
                    if let Some(Decided::Foreign(it)) = socket.decided() {
                        let request = ReadRequest::if_reads(fd.events & libc::POLLIN != 0);
                        self.take_borrowed(&socket, it, request);
                    }
                    Some(Target::Socket(socket))
                }
                Some(Entry::Set(set)) => Some(Target::Set(set)),
            };
            sorted.add(index, fd, target);
        }
        sorted
    }

    /// select and pselect. The sets are the words of the program's `fd_set`s, at least `nfds` bits
    /// each; only those are read and written. `timeout` becomes the remaining time.
    pub fn select(
        &self,
        nfds: i32,
        read: Option<&mut [u64]>,
        write: Option<&mut [u64]>,
        except: Option<&mut [u64]>,
        timeout: &mut Option<Duration>,
        mask: Option<&libc::sigset_t>,
    ) -> Outcome<usize> {
        let nfds = usize::try_from(nfds).map_err(|_| Errno::EINVAL)?;
        let sets = [read, write, except];
        let mut fds = wanted(nfds, &sets);
        let begun = self.kernel.now_ns();
        let outcome = self.poll_again(&mut fds, *timeout, mask);
        if let Some(left) = timeout {
            // poll_select_finish(): whatever ended the call.
            let passed = Duration::from_nanos(self.kernel.now_ns().wrapping_sub(begun));
            *left = left.saturating_sub(passed);
        }
        // A number that was closed during the wait is ready: do_select().
        if !outcome?.has_waited && fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
            return Err(Errno::EBADF.into());
        }
        Ok(write_back(nfds, sets, &fds))
    }
}
