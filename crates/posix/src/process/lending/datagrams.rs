//! The borrower's side of a datagram socket that stays in another process: the owner makes each
//! call. The pair between them signals when there may be something to receive.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::RecvFlags;
use slipstack_mem::Descriptor;

use crate::addr::AddrBytes;
use crate::errno::Errno;
use crate::outcome::Outcome;
use crate::process::lending::answering::error_of;
use crate::process::lending::borrow::UserKind;
use crate::process::lending::takeover::may_share;
use crate::process::wait::Plan;
use crate::process::wait::polled;
use crate::process::{Process, Received};
use crate::socket::borrowed::child_message::{Message, MessageKind};
use crate::socket::borrowed::control::{Control, Unheard};
use crate::socket::borrowed::outbox::Subject;
use crate::socket::borrowed::requests::{CONTROL_MAX, Call, OPTION_MAX, REPLY_MAX, Reply, Request};
use crate::socket::borrowed::{Borrowed, ReadRequest};
use crate::socket::description::{Description, Kind};
use crate::socket::kernel_socket::is_readable;

/// Longest payload of any datagram.
const PAYLOAD_MAX: usize = 65_535;
/// Time that a sender without room waits until it tries again.
const ROOM_PAUSE: Duration = Duration::from_millis(1);
/// Calls that an owner does not answer, each after 0.25 s, until it is taken for one that is
/// stopped, although the system does not say so.
const SILENT_CALLS_MAX: u32 = 4;

