//! The borrower's side: a connection of another process is replaced by one end of a pair when it is
//! used.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fs::fstat;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType};
use slipstack_mem::Descriptor;

use crate::errno::Errno;
use crate::lending::callers::LentCall;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::log::Log;
use crate::process::table::Entry;
use crate::process::table::Table;
use crate::socket::borrowed::child_message::{Message, MessageKind, ReadRequest};
use crate::socket::borrowed::requests::{Call, Request};
use crate::socket::borrowed::{Borrowed, Names};
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::kernel_socket::replace;
use crate::socket::kernel_socket::set_nonblocking;

/// A process to which so many connections have come in messages gets an engine for them.
const ARRIVALS: u32 = 4;

/// Time for which data of a requested connection may be in transit: for a call that may wait, and
/// for one that may not.
const PATIENCE: Duration = Duration::from_millis(200);
const PATIENCE_NONBLOCKING: Duration = Duration::from_millis(50);

/// Bytes that the kernel takes by a pair as a whole or not at all.
const WRITTEN_MAX: usize = 16 << 10;

/// Whether the user of a connection can announce its reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UserKind {
    WithLibrary,
    /// A program without the library.
    WithoutLibrary,
}

/// SO_RCVTIMEO and SO_SNDTIMEO as they are; from then on they are set where the connection is used.
pub(super) fn limit_times(end: &OwnedFd, socket: &Description) -> Result<(), Errno> {
    let limits = [
        (Timeout::Recv, &socket.recv_timeout_ns),
        (Timeout::Send, &socket.send_timeout_ns),
    ];
    for (which, limit) in limits {
        match limit.load(Ordering::Relaxed) {
            0 => {}
            ns => set_socket_timeout(end, which, Some(Duration::from_nanos(ns)))?,
        }
    }
    Ok(())
}

fn patience_of(socket: &Description) -> Duration {
    match socket.is_nonblocking() {
        true => PATIENCE_NONBLOCKING,
        false => PATIENCE,
    }
}

/// Bytes that wait at this end of a pair.
pub(super) fn waiting(socket: &Description) -> u64 {
    let number = socket.kernel_number();
    let waiting = number.and_then(|number| rustix::io::ioctl_fionread(number.as_fd()).ok());
    waiting.unwrap_or(0)
}

impl Process {
    /// Puts an end of a pair under the numbers, if that has not been done, and announces the
    /// program's read.
    pub(crate) fn take_borrowed(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        request: ReadRequest,
    ) {
        if !self.begin_use(socket, it) && (self.may_hold(socket, it) || !self.take_left(socket, it))
        {
            self.hold_and_request(socket, it, request);
        }
    }

    fn hold_and_request(&self, socket: &Arc<Description>, it: &Borrowed, request: ReadRequest) {
        // Nothing has come by a pair that is made now.
        let is_new = !it.is_taken();
        let is_held = self.hold_borrowed(socket, it, UserKind::WithLibrary);
        if is_held && !it.is_sent() && socket.kind == Kind::Stream && it.lacks_options() {
            // The owner was slow when the pair was made.
            self.learn_options(socket);
        }
        if !is_held {
            self.bring_if_left(socket);
        }
        if is_held && request != ReadRequest::None && !it.is_streaming() {
            let waiting = if is_new { 0 } else { waiting(socket) };
            it.request(waiting, request, socket.is_nonblocking());
        }
    }

    /// Puts an end of a pair under the numbers. Returns true if one is there.
    pub(super) fn hold_borrowed(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        reach: UserKind,
    ) -> bool {
        let is_held = self.hold_quietly(socket, it, reach);
        if !is_held && !it.has_own() {
            warn_of_foreign(&self.log, socket);
        }
        is_held
    }

    /// As [`Process::hold_borrowed`], if the owner may have been killed just now.
    pub(super) fn may_hold(&self, socket: &Arc<Description>, it: &Borrowed) -> bool {
        self.hold_quietly(socket, it, UserKind::WithLibrary)
    }

