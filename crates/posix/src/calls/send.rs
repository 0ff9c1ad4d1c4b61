//! write, writev, send, sendto, sendmsg.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::addr::Given;
use crate::calls::carved::LENT;
use crate::calls::connect::ConnectParams;
use crate::calls::send_datagram::system_time;
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::reuse::disconnect_if_failed;
use crate::process::wait::Plan;
use crate::socket::ancillary::check_stream;
use crate::socket::description::{Decided, Description, Kind};

use crate::ready::bits;
use crate::socket::{Push, Stream, StreamError};

/// As many bytes fill a segment of some link (IPv6's least MTU): MSG_MORE may hold the last segment
/// alone.
const SEGMENT_MIN: usize = 1220;

impl Process {
    /// write, writev, send, sendto, sendmsg, and each message of sendmmsg. `control`: its control
    /// messages.
    pub fn sendmsg(
        &self,
        fd: i32,
        bufs: &[IoSlice<'_>],
        to: Option<&[u8]>,
        control: &[u8],
        flags: i32,
    ) -> Outcome<usize> {
        self.let_overdue_leave();
        let socket = match self.table.socket(fd) {
            Some(socket) => socket,
            None => return Err(self.note_question(fd, bufs)),
        };
        self.let_overdue_leave_at(&socket);
        if flags & libc::MSG_ZEROCOPY != 0 {
            let sent = self.route_message(&socket, bufs, (to, control), flags)?;
            if sent > 0 && socket.error_queue.on_zerocopy() {
                socket.notify(socket.error_queue.bits());
            }
            return Ok(sent);
        }
        self.route_message(&socket, bufs, (to, control), flags)
    }

    fn route_message(
        &self,
        socket: &Arc<Description>,
        bufs: &[IoSlice<'_>],
        (to, control): (Option<&[u8]>, &[u8]),
        flags: i32,
    ) -> Outcome<usize> {
        match socket.decided() {
            Some(Decided::Stream(stream)) => {
                let mut flags = flags;
                if flags & libc::MSG_FASTOPEN != 0 && stream.is_failed() {
                    let remote = self.network.opening_to(socket, to)?;
                    let params = ConnectParams::with_data(socket, flags);
                    let outcome = self.connect_again(socket, stream, Given::Addr(remote), params);
                    disconnect_if_failed(socket, &outcome);
                    outcome?;
                    flags &= !libc::MSG_FASTOPEN;
                }
                let stamps = match control {
                    [] => None,
                    control => check_stream(control)?,
                };
                let sent = self.write_stream(socket, stream, bufs, flags)?;
                if socket.error_queue.on_written(sent, stamps, system_time) {
                    socket.notify(socket.error_queue.bits());
                }
                Ok(sent)
            }
            Some(Decided::Dgram(dgram)) => {
                self.send_dgram(socket, dgram, bufs, (to, control), flags)
            }
            Some(Decided::Listener(_)) => Err(pipe(flags)),
            Some(Decided::Foreign(it)) if socket.kind == Kind::Dgram => {
                self.send_borrowed(socket, it, bufs, (to, control), flags)
            }
            Some(Decided::Foreign(it)) if control.is_empty() => {
                match self.write_borrowed(socket, it, bufs, flags) {
                    Some(outcome) => outcome,
                    None => self.route_message(socket, bufs, (to, control), flags),
                }
            }
            Some(Decided::Foreign(it)) => match self.borrow_to_write(socket, it) {
                Some(divert) => Err(divert),
                None => self.route_message(socket, bufs, (to, control), flags),
            },
            None => match (socket.kind, to) {
                (Kind::Stream, to) if flags & libc::MSG_FASTOPEN != 0 => {
                    self.send_opening(socket, bufs, to, flags)
                }
                (Kind::Stream, _) => Err(pipe(flags)),
                (Kind::Dgram, None) => {
                    // inet_send_prepare(): it has a port from now on.
                    self.bind_dgram_anywhere(socket)?;
                    Err(Errno::EDESTADDRREQ.into())
                }
                (Kind::Dgram, Some(to)) => self.send_unbound(socket, bufs, (to, control), flags),
            },
        }
    }

    pub(crate) fn write_stream(
        &self,
        socket: &Arc<Description>,
        stream: &Stream,
        bufs: &[IoSlice<'_>],
        flags: i32,
    ) -> Outcome<usize> {
        let is_nonblocking = socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        if flags & libc::MSG_FASTOPEN != 0 {
            self.connect_before_data(socket, stream, is_nonblocking)?;
        }
        self.follow_users(socket, is_nonblocking)?;
        let asked: usize = bufs.iter().map(|buf| buf.len()).sum();
        let push = push_of(flags);
        let is_more = push == Push::More;
        let sent = match stream.enqueue(bufs, push) {
            Ok(count) => {
                if !is_more || count < asked || stream.queued() >= SEGMENT_MIN {
                    stream.attachment().after_push(&*self.kernel, socket.id);
                }
                if stream.is_opening() && !is_nonblocking {
                    match self.await_opening(socket, stream) {
                        // DEVIATION(Linux): a call that is made again after its SYN has left may
                        // write the bytes twice there. Here they are in the ring, and count.
                        Err(Divert::Stopped | Divert::Errno(Errno::EINTR)) => return Ok(count),
                        outcome => {
                            disconnect_if_failed(socket, &outcome);
                            outcome?;
                        }
                    }
                }
                count
            }
            Err(StreamError::Errno(error)) => return Err(error.into()),
            Err(StreamError::Pipe) => return Err(pipe(flags)),
            Err(StreamError::Wait) if is_nonblocking => {
                // Acknowledgements may have arrived that no turn has processed.
                self.turn_if_idle(stream.attachment());
                return match stream.enqueue(bufs, push) {
                    Ok(count) => {
                        stream.attachment().after_push(&*self.kernel, socket.id);
                        if count < asked {
                            tell_of_room(socket, stream);
                        }
                        Ok(count)
                    }
                    Err(StreamError::Errno(error)) => Err(error.into()),
                    Err(StreamError::Pipe) => Err(pipe(flags)),
                    Err(StreamError::Wait) => Err(Errno::EAGAIN.into()),
                };
            }
            Err(StreamError::Wait) => 0,
        };
        if sent == asked {
            return Ok(sent);
        }
        if is_nonblocking {
            tell_of_room(socket, stream);
            return Ok(sent);
        }
        let outcome = self.send_rest(socket, stream, bufs, flags, asked, sent);
        self.end_if_closed(socket);
        outcome
    }

    /// MSG_FASTOPEN on a socket that connects: a second `connect`. The one that finds the
    /// connection made goes on to send; a call that a handler has interrupted goes on to wait.
    #[cold]
    fn connect_before_data(
        &self,
        socket: &Arc<Description>,
        stream: &Stream,
        is_nonblocking: bool,
    ) -> Outcome<()> {
        let outcome = match stream.connect_again() {
            Err(Errno::EALREADY) if !is_nonblocking => {
                self.await_connection(socket, stream, Errno::EALREADY)
            }
            outcome => outcome.map_err(Divert::from),
        };
        disconnect_if_failed(socket, &outcome);
        outcome
    }

    /// MSG_FASTOPEN: connect and send in one call.
    fn send_opening(
        &self,
        socket: &Arc<Description>,
        bufs: &[IoSlice<'_>],
        to: Option<&[u8]>,
        flags: i32,
    ) -> Outcome<usize> {
        let remote = self.network.opening_to(socket, to)?;
        let params = ConnectParams::with_data(socket, flags);
        let outcome = self.connect_fresh(socket, remote, params);
        disconnect_if_failed(socket, &outcome);
        outcome?;
        match socket.decided() {
            Some(Decided::Stream(stream)) => {
                self.write_stream(socket, stream, bufs, flags & !libc::MSG_FASTOPEN)
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
        let plan = Plan::of_call(&*self.kernel, socket, &socket.send_timeout_ns, &[]).of_parts();
        let mut all: Vec<IoSlice<'_>> = bufs.iter().map(|buf| IoSlice::new(buf)).collect();
        let mut rest = &mut all[..];
        IoSlice::advance_slices(&mut rest, had);
        let mut total = had;
        while total < asked {
            let outcome = self.wait(&plan, |_| {
                // tcp_sendmsg_locked(): a call that has sent something leaves an error to the next.
                if total > 0 && stream.has_error() || socket.has_ended.load(Ordering::Acquire) {
                    return Err(Errno::EPIPE.into());
                }
                match stream.enqueue(rest, push) {
                    Ok(count) => Ok(Some(count)),
                    Err(StreamError::Wait) => Ok(None),
                    Err(StreamError::Errno(error)) => Err(error.into()),
                    Err(StreamError::Pipe) => Err(pipe(flags)),
                }
            });
            match outcome {
                Ok(Some(count)) => {
                    stream.attachment().commands();
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
}

/// Reports room again: another thread may have taken the event while the bytes were copied, before
/// any thread waited for it.
#[cold]
fn tell_of_room(socket: &Description, stream: &Stream) {
    if stream.has_room_again() {
        socket.notify(bits::OUT);
    }
}

/// Returns the push mode of the flags: urgent data and ends of records wait for nothing that
/// MSG_MORE announces.
fn push_of(flags: i32) -> Push {
    if flags & libc::MSG_OOB != 0 {
        Push::Urgent
    } else if flags & libc::MSG_EOR != 0 {
        Push::Record
    } else if flags & libc::MSG_MORE != 0 {
        Push::More
    } else if flags & LENT != 0 {
        Push::Lent
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
