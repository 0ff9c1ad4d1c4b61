//! write, writev, send, sendto, sendmsg.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::PollFlags;

use crate::addr::{Given, parse};
use crate::calls::connect::Manner;
use crate::calls::receive::is_ready;
use crate::description::{Decided, Description, Kind};
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;

use crate::socket::{Dgram, Push, Side, Stream, StreamError};
use crate::wait::{Plan, Subject};

/// A payload that fits any packet.
const DATAGRAM_SURE: usize = 508;

impl Process {
    /// write, writev, send, sendto, sendmsg, and each message of sendmmsg.
    pub fn send(
        &self,
        fd: i32,
        bufs: &[IoSlice<'_>],
        to: Option<&[u8]>,
        flags: i32,
    ) -> Outcome<usize> {
        let socket = match self.table.socket(fd) {
            Some(socket) => socket,
            None => return Err(Divert::Kernel),
        };
        match socket.decided() {
            Some(Decided::Stream(stream)) => self.send_stream(&socket, stream, bufs, flags),
            Some(Decided::Dgram(dgram)) => self.send_dgram(&socket, dgram, bufs, to, flags),
            Some(Decided::Listener(_)) => Err(pipe(flags)),
            Some(Decided::Foreign(it)) => Err(self.borrow(&socket, it, false)),
            None => match (socket.kind, to) {
                (Kind::Stream, to) if flags & libc::MSG_FASTOPEN != 0 => {
                    self.send_opening(&socket, bufs, to, flags)
                }
                (Kind::Stream, _) => Err(pipe(flags)),
                (Kind::Dgram, None) => Err(Errno::EDESTADDRREQ.into()),
                (Kind::Dgram, Some(to)) => self.send_unbound(&socket, bufs, to, flags),
            },
        }
    }

    pub(crate) fn send_stream(
        &self,
        socket: &Arc<Description>,
        stream: &Stream,
        bufs: &[IoSlice<'_>],
        flags: i32,
    ) -> Outcome<usize> {
        if flags & libc::MSG_FASTOPEN != 0 {
            // A second `connect`: the one that finds the connection made goes on to send.
            stream.connect_again()?;
        }
        let asked: usize = bufs.iter().map(|buf| buf.len()).sum();
        let push = push_of(flags);
        let is_more = push == Push::More;
        let is_nonblocking = socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        let sent = match stream.send(bufs, push) {
            Ok(count) => {
                if !is_more || count < asked {
                    self.after_push_of(&stream.link, socket.id, count);
                }
                count
            }
            Err(StreamError::Errno(error)) => return Err(error.into()),
            Err(StreamError::Pipe) => return Err(pipe(flags)),
            Err(StreamError::Wait) if is_nonblocking => {
                // Acknowledgements may have come that nobody has looked at.
                self.turn_if_idle(&stream.link);
                return match stream.send(bufs, push) {
                    Ok(count) => {
                        self.after_push(&stream.link, socket.id);
                        Ok(count)
                    }
                    Err(StreamError::Errno(error)) => Err(error.into()),
                    Err(StreamError::Pipe) => Err(pipe(flags)),
                    Err(StreamError::Wait) => Err(Errno::EAGAIN.into()),
                };
            }
            Err(StreamError::Wait) => 0,
        };
        if sent == asked || is_nonblocking {
            return Ok(sent);
        }
        self.send_rest(socket, stream, bufs, flags, asked, sent)
    }

    /// MSG_FASTOPEN: connect and send in one.
    ///
    /// DEVIATION(Linux): with a cookie a blocking call does not wait for the SYN-ACK; a refusal is told by the next
    /// call.
    fn send_opening(
        &self,
        socket: &Arc<Description>,
        bufs: &[IoSlice<'_>],
        to: Option<&[u8]>,
        flags: i32,
    ) -> Outcome<usize> {
        let remote = match to.map(|to| parse(to, socket.family)).transpose()? {
            None => return Err(Errno::EINVAL.into()),
            Some(Given::Unspecified) => return Err(Errno::EOPNOTSUPP.into()),
            Some(Given::Other) => return Err(Errno::EAFNOSUPPORT.into()),
            Some(Given::Addr(remote)) => remote,
        };
        let manner = Manner {
            is_nonblocking: socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0,
            is_fast: true,
        };
        self.connect_fresh(socket, remote, manner)?;
        match socket.decided() {
            Some(Decided::Stream(stream)) => {
                self.send_stream(socket, stream, bufs, flags & !libc::MSG_FASTOPEN)
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// A blocking send goes on until everything is in the ring.
    fn send_rest(
        &self,
        socket: &Arc<Description>,
        stream: &Stream,
        bufs: &[IoSlice<'_>],
        flags: i32,
        asked: usize,
        had: usize,
    ) -> Outcome<usize> {
        let push = push_of(flags);
        let timeout = socket.send_timeout_ns.load(Ordering::Relaxed);
        let plan = Plan {
            subject: Subject::Socket(socket),
            kernel: &[],
            deadline_ns: (timeout != 0).then(|| self.now_ns().saturating_add(timeout)),
            mask: None,
            may_restart: timeout == 0,
        };
        let mut all: Vec<IoSlice<'_>> = bufs.iter().map(|buf| IoSlice::new(buf)).collect();
        let mut rest = &mut all[..];
        IoSlice::advance_slices(&mut rest, had);
        let mut total = had;
        while total < asked {
            let outcome = self.wait(&plan, |_| match stream.send(rest, push) {
                Ok(count) => Ok(Some(count)),
                Err(StreamError::Wait) => Ok(None),
                Err(StreamError::Errno(error)) => Err(error.into()),
                Err(StreamError::Pipe) => Err(pipe(flags)),
            });
            match outcome {
                Ok(Some(count)) => {
                    stream.link.commands();
                    total += count;
                    IoSlice::advance_slices(&mut rest, count);
                }
                Ok(None) if total == 0 => return Err(Errno::EAGAIN.into()),
                Err(error) if total == 0 => return Err(error),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(total)
    }

    fn send_dgram(
        &self,
        socket: &Arc<Description>,
        dgram: &Dgram,
        bufs: &[IoSlice<'_>],
        to: Option<&[u8]>,
        flags: i32,
    ) -> Outcome<usize> {
        if dgram.is_shut_for_writing() {
            return Err(Errno::EPIPE.into());
        }
        let to = match to.map(|to| parse(to, socket.family)).transpose()? {
            Some(Given::Addr(addr)) => Some(addr),
            Some(Given::Other) => return Err(Errno::EAFNOSUPPORT.into()),
            Some(Given::Unspecified) | None => None,
        };
        let is_kernels = match (dgram.side(), to) {
            (Side::Kernel, None) => true,
            (_, Some(to)) => self.reason_to_connect_in_kernel(socket, to).is_some(),
            (Side::Both | Side::Stack, None) => false,
        };
        if is_kernels {
            return self.send_by_kernel(socket, dgram, flags);
        }
        if to.is_none() && dgram.remote.lock().is_none() {
            return Err(Errno::EDESTADDRREQ.into());
        }
        self.send_by_stack(socket, dgram, bufs, to, flags)
    }

    fn send_by_kernel(
        &self,
        socket: &Arc<Description>,
        dgram: &Dgram,
        flags: i32,
    ) -> Outcome<usize> {
        let number = socket.kernel_number();
        if dgram.side() == Side::Stack || number.is_none() {
            return Err(Errno::ENETUNREACH.into());
        }
        if socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0 {
            return Err(Divert::Kernel);
        }
        if is_ready(number, PollFlags::OUT) {
            return Err(Divert::KernelFirst);
        }
        let fd = number.map(|number| libc::pollfd {
            fd: number.number(),
            events: libc::POLLOUT,
            revents: 0,
        });
        let plan = Plan {
            subject: Subject::Socket(socket),
            kernel: fd.as_slice(),
            deadline_ns: None,
            mask: None,
            may_restart: true,
        };
        self.wait(
            &plan,
            |_| Ok(is_ready(number, PollFlags::OUT).then_some(())),
        )?;
        Err(Divert::KernelFirst)
    }

    fn send_by_stack(
        &self,
        socket: &Arc<Description>,
        dgram: &Dgram,
        bufs: &[IoSlice<'_>],
        to: Option<SocketAddr>,
        flags: i32,
    ) -> Outcome<usize> {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        if len > DATAGRAM_SURE {
            self.check_length(dgram, to, len)?;
        }
        if to.is_some_and(|to| self.is_own(to)) {
            self.realize_all();
        }
        if dgram.is_intent()
            && let Err(error) = self.realize_dgram(socket, dgram)
        {
            return Err(error.into());
        }
        if let Some(sent) = dgram.send(to, bufs)? {
            if let Some((link, _)) = dgram.part() {
                self.after_push(&link, socket.id);
            }
            return Ok(sent);
        }
        if let Some((link, _)) = dgram.part() {
            self.turn(&link);
        }
        if socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0 {
            return dgram.send(to, bufs)?.ok_or(Errno::EAGAIN.into());
        }
        let timeout = socket.send_timeout_ns.load(Ordering::Relaxed);
        let plan = Plan {
            subject: Subject::Socket(socket),
            kernel: &[],
            deadline_ns: (timeout != 0).then(|| self.now_ns().saturating_add(timeout)),
            mask: None,
            may_restart: timeout == 0,
        };
        let sent = self.wait(&plan, |_| Ok(dgram.send(to, bufs)?))?;
        if let Some((link, _)) = dgram.part() {
            link.commands();
        }
        sent.ok_or(Errno::EAGAIN.into())
    }

    /// What the path has told is the engine's to know: EMSGSIZE because of that comes with the next call.
    #[cold]
    fn check_length(&self, dgram: &Dgram, to: Option<SocketAddr>, len: usize) -> Result<(), Errno> {
        let remote = to.or_else(|| *dgram.remote.lock());
        let mtu = self.policy().map_or(u16::MAX, |policy| policy.mtu);
        match remote {
            Some(remote) if len > dgram.payload_max(remote, mtu) => Err(Errno::EMSGSIZE),
            _ => Ok(()),
        }
    }

    fn send_unbound(
        &self,
        socket: &Arc<Description>,
        bufs: &[IoSlice<'_>],
        to: &[u8],
        flags: i32,
    ) -> Outcome<usize> {
        match parse(to, socket.family)? {
            Given::Other => return Err(Errno::EAFNOSUPPORT.into()),
            Given::Unspecified => return Err(Errno::EDESTADDRREQ.into()),
            Given::Addr(_) => self.bind_dgram_anywhere(socket)?,
        }
        match socket.decided() {
            Some(Decided::Dgram(dgram)) => self.send_dgram(socket, dgram, bufs, Some(to), flags),
            _ => Err(Errno::EINVAL.into()),
        }
    }
}

/// What is urgent waits for nothing that MSG_MORE announces.
fn push_of(flags: i32) -> Push {
    if flags & libc::MSG_OOB != 0 {
        Push::Urgent
    } else if flags & libc::MSG_MORE != 0 {
        Push::More
    } else {
        Push::Now
    }
}

/// EPIPE, with its signal unless the caller declined it.
fn pipe(flags: i32) -> Divert {
    if flags & libc::MSG_NOSIGNAL != 0 {
        Divert::Errno(Errno::EPIPE)
    } else {
        Divert::Pipe
    }
}
