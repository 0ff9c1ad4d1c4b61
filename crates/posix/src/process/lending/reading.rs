//! Calls that receive on connections of other processes.

use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::net::{RecvAncillaryBuffer, RecvFlags};

use crate::errno::Errno;
use crate::outcome::Divert;
use crate::process::Process;
use crate::process::lending::borrow::{waiting, warn_of_foreign};
use crate::process::lending::long_waits::NO_DOORBELL;
use crate::process::subject::Subject;
use crate::process::wait::{Plan, polled};
use crate::socket::borrowed::{Borrowed, ReadRequest};
use crate::socket::description::Description;
use crate::socket::kernel_socket::ready_in_kernel;

/// Result of a call that receives on a connection which lives elsewhere.
pub(crate) enum LentRead {
    /// The connection has come here. The call's time is over then (SO_RCVTIMEO); so many bytes have
    /// been received before.
    Here(Option<u64>, usize),
    /// The call is over with so many bytes.
    Bytes(usize),
}

impl Process {
    /// A receiving call on a connection that lives elsewhere.
    ///
    /// # Errors
    /// The connection is still elsewhere.
    pub(crate) fn borrow_to_read(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        bufs: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Result<LentRead, Divert> {
        let asked: usize = bufs.iter().map(|buf| buf.len()).sum();
        let read = self.announce_and_read(socket, it, bufs, flags);
        let is_vain = match read {
            Err(Divert::Errno(Errno::EAGAIN | Errno::EINTR) | Divert::Stopped) => true,
            Ok(LentRead::Bytes(count)) => count < asked,
            _ => false,
        };
        if is_vain {
            it.withdraw();
        }
        read
    }

    fn announce_and_read(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        bufs: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Result<LentRead, Divert> {
        let timeout_ns = socket.recv_timeout_ns.load(Ordering::Relaxed);
        let end_ns = (timeout_ns != 0).then(|| self.kernel.now_ns().saturating_add(timeout_ns));
        if self.begin_use(socket, it) {
            return Ok(LentRead::Here(end_ns, 0));
        }
        // Nothing has come by a pair that is made now.
        let is_new = !it.is_taken();
        if !self.may_hold(socket, it) {
            if self.take_left(socket, it) {
                return Ok(LentRead::Here(end_ns, 0));
            }
            if !it.has_own() {
                warn_of_foreign(&self.log, socket);
            }
            return Err(Errno::ENOTCONN.into());
        }
        if flags & libc::MSG_PEEK != 0 {
            it.end_counting(&*self.kernel, socket);
        }
        it.turns.on_read();
        let asked: usize = bufs.iter().map(|buf| buf.len()).sum();
        let is_prompt = socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        let wants_all = flags & libc::MSG_WAITALL != 0;
        let keeps_out = self.lending.keeps_out.load(Ordering::Relaxed);
        let waits = !is_prompt && asked > 0 && !keeps_out && flags & libc::MSG_OOB == 0;
        if waits && (wants_all || it.turns.has_several_users()) {
            return self.read_pair((socket, it), bufs, flags, end_ns);
        }
        if asked > 0 {
            let waiting = || if is_new { 0 } else { waiting(socket) };
            request(it, waiting, (asked, wants_all), is_prompt);
        }
        match waits {
            true => self.read_or_take(socket, it, end_ns),
            false => self.read_in_libc(socket, it, end_ns),
        }
    }

    /// The call goes on in libc, unless the connection has come here.
    fn read_in_libc(
        &self,
        socket: &Description,
        it: &Borrowed,
        end_ns: Option<u64>,
    ) -> Result<LentRead, Divert> {
        match self.enter_call(socket, it) {
            Some(call) => Err(call.go_on(Divert::KernelRead)),
            None => Ok(LentRead::Here(end_ns, 0)),
        }
    }

    /// Waits in a call that receives, of the only thread that uses the connection, until it has
    /// come here or has bytes, until `end_ns` at most.
    ///
    /// # Errors
    /// How the call goes on if it has not come: there are bytes, or its time is over.
    fn read_or_take(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        end_ns: Option<u64>,
    ) -> Result<LentRead, Divert> {
        let mut is_begun = false;
        loop {
            let due_ns = it.due_ns();
            if due_ns.is_none() && !(end_ns.is_some() && is_begun) {
                break;
            }
            is_begun = true;
            let until_ns = due_ns.into_iter().chain(end_ns).min().unwrap_or(0);
            let left = until_ns.saturating_sub(self.kernel.now_ns());
            let Some(polled) = polled(socket.kernel_number(), libc::POLLIN) else {
                return Ok(LentRead::Here(end_ns, 0));
            };
            let Some(call) = self.enter_call(socket, it) else {
                return Ok(LentRead::Here(end_ns, 0));
            };
            let mut fds = [NO_DOORBELL, polled];
            let left = Some(Duration::from_nanos(left));
            let found = self.kernel.ppoll(&mut fds, left, None)?;
            drop(call);
            match found {
                0 if due_ns.is_some_and(|due| due <= self.kernel.now_ns()) => {
                    self.take_idle(socket, it);
                }
                0 if end_ns.is_some_and(|end| end <= self.kernel.now_ns()) => {
                    return Err(Errno::EAGAIN.into());
                }
                0 => {}
                // The owner has ended, perhaps.
                _ if fds[1].revents & (libc::POLLHUP | libc::POLLERR) != 0 => {
                    self.take_hung_up(socket, it);
                    break;
                }
                _ => break,
            }
            if socket.is_brought() {
                return Ok(LentRead::Here(end_ns, 0));
            }
        }
        self.read_in_libc(socket, it, end_ns)
    }

    /// Reads from the pair, in a call that may wait for all bytes or beside other threads: the
    /// connection may come here while it waits.
    fn read_pair(
        &self,
        (socket, it): (&Arc<Description>, &Borrowed),
        bufs: &mut [IoSliceMut<'_>],
        flags: i32,
        end_ns: Option<u64>,
    ) -> Result<LentRead, Divert> {
        let wants_all = flags & (libc::MSG_WAITALL | libc::MSG_PEEK) == libc::MSG_WAITALL;
        let mut own: Vec<IoSliceMut<'_>> = bufs.iter_mut().map(|it| IoSliceMut::new(it)).collect();
        let mut rest = &mut own[..];
        let mut total = 0;
        loop {
            let asked: usize = rest.iter().map(|buf| buf.len()).sum();
            let Some(call) = self.enter_call(socket, it) else {
                return Ok(LentRead::Here(end_ns, total));
            };
            // Another thread has closed it.
            if socket.has_left() {
                return Ok(LentRead::Bytes(total));
            }
            let received = receive(socket, rest, flags);
            if received == Err(Some(rustix::io::Errno::CONNRESET)) {
                it.note_cut();
            }
            match received {
                Ok(0) | Err(Some(_)) if total == 0 => return Err(call.go_on(Divert::KernelRead)),
                Ok(0) | Err(Some(_)) => return Ok(LentRead::Bytes(total)),
                Ok(count) if count < asked && wants_all => {
                    total += count;
                    IoSliceMut::advance_slices(&mut rest, count);
                    continue;
                }
                Ok(count) => return Ok(LentRead::Bytes(total + count)),
                Err(None) => {}
            }
            drop(call);
            let is_peek = flags & libc::MSG_PEEK != 0;
            if !is_peek && waiting(socket) > 0 {
                // A request that counts bytes which another thread takes would never be answered.
                continue;
            }
            // Another thread may have had what was requested before.
            request(it, || waiting(socket), (asked, wants_all), false);
            match self.await_pair(socket, end_ns) {
                Ok(true) => {}
                Ok(false) | Err(_) if total > 0 => return Ok(LentRead::Bytes(total)),
                Ok(false) => return Err(Errno::EAGAIN.into()),
                Err(divert) => return Err(divert),
            }
        }
    }

    /// Waits until the pair has something, the connection has come here or was closed, or something
    /// else has happened. Returns false if `end_ns` is over.
    fn await_pair(&self, socket: &Arc<Description>, end_ns: Option<u64>) -> Result<bool, Divert> {
        let polled = polled(socket.kernel_number(), libc::POLLIN);
        let plan = Plan {
            subject: Subject::Socket(socket),
            kernel: polled.as_slice(),
            deadline_ns: end_ns,
            mask: None,
            may_restart: end_ns.is_none(),
            ends_when_stopped: end_ns.is_some(),
            is_part: false,
        };
        let found = self.wait(&plan, |look| {
            let has_bytes = || !ready_in_kernel(socket.kernel_number(), PollFlags::IN).is_empty();
            let is_elsewhere = socket.is_brought() || socket.has_left();
            let is_over = is_elsewhere || look.is_due() && has_bytes();
            Ok(is_over.then_some(()))
        })?;
        Ok(found.is_some())
    }
}

/// Requests `asked` bytes from the steward, or as many as there are. `waiting`: those that have
/// come by the pair.
fn request(
    it: &Borrowed,
    waiting: impl FnOnce() -> u64,
    (asked, wants_all): (usize, bool),
    is_prompt: bool,
) {
    if !it.is_streaming() {
        let request = match wants_all {
            true => ReadRequest::Whole(asked as u64),
            false => ReadRequest::Some(asked as u64),
        };
        it.request(waiting(), request, is_prompt);
    }
}

/// Receives what the pair has.
///
/// # Errors
/// `None`: there is nothing.
fn receive(
    socket: &Description,
    bufs: &mut [IoSliceMut<'_>],
    flags: i32,
) -> Result<usize, Option<rustix::io::Errno>> {
    let number = socket.kernel_number().ok_or(None)?;
    let kept = (flags & libc::MSG_PEEK).cast_unsigned();
    let flags = RecvFlags::from_bits_retain(kept) | RecvFlags::DONTWAIT;
    let mut none = RecvAncillaryBuffer::default();
    match rustix::net::recvmsg(number.as_fd(), bufs, &mut none, flags) {
        Ok(received) => Ok(received.bytes),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Err(None),
        Err(error) => Err(Some(error)),
    }
}