    fn hold_quietly(&self, socket: &Arc<Description>, it: &Borrowed, reach: UserKind) -> bool {
        if it.is_taken() {
            return true;
        }
        if socket.kind == Kind::Stream {
            self.learn_options(socket);
        }
        loop {
            let made = {
                // A child that another thread forks is not to keep the steward's end, nor to take
                // the connection for an unused one.
                let _unlisted = self.lending.post.unlisted.lock();
                it.pair_with(|| self.make_pair(socket, it, reach))
            };
            match (made, it.control()) {
                (Err(Errno::EAGAIN), Some(control)) if control.await_room().is_ok() => {}
                (made, _) => return made.is_ok(),
            }
        }
    }

    /// A call of this thread on the connection begins: one that has come in a message, or that this
    /// process uses again and again, may be this process's from now on. Returns whether it is.
    pub(super) fn begin_use(&self, socket: &Arc<Description>, it: &Borrowed) -> bool {
        it.note_user(self.kernel.thread());
        if socket.kind == Kind::Dgram {
            self.use_datagrams(socket, it);
            return socket.is_brought();
        }
        let is_first = it.is_sent() && it.turns.is_use_due() && self.takes_at_once();
        if is_first || it.is_due(self.kernel.now_ns()) {
            self.take_over(socket, it, patience_of(socket));
        } else if it.turns.is_first_use() {
            self.lending.in_use.note(socket);
        }
        socket.is_brought() || self.take_left(socket, it)
    }

