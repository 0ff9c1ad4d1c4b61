//! close, dup and their relatives.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::io::FdFlags;
use slipstack_channel::CloseMode;
use slipstack_mem::Descriptor;

use crate::attachment::Attachment;
use crate::epoll::Set;
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::subject::Subject;
use crate::process::table::Entry;
use crate::process::wait::Plan;
use crate::ready::{Watch, Watcher};
use crate::socket::Stream;
use crate::socket::description::{Decided, Description};

const CLOSE_RANGE_UNSHARE: u32 = 2;
const CLOSE_RANGE_CLOEXEC: u32 = 4;

const NS_PER_S: u64 = 1_000_000_000;

impl Process {
    /// `close`.
    pub fn close(&self, fd: i32) -> Outcome<()> {
        if let Some(common) = self.table.leave_set(fd) {
            self.lending.close_common(common);
            close_number(fd);
            return Ok(());
        }
        let Some(entry) = self.table.take(fd) else {
            self.kqueues.forget_number(fd);
            return Err(Divert::Kernel);
        };
        self.keep_lent_part(&entry);
        self.lending.part_from_ended(&entry);
        self.let_go(fd, entry);
        close_number(fd);
        Ok(())
    }

    /// Forgets our state of this number, because a new kernel descriptor has it now.
    pub fn invalidate(&self, fd: i32) {
        if let Some(number) = Descriptor::new(fd) {
            number.unlist();
        }
        if self.table.is_ours(fd)
            && let Some(entry) = self.table.take(fd)
        {
            self.let_go(fd, entry);
        }
        if self.lending.is_stewards(fd) {
            self.lending.forget(fd);
        }
    }

    /// Closes one number of an entry; the last one ends the object.
    pub(crate) fn let_go(&self, fd: i32, entry: Entry) {
        self.report.on_close(fd);
        self.kqueues.forget_number(fd);
        match entry {
            Entry::Socket(socket) => {
                let is_last = {
                    let mut cold = socket.cold.lock();
                    cold.numbers.retain(|number| *number != fd);
                    cold.numbers.is_empty()
                };
                if socket.lent.is_lent() {
                    self.lending.post.on_number_closed();
                } else if is_last && socket.may_close() {
                    self.end(&socket);
                }
            }
            Entry::Routes(_) => {}
            Entry::Set(set) => {
                if set.close_number(fd) {
                    self.end_set(&set);
                }
            }
        }
    }

    /// Ends a set that has no numbers and in which no thread waits.
    pub(crate) fn end_set(&self, set: &Arc<Set>) {
        self.engines.homes.leave(set);
        // eventpoll_release_file(): it leaves the sets that it is in.
        for (outer, item) in set.take_outer() {
            outer.forget(item);
        }
        for (item, member) in set.clear() {
            member.target.unwatch(&|watch| watch.is_item(set, item));
        }
        self.lending.close_common(set.set_common(None));
    }

    /// Ends an open socket whose last reference is gone.
    pub(crate) fn end(&self, socket: &Arc<Description>) {
        if socket.has_ended.swap(true, Ordering::AcqRel) {
            return;
        }
        socket.take_watches().iter().for_each(Watch::end);
        match socket.decided() {
            Some(Decided::Stream(stream)) => {
                self.linger(socket, stream);
                let is_left_unread = socket.lent.is_left_unread();
                let mode = match *stream.linger.lock() {
                    Some(0) => CloseMode::Abort,
                    _ => CloseMode::Orderly,
                };
                let close = |attachment: &Attachment, sock| match is_left_unread {
                    true => attachment.close_unread(sock),
                    false => attachment.close(sock, mode),
                };
                self.engines.note_end(stream);
                let here = stream.here();
                close(here.attachment(), here.sock());
                fence(Ordering::SeqCst);
                let (attachment, sock) = stream.attachment_and_sock();
                if !stream.is_here(here) {
                    close(attachment, sock);
                }
                attachment.after_push(&*self.kernel, socket.id);
            }
            Some(Decided::Listener(listener)) => {
                listener.shut();
                if let Some((attachment, sock)) = listener.stack().take() {
                    attachment.close(sock, CloseMode::Orderly);
                    attachment.commands();
                }
            }
            Some(Decided::Dgram(dgram)) => {
                if let Some((attachment, sock)) = dgram.stack().take() {
                    attachment.close(sock, CloseMode::Orderly);
                    attachment.commands();
                }
            }
            Some(Decided::Foreign(it)) => {
                self.lending.drop_kernel_part(it);
                it.give_back();
                self.lending.drop_way(it);
            }
            None => {}
        }
    }

    /// SO_LINGER with a time: close waits until the peer has everything, or for so long.
    fn linger(&self, socket: &Arc<Description>, stream: &Stream) {
        let seconds = match *stream.linger.lock() {
            Some(seconds) if seconds > 0 && stream.queued() > 0 => u64::from(seconds),
            _ => return,
        };
        let _ = stream.shutdown(false, true);
        stream.attachment().commands();
        let plan = Plan {
            subject: Subject::Socket(socket),
            kernel: &[],
            deadline_ns: Some(
                self.kernel
                    .now_ns()
                    .saturating_add(seconds.saturating_mul(NS_PER_S)),
            ),
            mask: None,
            may_restart: false,
            ends_when_stopped: false,
            is_part: false,
        };
        let is_done = || stream.await_acked() == 0 || stream.is_over();
        let _ = self.wait(&plan, |_| Ok(is_done().then_some(())));
    }

