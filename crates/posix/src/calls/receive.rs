//! read, readv, recv, recvfrom, recvmsg.

use std::io::IoSliceMut;
use std::sync::Arc;

use crate::calls::receive_datagram::recv_queued;
use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::outcome::{Divert, Outcome};
use crate::process::lending::LentRead;
use crate::process::wait::Plan;
use crate::process::{Process, Received};
use crate::ready::bits;
use crate::socket::ancillary::{RequestedControl, Writer};
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::{How, Stream, StreamError};

/// Largest peek whose bytes are not returned: more than a receive buffer has.
const UNSEEN_MAX: usize = 16 << 20;

/// The flags of a call that receives, and the time at which it gives up, if it has waited before.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    pub(super) flags: i32,
    pub(super) end_ns: Option<u64>,
}

impl Process {
    /// recvmsg, and each message of recvmmsg. `control`: the place for control messages.
    pub fn recvmsg(
        &self,
        fd: i32,
        bufs: &mut [IoSliceMut<'_>],
        control: &mut [u8],
        flags: i32,
    ) -> Outcome<Received> {
        self.recvmsg_until(fd, (bufs, control), flags, None)
    }

    /// As [`Process::recvmsg`]. `end_ns`: the time at which the call gives up, if it has waited
    /// before (SO_RCVTIMEO).
    pub(crate) fn recvmsg_until(
        &self,
        fd: i32,
        (bufs, control): (&mut [IoSliceMut<'_>], &mut [u8]),
        flags: i32,
        end_ns: Option<u64>,
    ) -> Outcome<Received> {
        self.let_overdue_leave();
        let socket = match self.table.socket(fd) {
            Some(socket) => socket,
            // An epoll descriptor (the kernel returns EINVAL), or a number that is no longer ours.
            None => return self.table.recv_list(fd, bufs, flags),
        };
        self.let_overdue_leave_at(&socket);
        match socket.decided() {
            Some(Decided::Stream(stream)) if flags & libc::MSG_ERRQUEUE != 0 => {
                self.look_for_acks(&socket, stream);
                Ok(recv_queued(&self.network, &socket, control).ok_or(Errno::EAGAIN)?)
            }
            Some(Decided::Stream(stream))
                if stream.requested() != RequestedControl::default()
                    || socket.peek_from().is_some() =>
            {
                let limit = Limit { flags, end_ns };
                self.recv_with_more(&socket, stream, (bufs, control), limit)
            }
            Some(Decided::Stream(stream)) => {
                self.read_stream(&socket, stream, bufs, Limit { flags, end_ns })
            }
            Some(Decided::Dgram(dgram)) => {
                let limit = Limit { flags, end_ns };
                self.recv_dgram(&socket, dgram, (bufs, control), limit)
            }
            Some(Decided::Listener(_)) => Err(Errno::ENOTCONN.into()),
            Some(Decided::Foreign(it)) if socket.kind == Kind::Dgram => {
                self.recv_borrowed(&socket, it, (bufs, control), flags)
            }
            Some(Decided::Foreign(it)) => match self.borrow_to_read(&socket, it, bufs, flags)? {
                LentRead::Here(end_ns, 0) => self.recvmsg_until(fd, (bufs, control), flags, end_ns),
                LentRead::Here(end_ns, before) => {
                    let more = self.recv_behind(fd, (bufs, before), flags, end_ns);
                    if let Err(Divert::KernelRead | Divert::KernelLent) = more {
                        // Another thread has put another connection there, and libc is not called.
                        self.on_lent_call();
                    }
                    Ok(bytes(before + more.map_or(0, |more| more.len)))
                }
                LentRead::Bytes(count) => Ok(bytes(count)),
            },
            None => match socket.kind {
                Kind::Stream if flags & libc::MSG_OOB != 0 => Err(Errno::EINVAL.into()),
                Kind::Stream => Err(Errno::ENOTCONN.into()),
                // Nothing can arrive before it has a port; another thread may give it one.
                Kind::Dgram => self.recv_unbound(&socket, (bufs, control), flags),
            },
        }
    }

    /// Receives what a call wants behind its first `before` bytes, which it has already.
    #[cold]
    fn recv_behind(
        &self,
        fd: i32,
        (bufs, before): (&mut [IoSliceMut<'_>], usize),
        flags: i32,
        end_ns: Option<u64>,
    ) -> Outcome<Received> {
        let mut own: Vec<IoSliceMut<'_>> = bufs.iter_mut().map(|it| IoSliceMut::new(it)).collect();
        let mut rest = &mut own[..];
        IoSliceMut::advance_slices(&mut rest, before);
        self.recvmsg_until(fd, (rest, &mut []), flags, end_ns)
    }

    /// SO_PEEK_OFF, TCP_INQ or a timestamp is on.
    #[cold]
    fn recv_with_more(
        &self,
        socket: &Arc<Description>,
        stream: &Stream,
        (bufs, control): (&mut [IoSliceMut<'_>], &mut [u8]),
        limit: Limit,
    ) -> Outcome<Received> {
        let flags = limit.flags;
        let mut received = self.read_stream(socket, stream, bufs, limit)?;
        if flags & libc::MSG_OOB == 0 {
            socket.move_peek_offset(flags & libc::MSG_PEEK != 0, received.len);
        }
        let requested = stream.requested();
        let mut writer = Writer::new(control);
        if requested.has_times()
            && received.len > 0
            && flags & libc::MSG_OOB == 0
            && let Ok(info) = stream.info()
        {
            let now_ns = self.kernel.now_ns();
            writer.put_times(requested, now_ns.saturating_sub(info.data_age_ns), now_ns);
        }
        if requested.has(RequestedControl::INQ) {
            let (level, kind) = (libc::IPPROTO_TCP, libc::TCP_CM_INQ);
            writer.put(level, kind, &stream.inq().to_ne_bytes());
        }
        let (control_len, is_cut) = writer.finish();
        received.control_len = control_len;
        received.flags |= if is_cut { libc::MSG_CTRUNC } else { 0 };
        Ok(received)
    }

    /// Stamps that wait for acknowledgements may have them by now.
    fn look_for_acks(&self, socket: &Description, stream: &Stream) {
        if socket.error_queue.awaits_acks() {
            self.turn_if_idle(stream.attachment());
            socket.settle_acks();
        }
    }

    fn read_stream(
        &self,
        socket: &Arc<Description>,
        stream: &Stream,
        bufs: &mut [IoSliceMut<'_>],
        limit: Limit,
    ) -> Outcome<Received> {
        let Limit { flags, end_ns } = limit;
        if flags & libc::MSG_OOB != 0 {
            return self.recv_urgent(stream, bufs, flags);
        }
        let plan = || plan_to_read(&*self.kernel, socket, end_ns);
        let asked: usize = bufs.iter().map(|buf| buf.len()).sum();
        let is_nonblocking = socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        if asked == 0 {
            return self.recv_nothing(plan, stream, is_nonblocking);
        }
        let how = match flags & (libc::MSG_PEEK | libc::MSG_TRUNC) {
            0 => How::Take,
            libc::MSG_PEEK => How::Peek(socket.peek_from().unwrap_or(0)),
            libc::MSG_TRUNC => How::Drop,
            _ => return self.peek_unseen(socket, stream, asked, limit),
        };
        let look_end = |count: usize| match how {
            How::Peek(skip) => skip + count,
            How::Take | How::Drop => 0,
        };
        let is_peek = matches!(how, How::Peek(_));
        let is_all = flags & libc::MSG_WAITALL != 0;
        let target = match is_nonblocking {
            true => 1,
            false if is_all => asked,
            false => asked.min(stream.low_water()),
        };
        match stream.dequeue(bufs, how) {
            Ok(count) if count == 0 || count >= target => Ok(bytes(count)),
            Ok(count) if stream.ends_at_mark(look_end(count)) => Ok(bytes(count)),
            Ok(count) if is_peek => self.peek_all(&plan(), stream, (bufs, how), target, count),
            Ok(count) => self.recv_all((socket, stream), plan(), (bufs, how), target, count),
            Err(StreamError::Errno(error)) => Err(error.into()),
            Err(StreamError::Pipe) => Ok(bytes(0)),
            Err(StreamError::Wait) if is_nonblocking => {
                self.turn_if_idle(stream.attachment());
                match stream.dequeue(bufs, how) {
                    Ok(count) => Ok(bytes(count)),
                    Err(StreamError::Errno(error)) => Err(error.into()),
                    Err(StreamError::Wait | StreamError::Pipe) => Err(Errno::EAGAIN.into()),
                }
            }
            Err(StreamError::Wait) if target > 1 && is_peek => {
                self.peek_all(&plan(), stream, (bufs, how), target, 0)
            }
            Err(StreamError::Wait) if target > 1 => {
                self.recv_all((socket, stream), plan(), (bufs, how), target, 0)
            }
            Err(StreamError::Wait) => {
                let count = self.await_bytes(&plan(), stream, || stream.dequeue(bufs, how))?;
                Ok(bytes(count))
            }
        }
    }

    /// tcp_recvmsg() without room: it waits once for something to read, whatever ends the wait.
    #[cold]
    fn recv_nothing<'a>(
        &self,
        plan: impl FnOnce() -> Plan<'a>,
        stream: &Stream,
        is_nonblocking: bool,
    ) -> Outcome<Received> {
        let mut outcome = stream.recv_nothing();
        if outcome == Err(StreamError::Wait) && is_nonblocking {
            self.turn_if_idle(stream.attachment());
            outcome = stream.recv_nothing();
        }
        match outcome {
            Ok(()) | Err(StreamError::Pipe) => {}
            Err(StreamError::Errno(error)) => return Err(error.into()),
            Err(StreamError::Wait) if is_nonblocking => return Err(Errno::EAGAIN.into()),
            Err(StreamError::Wait) => {
                let _ = self.wait(&plan(), |_| {
                    Ok((stream.readiness() & bits::IN != 0).then_some(()))
                });
            }
        }
        Ok(bytes(0))
    }

    /// MSG_OOB: never waits.
    fn recv_urgent(
        &self,
        stream: &Stream,
        bufs: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Outcome<Received> {
        self.turn_if_idle(stream.attachment());
        let byte = match stream.recv_urgent(flags & libc::MSG_PEEK != 0) {
            Ok(Some(byte)) => byte,
            Ok(None) | Err(StreamError::Wait | StreamError::Pipe) => return Ok(bytes(0)),
            Err(StreamError::Errno(error)) => return Err(error.into()),
        };
        let place = bufs.iter_mut().find_map(|buf| buf.first_mut());
        let is_cut = place.is_none();
        let len = usize::from(!is_cut);
        if let Some(place) = place.filter(|_| flags & libc::MSG_TRUNC == 0) {
            *place = byte;
        }
        let cut = if is_cut { libc::MSG_TRUNC } else { 0 };
        Ok(Received {
            flags: libc::MSG_OOB | cut,
            ..bytes(len)
        })
    }

    /// Waits until a look at the stream finds bytes, the end, or an error.
    fn await_bytes(
        &self,
        plan: &Plan<'_>,
        stream: &Stream,
        mut look: impl FnMut() -> Result<usize, StreamError>,
    ) -> Outcome<usize> {
        let before = self.kernel.interruptions();
        let outcome = self.wait(plan, |_| {
            // tcp_recvmsg(): at the urgent mark a signal comes before the data that follows.
            if stream.is_at_mark() && self.kernel.interruptions() != before {
                return Err(Errno::EINTR.into());
            }
            match look() {
                Ok(count) => Ok(Some(count)),
                Err(StreamError::Wait) => Ok(None),
                Err(StreamError::Errno(error)) => Err(error.into()),
                Err(StreamError::Pipe) => Ok(Some(0)),
            }
        })?;
        outcome.ok_or(Errno::EAGAIN.into())
    }

    /// MSG_WAITALL and SO_RCVLOWAT: goes on until `target` bytes are there, the end, an error or a
    /// signal. SO_RCVTIMEO is for all of them together.
    fn recv_all(
        &self,
        (socket, stream): (&Arc<Description>, &Stream),
        plan: Plan<'_>,
        (bufs, how): (&mut [IoSliceMut<'_>], How),
        target: usize,
        had: usize,
    ) -> Outcome<Received> {
        let plan = plan.of_parts();
        let mut rest = bufs;
        IoSliceMut::advance_slices(&mut rest, had);
        let mut total = had;
        let mut outcome = Ok(());
        while total < target {
            // tcp_recvmsg_locked(): a call that has bytes leaves an error to the next.
            let error = match total {
                0 => Stream::take_error,
                _ => Stream::peek_error,
            };
            match self.await_bytes(&plan, stream, || stream.dequeue_as(rest, how, error)) {
                Ok(0) => break,
                Ok(count) => {
                    total += count;
                    IoSliceMut::advance_slices(&mut rest, count);
                    if stream.is_at_mark() {
                        break;
                    }
                }
                Err(_) if total > 0 => break,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.end_if_closed(socket);
        outcome.map(|()| bytes(total))
    }

    /// Peeks at bytes for MSG_PEEK.
    fn peek_all(
        &self,
        plan: &Plan<'_>,
        stream: &Stream,
        (bufs, how): (&mut [IoSliceMut<'_>], How),
        target: usize,
        mut had: usize,
    ) -> Outcome<Received> {
        let skip = match how {
            How::Peek(skip) => skip,
            How::Take | How::Drop => 0,
        };
        let outcome = self.await_bytes(plan, stream, || match stream.dequeue(bufs, how) {
            Ok(count)
                if count < target
                    && stream.may_bring_more()
                    && !stream.ends_at_mark(skip + count) =>
            {
                had = count;
                Err(StreamError::Wait)
            }
            other => other,
        });
        match outcome {
            Ok(count) => Ok(bytes(count)),
            Err(_) if had > 0 => Ok(bytes(had)),
            Err(error) => Err(error),
        }
    }

    /// MSG_PEEK with MSG_TRUNC: how much there is; nothing is copied.
    #[cold]
    fn peek_unseen(
        &self,
        socket: &Arc<Description>,
        stream: &Stream,
        asked: usize,
        limit: Limit,
    ) -> Outcome<Received> {
        let mut place = vec![0; asked.min(UNSEEN_MAX)];
        let bufs = &mut [IoSliceMut::new(&mut place)];
        let limit = Limit {
            flags: limit.flags & !libc::MSG_TRUNC,
            ..limit
        };
        self.read_stream(socket, stream, bufs, limit)
    }
}

/// The wait of a call that receives, until `end_ns` if it has begun before.
fn plan_to_read<'a>(
    clock: &dyn Kernel,
    socket: &'a Arc<Description>,
    end_ns: Option<u64>,
) -> Plan<'a> {
    let plan = Plan::of_call(clock, socket, &socket.recv_timeout_ns, &[]);
    Plan {
        deadline_ns: end_ns.or(plan.deadline_ns),
        ..plan
    }
}

pub(super) fn bytes(count: usize) -> Received {
    Received {
        len: count,
        flags: 0,
        from: None,
        control_len: 0,
    }
}
