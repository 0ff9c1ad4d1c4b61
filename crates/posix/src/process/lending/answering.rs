//! Calls that the owner of a datagram socket makes for another process.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::PollFlags;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use slipstack_mem::Descriptor;

use crate::addr::for_kernel;
use crate::addr::{AddrBytes, Family, Given, parse_peer};
use crate::errno::Errno;
use crate::lending::giving::stream_of;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::lending::owner::set_for_borrower;
use crate::process::table::Table;
use crate::socket::borrowed::requests::{CONTROL_MAX, Call, Reply, Request};
use crate::socket::description::{Description, Kind};
use crate::socket::kernel_socket::ready_in_kernel;
use crate::socket::{Stream, StreamError};

impl Process {
    /// Makes a call on a socket of this process, which never waits. `data`: bytes to send; received
    /// bytes go to `room`, and their length is returned.
    pub(crate) fn call_for_borrower(
        &self,
        socket: &Arc<Description>,
        request: &Request<'_>,
        data: &[u8],
        room: &mut [u8],
    ) -> (Reply, usize) {
        let [first, second] = request.numbers;
        if request.call == Call::SetOption && socket.kind == Kind::Stream {
            let value = request.name.unwrap_or_default();
            set_for_borrower(&*self.kernel, socket, (first, second), value);
            return (Reply::default(), 0);
        }
        if request.call == Call::Options {
            let options = socket.cold.lock().options.clone();
            let len = options.write(room);
            // Its first write is not to be lost.
            let is_shut = stream_of(socket).is_some_and(Stream::sends_no_more);
            let reply = Reply {
                flags: i32::from(is_shut),
                ..Reply::of_len(len)
            };
            return (reply, len);
        }
        if let Some(stream) = stream_of(socket) {
            return (tell_of_stream(stream, request.call), 0);
        }
        let number = socket.cold.lock().numbers.first().copied();
        let Some(fd) = number.filter(|_| socket.kind == Kind::Dgram) else {
            return (Reply::refused(Errno::ENOTCONN), 0);
        };
        let name = request.name.unwrap_or_default();
        let done = |outcome: Outcome<()>| match outcome {
            Ok(()) => Reply::default(),
            Err(divert) => Reply::refused(error_of(divert)),
        };
        let reply = match request.call {
            Call::Receive => return self.receive_for_borrower(fd, request, room),
            Call::SetOption => done(self.set_datagram_option(fd, (first, second), name)),
            Call::Send => self.send_for_borrower(fd, request, data),
            Call::Connect => done(self.connect_for_borrower(fd, name)),
            Call::Shutdown => done(self.shutdown_for_borrower(fd, first)),
            Call::Options | Call::Unread | Call::MayWrite | Call::EndOfReading => Reply::default(),
            Call::Readiness => Reply {
                flags: readiness_of(socket, fd).cast_signed(),
                ..Reply::default()
            },
            Call::PeekOffset => Reply {
                flags: socket.peek_offset.load(Ordering::Relaxed),
                ..Reply::default()
            },
            Call::TakeError => {
                let mut error = [0; 4];
                match self.getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, &mut error) {
                    Ok(_) => Reply::of_len(u32::from_ne_bytes(error) as usize),
                    Err(_) => Reply::default(),
                }
            }
        };
        (reply, 0)
    }

    fn receive_for_borrower(
        &self,
        fd: i32,
        request: &Request<'_>,
        room: &mut [u8],
    ) -> (Reply, usize) {
        let [flags, asked] = request.numbers;
        let asked = usize::try_from(asked).unwrap_or(0).min(room.len());
        let mut control = [0; CONTROL_MAX];
        let control = &mut control[..request.control.len().min(CONTROL_MAX)];
        let place = &mut room[..asked];
        let bufs = &mut [IoSliceMut::new(place)];
        let outcome = self.recvmsg(fd, bufs, control, flags | libc::MSG_DONTWAIT);
        match outcome {
            Ok(received) => {
                let reply = Reply {
                    error: 0,
                    len: received.len,
                    flags: received.flags,
                    name: received.from.map(|from| from.as_bytes().to_vec()),
                    control: control[..received.control_len].to_vec(),
                    ..Reply::default()
                };
                let copied = received.len.min(asked);
                (reply, copied)
            }
            Err(Divert::Kernel | Divert::KernelFirst | Divert::KernelRead | Divert::KernelLent) => {
                receive_in_kernel(&self.table, fd, flags, place)
            }
            Err(divert) => (Reply::refused(error_of(divert)), 0),
        }
    }

    fn send_for_borrower(&self, fd: i32, request: &Request<'_>, data: &[u8]) -> Reply {
        let flags = request.numbers[0] | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let bufs = [IoSlice::new(data)];
        let outcome = self.sendmsg(fd, &bufs, request.name, request.control, flags);
        let sent = match outcome {
            Err(Divert::Kernel | Divert::KernelFirst) => {
                send_in_kernel(&self.table, fd, data, request.name).map_err(Divert::from)
            }
            outcome => outcome,
        };
        match sent {
            Ok(len) => Reply::of_len(len),
            Err(divert) => Reply::refused(error_of(divert)),
        }
    }

    fn connect_for_borrower(&self, fd: i32, addr: &[u8]) -> Outcome<()> {
        match self.connect(fd, addr) {
            Err(Divert::Kernel) => {
                let number = number_of(fd)?;
                match self.table.kernel_addr(fd, addr) {
                    Some(addr) => Ok(rustix::net::connect(number.as_fd(), &addr)?),
                    None => Ok(rustix::net::connect_unspec(number.as_fd())?),
                }
            }
            outcome => outcome,
        }
    }

    fn shutdown_for_borrower(&self, fd: i32, how: i32) -> Outcome<()> {
        match self.shutdown(fd, how) {
            Err(Divert::Kernel) => {
                let how = match how {
                    libc::SHUT_RD => Shutdown::Read,
                    libc::SHUT_WR => Shutdown::Write,
                    _ => Shutdown::Both,
                };
                Ok(rustix::net::shutdown(number_of(fd)?.as_fd(), how)?)
            }
            outcome => outcome,
        }
    }
}