impl Process {
    /// A receiving call on a datagram socket that lives elsewhere.
    pub(crate) fn recv_borrowed(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        (bufs, control): (&mut [IoSliceMut<'_>], &mut [u8]),
        flags: i32,
    ) -> Outcome<Received> {
        let waits =
            !socket.is_nonblocking() && flags & (libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE) == 0;
        let timeout_ns = socket.recv_timeout_ns.load(Ordering::Relaxed);
        let end_ns = (timeout_ns != 0).then(|| self.kernel.now_ns().saturating_add(timeout_ns));
        if waits {
            self.take_borrowed(socket, it, ReadRequest::All);
        }
        let found = self.receive_or_wait(socket, it, (&mut *bufs, &mut *control), flags, waits)?;
        match (found, first_number(socket)) {
            (Found::Received(received), _) => Ok(received),
            (Found::Nothing, _) => Err(Errno::EAGAIN.into()),
            (Found::Here, Some(fd)) => self.recvmsg_until(fd, (bufs, control), flags, end_ns),
            (Found::Here, None) => Err(Errno::EBADF.into()),
        }
    }

    fn receive_or_wait(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        (bufs, control): (&mut [IoSliceMut<'_>], &mut [u8]),
        flags: i32,
        waits: bool,
    ) -> Outcome<Found> {
        let mut receive = || self.receive_elsewhere(socket, it, (&mut *bufs, &mut *control), flags);
        let found = receive()?;
        let number = socket.kernel_number();
        if !matches!(found, Found::Nothing) || !waits || number.is_none() {
            return Ok(found);
        }
        let fd = polled(number, libc::POLLIN);
        let plan = Plan::of_call(
            &*self.kernel,
            socket,
            &socket.recv_timeout_ns,
            fd.as_slice(),
        );
        let found = self.wait(&plan, |look| {
            if socket.is_brought() {
                return Ok(Some(Found::Here));
            }
            match look.is_due() && is_readable(number) {
                true => Ok(Some(receive()?).filter(|found| !matches!(found, Found::Nothing))),
                false => Ok(None),
            }
        })?;
        Ok(found.unwrap_or(Found::Nothing))
    }

    fn receive_elsewhere(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        (bufs, control): (&mut [IoSliceMut<'_>], &mut [u8]),
        flags: i32,
    ) -> Result<Found, Errno> {
        let asked: usize = bufs.iter().map(|buf| buf.len()).sum();
        let asked = asked.min(PAYLOAD_MAX);
        let room = [0; CONTROL_MAX];
        let request = Request {
            control: &room[..control.len().min(CONTROL_MAX)],
            ..Request::new(Call::Receive, [flags, asked as i32])
        };
        let (reply, data) = match self.call_owner(socket, it, &request, &[], asked) {
            Ok(Some(result)) => result,
            Ok(None) => return Ok(Found::Here),
            Err(Errno::EAGAIN) if socket.is_brought() => return Ok(Found::Here),
            Err(Errno::EAGAIN) => return Ok(Found::Nothing),
            Err(error) => return Err(error),
        };
        let mut rest = &data[..];
        for buf in bufs {
            let count = buf.len().min(rest.len());
            buf[..count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
        }
        control[..reply.control.len()].copy_from_slice(&reply.control);
        Ok(Found::Received(Received {
            len: reply.len,
            flags: reply.flags,
            from: reply.name.as_deref().map(AddrBytes::from_bytes),
            control_len: reply.control.len(),
        }))
    }

    /// A sending call on it.
    pub(crate) fn send_borrowed(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        bufs: &[IoSlice<'_>],
        (to, control): (Option<&[u8]>, &[u8]),
        flags: i32,
    ) -> Outcome<usize> {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        if len > PAYLOAD_MAX {
            return Err(Errno::EMSGSIZE.into());
        }
        if control.len() > CONTROL_MAX {
            return Err(Errno::ENOBUFS.into());
        }
        let request = Request {
            name: to,
            control,
            ..Request::new(Call::Send, [flags, 0])
        };
        let send = || match self.call_owner(socket, it, &request, bufs, 0) {
            Ok(Some((reply, _))) => Ok(Some(reply.len)),
            Ok(None) => {
                let fd = first_number(socket).ok_or(Errno::EBADF)?;
                self.sendmsg(fd, bufs, to, control, flags).map(Some)
            }
            Err(Errno::EAGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        };
        if let Some(sent) = send()? {
            return Ok(sent);
        }
        if socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0 {
            return Err(Errno::EAGAIN.into());
        }
        let mut plan = Plan::of_call(&*self.kernel, socket, &socket.send_timeout_ns, &[]);
        let end_ns = plan.deadline_ns.unwrap_or(u64::MAX);
        loop {
            let next_ns = self.kernel.now_ns() + ROOM_PAUSE.as_nanos() as u64;
            plan.deadline_ns = Some(next_ns.min(end_ns));
            self.wait(&plan, |_| Ok(None::<()>))?;
            if let Some(sent) = send()? {
                return Ok(sent);
            }
            if self.kernel.now_ns() >= end_ns {
                return Err(Errno::EAGAIN.into());
            }
        }
    }

    /// Returns the length of the next datagram.
    pub(crate) fn unread_borrowed(&self, socket: &Arc<Description>, it: &Borrowed) -> usize {
        let flags = libc::MSG_PEEK | libc::MSG_TRUNC | libc::MSG_DONTWAIT;
        match self.receive_elsewhere(socket, it, (&mut [], &mut []), flags) {
            Ok(Found::Received(received)) => received.len,
            _ => 0,
        }
    }

    /// `connect` on a borrowed socket: it gets a peer for all processes that have it.
    pub(crate) fn connect_borrowed(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        addr: &[u8],
    ) -> Outcome<()> {
        let request = Request {
            name: Some(addr),
            ..Request::new(Call::Connect, [0, 0])
        };
        if self.call_owner(socket, it, &request, &[], 0)?.is_none() {
            return self.connect(first_number(socket).ok_or(Errno::EBADF)?, addr);
        }
        it.note_connected(addr, socket.family);
        Ok(())
    }

    pub(crate) fn shutdown_borrowed(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        how: i32,
    ) -> Outcome<()> {
        let request = Request::new(Call::Shutdown, [how, 0]);
        match self.call_owner(socket, it, &request, &[], 0)? {
            Some(_) => Ok(()),
            None => self.shutdown(first_number(socket).ok_or(Errno::EBADF)?, how),
        }
    }

    /// SO_ERROR.
    pub(crate) fn error_of_borrowed(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
    ) -> Option<Errno> {
        let request = Request::new(Call::TakeError, [0, 0]);
        let (reply, _) = self.call_owner(socket, it, &request, &[], 0).ok()??;
        i32::try_from(reply.len)
            .ok()
            .filter(|it| *it != 0)
            .map(Errno)
    }

    /// An option of a socket of another process, which has its effect there once this returns, or,
    /// on a connection, before anything later if the owner does not answer: it may be stopped. A
    /// program of classic BPF is given by its instructions.
    pub(crate) fn set_where_it_lives(
        &self,
        (socket, it): (&Arc<Description>, &Borrowed),
        (level, name): (i32, i32),
        value: &[u8],
    ) -> Result<(), Errno> {
        if value.len() > OPTION_MAX {
            return Err(Errno::ENOMEM);
        }
        let request = Request {
            name: Some(value),
            ..Request::new(Call::SetOption, [level, name])
        };
        // An option that a confined process sets has no effect.
        let reply = match socket.kind {
            Kind::Stream => {
                let id = it.id;
                let subject = Subject::Option { id, level, name };
                self.ask(it, &request, (&[], 0), |control, message, parts, max| {
                    control.call_surely(message, parts, subject, max)
                })
            }
            Kind::Dgram => self.ask_lender(socket, it, &request, &[], 0),
        };
        if let (None, true, Some(fd)) = (&reply, socket.is_brought(), first_number(socket)) {
            return self
                .set_datagram_option(fd, (level, name), value)
                .map_err(error_of);
        }
        reply.map_or(Ok(()), |(reply, _)| refused(&reply))
    }

    /// Has the owner make a call on a socket that this process holds by a pair. `Ok(None)`: the
    /// owner has ended, and the socket has come here.
    fn call_owner(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        request: &Request<'_>,
        data: &[IoSlice<'_>],
        room: usize,
    ) -> Result<Option<(Reply, Vec<u8>)>, Errno> {
        if socket.is_brought() {
            return Ok(None);
        }
        let answer = match it.is_taken() || self.hold_borrowed(socket, it, UserKind::WithLibrary) {
            true => self.ask_lender(socket, it, request, data, room),
            false => None,
        };
        let Some((reply, data)) = answer else {
            return match self.inherit_datagrams(socket, it) {
                true => Ok(None),
                false => Err(Errno::ENETDOWN),
            };
        };
        if reply.error == libc::ENOTCONN && is_settled_here(socket, it) {
            // Another thread has given the pair up.
            return Ok(None);
        }
        if request.call == Call::Receive {
            self.forget_signs(socket, it, reply.signs);
        }
        if reply.is_free {
            self.bring_datagrams(socket, it);
        }
        refused(&reply)?;
        Ok(Some((reply, data)))
    }

    /// Returns the events of a socket on whose pair there is a notification, which may be about
    /// something that another process has received since, or the end of its owner: then the socket
    /// goes on here. `None`: it cannot.
    pub(crate) fn readiness_elsewhere(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
    ) -> Option<u32> {
        if self.lending.keeps_out.load(Ordering::Relaxed) {
            return None;
        }
        let request = Request::new(Call::Readiness, [0, 0]);
        let Some((reply, _)) = self.ask_lender(socket, it, &request, &[], 0) else {
            return self.inherit_datagrams(socket, it).then_some(0);
        };
        if reply.flags == 0 {
            self.forget_signs(socket, it, reply.signs);
        }
        Some(reply.flags.cast_unsigned()).filter(|_| reply.error == 0)
    }

    /// Drops notifications up to `last`, which a call has answered.
    fn forget_signs(&self, socket: &Description, it: &Borrowed, last: u64) {
        let number = socket.kernel_number().filter(|_| !socket.is_brought());
        if let Some(number) = number
            && !forget_signs(number, last)
        {
            // Another process that has the pair was faster, so that a later one was dropped too.
            let again = Request::new(Call::Readiness, [1, 0]);
            let _ = self.ask_owner(it, &again, &[], 0);
        }
    }

    /// As [`Process::ask_owner`]. An owner that is silent is left if the socket can go on here: it
    /// may be stopped. `None`: it has come here, too.
    fn ask_lender(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        request: &Request<'_>,
        data: &[IoSlice<'_>],
        room: usize,
    ) -> Option<(Reply, Vec<u8>)> {
        if !it.has_own() && is_settled_here(socket, it) {
            return None;
        }
        if !may_share(socket, it) {
            return self.ask_owner(it, request, data, room);
        }
        let control = it.control()?;
        for _ in 0..SILENT_CALLS_MAX {
            let mut is_silent = false;
            let answer = self.ask(it, request, (data, room), |control, message, parts, max| {
                let now_ns = || self.kernel.now_ns();
                let called = control.call_in_time(now_ns, message, parts, max);
                is_silent = called == Err(Unheard::Silent);
                called.ok()
            });
            if !is_silent || socket.is_brought() {
                return answer;
            }
            if control.is_owner_stopped() {
                break;
            }
        }
        match self.share_datagrams(socket, it) {
            true => None,
            false => self.ask_owner(it, request, data, room),
        }
    }

    /// `None`: there is no owner any more, or no way to it.
    pub(crate) fn ask_owner(
        &self,
        it: &Borrowed,
        request: &Request<'_>,
        data: &[IoSlice<'_>],
        room: usize,
    ) -> Option<(Reply, Vec<u8>)> {
        self.ask(
            it,
            request,
            (data, room),
            |control, message, parts, max| match request.call {
                Call::Unread | Call::Options | Call::PeekOffset => {
                    control.call_briefly(message, parts, max)
                }
                _ => control.call(message, parts, max),
            },
        )
    }

    /// Asks about a connection. `None`: there is no owner any more, or it does not answer in time.
    pub(super) fn ask_of_connection(&self, it: &Borrowed, call: Call) -> Option<Reply> {
        let request = Request::new(call, [0, 0]);
        let now_ns = || self.kernel.now_ns();
        let answer = self.ask(it, &request, (&[], 0), |control, message, parts, max| {
            // An error that is taken after this has returned would be lost.
            let is_silent = control.is_silent();
            let answer = (!is_silent).then(|| control.call_in_time(now_ns, message, parts, max));
            answer?.ok()
        });
        answer.map(|(reply, _)| reply)
    }

    fn ask(
        &self,
        it: &Borrowed,
        request: &Request<'_>,
        (data, room): (&[IoSlice<'_>], usize),
        call: impl FnOnce(&Arc<Control>, Message, &[IoSlice<'_>], usize) -> Option<Vec<u8>>,
    ) -> Option<(Reply, Vec<u8>)> {
        // A confined process may not send messages.
        if self.lending.keeps_out.load(Ordering::Relaxed) {
            return None;
        }
        let message = Message {
            kind: MessageKind::Call,
            id: it.id,
            token: self.ids.next_token(),
            amount: 0,
        };
        let head = request.head();
        let before = [&head[..], request.name.unwrap_or_default(), request.control];
        let parts: Vec<IoSlice<'_>> = before
            .into_iter()
            .chain(data.iter().map(|part| &**part))
            .map(IoSlice::new)
            .collect();
        let result = call(&it.control()?, message, &parts, REPLY_MAX + room)?;
        let (reply, data) = Reply::parse(&result)?;
        Some((reply, data.to_vec()))
    }
}

/// Whether the socket has come here, once a thread that brings it has done so.
fn is_settled_here(socket: &Description, it: &Borrowed) -> bool {
    let _coming = it.coming.lock();
    socket.is_brought()
}

/// The result of a check for a datagram.
enum Found {
    Received(Received),
    Nothing,
    /// The socket has come here meanwhile.
    Here,
}

fn first_number(socket: &Description) -> Option<i32> {
    socket.cold.lock().numbers.first().copied()
}

fn refused(reply: &Reply) -> Result<(), Errno> {
    match reply.error {
        0 => Ok(()),
        error => Err(Errno(error)),
    }
}

/// Drops notifications up to `last`. Returns false if a later one was dropped.
fn forget_signs(number: Descriptor, last: u64) -> bool {
    loop {
        match next_sign(number, RecvFlags::PEEK) {
            Some(sign) if sign <= last => {}
            _ => return true,
        }
        match next_sign(number, RecvFlags::empty()) {
            Some(sign) if sign > last => return false,
            _ => {}
        }
    }
}

fn next_sign(number: Descriptor, flags: RecvFlags) -> Option<u64> {
    let mut sign = [0; 8];
    let recv = || rustix::net::recv(number.as_fd(), &mut sign, flags | RecvFlags::DONTWAIT);
    match retry_on_intr(recv) {
        Ok((8, _)) => Some(u64::from_le_bytes(sign)),
        _ => None,
    }
}