    /// `dup`.
    pub fn dup(&self, fd: i32) -> Outcome<i32> {
        self.dup_from(fd, 0, false)
    }

    /// F_DUPFD and F_DUPFD_CLOEXEC.
    pub(crate) fn dup_from(&self, fd: i32, least: i32, is_cloexec: bool) -> Outcome<i32> {
        let entry = self.table.find(fd).ok_or(Divert::Kernel)?;
        let number = Descriptor::new(fd).ok_or(Errno::EBADF)?;
        let copy = rustix::io::fcntl_dupfd_cloexec(number.as_fd(), least)?;
        if !is_cloexec {
            rustix::io::fcntl_setfd(&copy, FdFlags::empty())?;
        }
        let copy = Descriptor::give(copy);
        self.add_number(copy, entry);
        self.report.on_dup(copy.number(), fd);
        Ok(copy.number())
    }

    fn add_number(&self, number: Descriptor, entry: Entry) {
        let number = number.number();
        match &entry {
            Entry::Socket(socket) => {
                socket.cold.lock().numbers.push(number);
            }
            Entry::Set(set) => set.inner.lock().numbers.push(number),
            Entry::Routes(_) => {}
        }
        if let Some(stale) = self.table.put(number, entry) {
            self.let_go(number, stale);
        }
    }

    /// `dup3` and, with `flags` 0, `dup2` (which the caller has checked for equal numbers). Either
    /// number may be ours, or both.
    pub fn dup3(&self, old: i32, new: i32, flags: i32) -> Outcome<i32> {
        if self.is_private(new) {
            return Err(Errno::EBADF.into());
        }
        if !self.table.is_ours(old) && !self.table.is_ours(new) {
            return Err(Divert::Kernel);
        }
        if old == new || flags & !libc::O_CLOEXEC != 0 {
            return Err(Errno::EINVAL.into());
        }
        let (Some(from), Some(to)) = (Descriptor::new(old), Descriptor::new(new)) else {
            return Err(Errno::EBADF.into());
        };
        let entry = self.table.find(old);
        let before = self.table.take(new);
        if let Some(before) = &before {
            self.keep_lent_part(before);
            self.lending.part_from_ended(before);
        }
        if let Err(error) = to.replace_with(from.as_fd(), flags & libc::O_CLOEXEC != 0) {
            if let Some(before) = before {
                self.table.put(new, before);
            }
            return Err(error.into());
        }
        to.unlist();
        if let Some(before) = before {
            self.let_go(new, before);
        }
        if let Some(entry) = entry {
            self.add_number(to, entry);
            self.report.on_dup(new, old);
        }
        Ok(new)
    }

    /// `close_range` and `closefrom`, sparing our private descriptors.
    pub fn close_range(&self, first: u32, last: u32, flags: u32) -> Outcome<()> {
        if first > last || flags & !(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC) != 0 {
            return Err(Errno::EINVAL.into());
        }
        if flags & CLOSE_RANGE_CLOEXEC == 0 {
            // The kernel's descriptors of unused ones are closed with all others.
            self.forget_sockets(first, last);
        }
        // The steward's thread may be receiving an end of a pair that is not listed yet.
        let _unlisted = self.lending.post.unlisted.lock();
        self.close_others(first, last, flags)
    }

    /// Closes the program's numbers of sockets and sets.
    pub(crate) fn close_sockets(&self, first: u32, last: u32) {
        let unused = self.forget_sockets(first, last);
        unused.into_iter().for_each(close_number);
    }

    /// As [`Process::close_sockets`], but returns those numbers whose sockets were not used since
    /// the fork: the kernel's descriptors are to be closed.
    fn forget_sockets(&self, first: u32, last: u32) -> Vec<i32> {
        let privates = self.lending.privates();
        let is_closed = |fd: i32| {
            u32::try_from(fd).is_ok_and(|fd| first <= fd && fd <= last)
                && privates.binary_search(&fd).is_err()
        };
        let left = self.table.leave_unused(&is_closed);
        left.tell();
        for number in &left.numbers {
            self.kqueues.forget_number(*number);
        }
        for common in left.commons {
            self.lending.close_common(Some(common));
        }
        for fd in self.table.numbers() {
            if is_closed(fd) {
                let _ = self.close(fd);
            }
        }
        left.numbers
    }

    /// Closes what else the program has open.
    pub(crate) fn close_others(&self, first: u32, last: u32, flags: u32) -> Outcome<()> {
        if flags & CLOSE_RANGE_CLOEXEC == 0 {
            // Before another thread can be given one of them.
            slipstack_mem::parents()
                .into_iter()
                .filter(|fd| u32::try_from(*fd).is_ok_and(|fd| first <= fd && fd <= last))
                .filter_map(Descriptor::new)
                .for_each(Descriptor::unlist);
        }
        let mut from = first;
        for private in self.lending.privates() {
            let Ok(private) = u32::try_from(private) else {
                continue;
            };
            if private < from || private > last {
                continue;
            }
            if private > from {
                self.kernel.close_range(from, private - 1, flags)?;
            }
            from = private + 1;
        }
        if from <= last {
            self.kernel.close_range(from, last, flags)?;
        }
        Ok(())
    }
}

/// Closes a number. After this another thread may be given it.
fn close_number(fd: i32) {
    if let Some(number) = Descriptor::new(fd) {
        number.close();
    }
}