/// The answer to a question about a connection.
fn tell_of_stream(stream: &Stream, call: Call) -> Reply {
    let error = match call {
        Call::Unread => return Reply::of_len(stream.unread()),
        Call::Readiness => {
            return Reply {
                flags: stream.readiness().cast_signed(),
                ..Reply::default()
            };
        }
        Call::TakeError => stream.take_error(),
        Call::MayWrite => error_in(stream.may_send()),
        Call::EndOfReading => error_in(stream.recv_nothing()),
        _ => return Reply::refused(Errno::ENOTCONN),
    };
    let is_settled = stream.is_over() && !stream.has_error();
    Reply {
        flags: i32::from(is_settled),
        ..Reply::of_len(error.map_or(0, |error| error.0 as usize))
    }
}

fn error_in(outcome: Result<(), StreamError>) -> Option<Errno> {
    match outcome {
        Ok(()) | Err(StreamError::Wait) => None,
        Err(StreamError::Pipe) => Some(Errno::EPIPE),
        Err(StreamError::Errno(error)) => Some(error),
    }
}

/// Events of both parts of a datagram socket.
fn readiness_of(socket: &Description, fd: i32) -> u32 {
    let number = Descriptor::new(fd).filter(|_| socket.kernel_speaks());
    let asked = PollFlags::IN | PollFlags::ERR | PollFlags::HUP;
    socket.readiness() | u32::from(ready_in_kernel(number, asked).bits())
}

fn number_of(fd: i32) -> Result<Descriptor, Errno> {
    Descriptor::new(fd).ok_or(Errno::EBADF)
}

pub(super) fn error_of(divert: Divert) -> Errno {
    match divert {
        Divert::Errno(errno) => errno,
        Divert::Stopped => Errno::EINTR,
        Divert::Pipe => Errno::EPIPE,
        Divert::Kernel | Divert::KernelFirst | Divert::KernelRead | Divert::KernelLent => {
            Errno::EOPNOTSUPP
        }
    }
}

impl Table {
    /// An address of the program's as the socket's kernel part takes it.
    pub(crate) fn kernel_addr(&self, fd: i32, addr: &[u8]) -> Option<SocketAddr> {
        let family = self.socket(fd)?.family;
        match parse_peer(addr, family) {
            Ok(Given::Addr(addr)) => Some(for_kernel(addr, family)),
            _ => None,
        }
    }

    pub(crate) fn name_from_kernel(&self, fd: i32, from: SocketAddr) -> AddrBytes {
        let family = self.socket(fd).map(|socket| socket.family);
        AddrBytes::new(from, family.unwrap_or(Family::V4))
    }
}

/// The kernel's part has something.
fn receive_in_kernel(table: &Table, fd: i32, flags: i32, place: &mut [u8]) -> (Reply, usize) {
    let Ok(number) = number_of(fd) else {
        return (Reply::refused(Errno::EBADF), 0);
    };
    let kept = (libc::MSG_PEEK | libc::MSG_ERRQUEUE).cast_unsigned();
    // The kernel returns the length of the whole.
    let flags_there = RecvFlags::from_bits_retain(flags.cast_unsigned() & kept)
        | RecvFlags::DONTWAIT
        | RecvFlags::TRUNC;
    match rustix::net::recvfrom(number.as_fd(), &mut *place, flags_there) {
        Ok((copied, full, from)) => {
            let from = from.and_then(|from| SocketAddr::try_from(from).ok());
            let is_cut = full > copied;
            let reply = Reply {
                error: 0,
                len: match flags & libc::MSG_TRUNC {
                    0 => copied,
                    _ => full,
                },
                flags: if is_cut { libc::MSG_TRUNC } else { 0 },
                name: from.map(|from| table.name_from_kernel(fd, from).as_bytes().to_vec()),
                ..Reply::default()
            };
            (reply, copied)
        }
        Err(error) => (Reply::refused(error.into()), 0),
    }
}

fn send_in_kernel(table: &Table, fd: i32, data: &[u8], to: Option<&[u8]>) -> Result<usize, Errno> {
    let number = number_of(fd)?;
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = match to.and_then(|to| table.kernel_addr(fd, to)) {
        Some(to) => rustix::net::sendto(number.as_fd(), data, flags, &to),
        None => rustix::net::send(number.as_fd(), data, flags),
    };
    Ok(sent?)
}