    /// Notes that this thread is in a call on the pair. `None`: the connection is here.
    pub(super) fn enter_call(&self, socket: &Description, it: &Borrowed) -> Option<LentCall<'_>> {
        let _coming = it.coming.lock();
        let thread = self.kernel.thread();
        it.turns.note_user(thread);
        let callers = &self.lending.callers;
        match self.lending.keeps_out.load(Ordering::Relaxed) {
            _ if socket.is_brought() => None,
            true => Some(callers.enter_confined(thread, socket.id)),
            false => Some(callers.enter(thread, socket.id)),
        }
    }

    /// Called when libc has made a call on a connection of another process.
    #[cold]
    pub fn on_lent_call(&self) {
        self.lending.callers.leave(self.kernel.thread());
    }

    /// Called when libc has read bytes of number `fd` for a call that was diverted to it: the
    /// program may have all of them, so that the connection can come here.
    #[cold]
    pub fn on_borrowed_read(&self, fd: i32) {
        if let Some(socket) = self.table.socket(fd)
            && let Some(Decided::Foreign(it)) = socket.decided()
            && (it.is_streaming() || it.is_held())
            && it.is_due(self.kernel.now_ns())
        {
            it.hold();
            self.take_over(&socket, it, patience_of(&socket));
        }
    }

    /// Called when libc has found no bytes in a read of number `fd` that was diverted to it, and
    /// whose time is over or which a signal has ended (`is_interrupted`).
    #[cold]
    pub fn on_vain_read(&self, fd: i32, is_interrupted: bool) {
        if let Some(socket) = self.table.socket(fd)
            && let Some(Decided::Foreign(it)) = socket.decided()
            // A call that does not wait has announced nothing, but the one that its handler
            // interrupts may have.
            && (is_interrupted || socket.recv_timeout_ns.load(Ordering::Relaxed) != 0)
        {
            it.withdraw();
        }
    }

    /// Whether a connection that has come in a message goes to this process's engine with its first
    /// use.
    fn takes_at_once(&self) -> bool {
        self.living_attachment().is_some()
            || self.lending.arrivals.load(Ordering::Relaxed) >= ARRIVALS
    }

    /// Waits for nothing.
    ///
    /// # Errors
    /// EAGAIN: the owner takes no message now.
    fn make_pair(
        &self,
        socket: &Description,
        it: &Borrowed,
        reach: UserKind,
    ) -> Result<u64, Errno> {
        let control = it.control().ok_or(Errno::ENOTCONN)?;
        let kind = match socket.kind {
            Kind::Stream => SocketType::STREAM,
            Kind::Dgram => SocketType::SEQPACKET,
        };
        let family = AddressFamily::UNIX;
        let (ours, theirs) = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        limit_times(&ours, socket)?;
        let names = Names {
            id: it.id,
            inode: self.ids.inode_of(socket),
            local: it.local,
            remote: it.remote(),
            is_shut: it.is_shut(),
        };
        self.lending.abstract_names.put(&theirs, &names);
        let message = Message {
            kind: MessageKind::Take,
            id: it.id,
            token: self.ids.next_token(),
            amount: match reach {
                UserKind::WithLibrary => 0,
                UserKind::WithoutLibrary => fstat(&ours)?.st_ino,
            },
        };
        control.say_now(message, Some(theirs.as_fd()))?;
        if socket.kind == Kind::Dgram && reach == UserKind::WithLibrary {
            self.lending.keep_kernel_part(socket, it);
        }
        let numbers = socket.cold.lock().numbers.clone();
        for number in numbers.into_iter().filter_map(Descriptor::new) {
            replace(number, &ours)?;
            // A new pair is blocking.
            if socket.is_nonblocking() {
                set_nonblocking(number, true)?;
            }
        }
        it.sent.begin();
        if socket.kind == Kind::Stream && reach == UserKind::WithLibrary {
            let own = socket.peek_offset.load(Ordering::Relaxed);
            it.reads.begin(&*self.kernel, ours.as_raw_fd(), own);
        }
        socket.has_kernel.store(true, Ordering::Release);
        self.report.on_borrowed(socket, it.local, it.remote());
        Ok(message.token)
    }

    /// A call on a connection that lives in the parent: made on the pair's end, which the kernel
    /// serves. `None`: it has come here.
    pub(crate) fn borrow(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        request: ReadRequest,
    ) -> Option<Divert> {
        let call = self.enter_call(socket, it)?;
        self.hold_and_request(socket, it, request);
        Some(call.go_on(match it.is_taken() {
            true => Divert::KernelLent,
            false => Errno::ENOTCONN.into(),
        }))
    }

    /// A sending call on a connection that lives elsewhere, which libc makes. `None`: it has come
    /// here.
    pub(crate) fn borrow_to_write(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
    ) -> Option<Divert> {
        it.turns.on_write();
        if self.begin_use(socket, it) {
            return None;
        }
        let is_new = !it.is_taken();
        let divert = self.borrow(socket, it, ReadRequest::None)?;
        if (is_new || self.lending.refuses_writes(socket))
            && let Some(error) = self.error_before_write(it)
        {
            self.on_lent_call();
            return Some(error.into());
        }
        it.refuse_writes(socket);
        it.sent.lose();
        (it.is_taken() || !self.take_left(socket, it)).then_some(divert)
    }

    /// As [`Process::borrow_to_write`], for bytes in memory: a few are written at once.
    pub(crate) fn write_borrowed(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        bufs: &[IoSlice<'_>],
        flags: i32,
    ) -> Option<Outcome<usize>> {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let known = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE;
        // A confined process (seccomp) makes the call that it has chosen.
        let keeps_out = self.lending.keeps_out.load(Ordering::Relaxed);
        if keeps_out || !(1..=WRITTEN_MAX).contains(&len) || flags & !known != 0 {
            return self.borrow_to_write(socket, it).map(Err);
        }
        it.turns.on_write();
        if self.begin_use(socket, it) {
            return None;
        }
        let is_new = !it.is_taken();
        let call = self.enter_call(socket, it)?;
        self.hold_and_request(socket, it, ReadRequest::None);
        if is_new && let Some(error) = self.error_before_write(it) {
            return Some(Err(error.into()));
        }
        it.refuse_writes(socket);
        let Some(number) = socket.kernel_number().filter(|_| it.is_taken()) else {
            drop(call);
            let is_here = self.take_left(socket, it);
            return (!is_here).then_some(Err(Errno::ENOTCONN.into()));
        };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut none = SendAncillaryBuffer::default();
        let write = || rustix::net::sendmsg(number.as_fd(), bufs, &mut none, flags);
        match it.sent.write(bufs, write) {
            Ok(count) => Some(Ok(count)),
            // Libc waits for room, if the call may wait.
            Err(rustix::io::Errno::AGAIN) => {
                it.sent.lose();
                Some(Err(call.go_on(Divert::KernelLent)))
            }
            Err(_) => {
                drop(call);
                if self.take_hung_up(socket, it) {
                    return None;
                }
                // sk_stream_error(): an error comes before EPIPE, once.
                if let Some(error) = self.error_of_write(it).filter(|it| *it != Errno::EPIPE) {
                    return Some(Err(error.into()));
                }
                // Libc raises the signal.
                let call = self.enter_call(socket, it)?;
                Some(Err(call.go_on(Divert::KernelLent)))
            }
        }
    }

    /// Returns the error of a write that would be lost in a new pair. `None`: there is none, or the
    /// pair refuses the write from now on, with its signal.
    fn error_before_write(&self, it: &Borrowed) -> Option<Errno> {
        match self.error_of_write(it)? {
            Errno::EPIPE => {
                it.note_shut();
                None
            }
            error => Some(error),
        }
    }

    /// FIONREAD on a connection that lives elsewhere: asks its owner, which passes nothing on.
    /// `None`: it has come here.
    pub(crate) fn count_borrowed(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
    ) -> Option<Outcome<usize>> {
        if self.begin_use(socket, it) {
            return None;
        }
        let is_held = self.hold_borrowed(socket, it, UserKind::WithLibrary);
        let here = waiting(socket) as usize;
        let request = Request::new(Call::Unread, [0, 0]);
        let asked = is_held && !it.is_streaming();
        let reply = asked
            .then(|| self.ask_owner(it, &request, &[], 0))
            .flatten();
        Some(match reply {
            Some((reply, _)) if reply.error == 0 => Ok(here + reply.len),
            None if asked && it.is_owner_silent() => Ok(here),
            _ => Err(self.borrow(socket, it, ReadRequest::All)?),
        })
    }

    /// Called before the program confines itself to some system calls (seccomp(2)): data of
    /// borrowed connections is passed on from now on without requests, because the calls that
    /// request it may be forbidden.
    pub fn before_confinement(&self) {
        self.lending.keeps_out.store(true, Ordering::Relaxed);
        for attachment in self.engines.all() {
            attachment.note_last_driver(self.kernel.thread());
        }
        self.table.each_borrowed(|socket, it| {
            self.take_borrowed(socket, it, ReadRequest::All);
            // From now on this process asks nothing.
            it.say(MessageKind::Part, 1);
            it.stop_counting(&*self.kernel, socket);
        });
    }

    /// Called before the program may have no further descriptor.
    pub fn before_few_descriptors(&self) {
        self.lending.keeps_out.store(true, Ordering::Relaxed);
        self.table.each_borrowed(|socket, it| {
            self.hold_borrowed(socket, it, UserKind::WithLibrary);
            it.say(MessageKind::Part, 1);
        });
    }
}

impl Table {
    pub(crate) fn each_borrowed(&self, f: impl Fn(&Arc<Description>, &Borrowed)) {
        for (_, entry) in self.all() {
            if let Entry::Socket(socket) = entry
                && let Some(Decided::Foreign(it)) = socket.decided()
            {
                f(&socket, it);
            }
        }
    }
}

pub(super) fn warn_of_foreign(log: &Log, socket: &Description) {
    let fd = socket.cold.lock().numbers.first().copied().unwrap_or(-1);
    log.warn_once(&format!(
        "descriptor {fd} is a connection of the process this one was forked from, which has \
         ended or cannot lend it; it cannot be used here"
    ));
}
