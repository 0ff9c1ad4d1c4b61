//! fcntl and ioctl.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::PollFlags;
use rustix::fs::OFlags;
use slipstack_mem::Descriptor;

use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::kernel_socket::{ready_in_kernel, set_nonblocking};
use crate::socket::{Dgram, Side};

const FIONREAD: u64 = libc::FIONREAD;
const FIONBIO: u64 = libc::FIONBIO;
const TIOCOUTQ: u64 = libc::TIOCOUTQ;
const SIOCOUTQNSD: u64 = 0x894b;
const SIOCATMARK: u64 = 0x8905;
const FIOASYNC: u64 = libc::FIOASYNC;
/// linux/fcntl.h
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;
const SIGNAL_MAX: i32 = 64;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
const FIOGETOWN: u64 = 0x8903;
const SIOCGPGRP: u64 = 0x8904;

impl Process {
    /// `fcntl` on one of our descriptors. Commands about the descriptor itself go to the kernel.
    pub fn fcntl(&self, fd: i32, command: i32, arg: usize) -> Outcome<i32> {
        match command {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
                let least = i32::try_from(arg).map_err(|_| Errno::EINVAL)?;
                self.dup_from(fd, least, command == libc::F_DUPFD_CLOEXEC)
            }
            libc::F_GETFL => {
                let socket = self.table.socket_of(fd)?;
                let flags = if socket.is_nonblocking() {
                    libc::O_NONBLOCK
                } else {
                    0
                };
                let asks = if socket.sigio.is_on() {
                    libc::O_ASYNC
                } else {
                    0
                };
                Ok(libc::O_RDWR | flags | asks)
            }
            libc::F_SETFL => {
                let socket = self.table.socket_of(fd)?;
                let is_on = arg & libc::O_NONBLOCK as usize != 0;
                set_mode(&socket, is_on)?;
                self.set_async(fd, &socket, arg & libc::O_ASYNC as usize != 0)?;
                Ok(0)
            }
            libc::F_SETOWN => {
                let socket = self.table.socket_of(fd)?;
                self.set_owner_number(&socket, arg as i32)?;
                match socket.kernel_speaks() {
                    true => Err(Divert::Kernel),
                    false => Ok(0),
                }
            }
            F_SETSIG => {
                let signal = i32::try_from(arg).unwrap_or(i32::MAX);
                if signal > SIGNAL_MAX {
                    return Err(Errno::EINVAL.into());
                }
                let socket = self.table.socket_of(fd)?;
                socket.sigio.set_signal(signal);
                match socket.kernel_speaks() {
                    true => Err(Divert::Kernel),
                    false => Ok(0),
                }
            }
            F_GETSIG => Ok(self.table.socket_of(fd)?.sigio.signal()),
            libc::F_GETOWN => Ok(self.owner_of(fd)?.number()),
            _ => Err(Divert::Kernel),
        }
    }

    /// Returns whether [`Process::ioctl`] knows the request. For all others the caller uses
    /// [`Process::prepare_kernel`].
    #[must_use]
    pub fn ioctl_takes_int(request: u64) -> bool {
        matches!(
            request,
            FIONREAD
                | FIONBIO
                | FIOASYNC
                | TIOCOUTQ
                | SIOCOUTQNSD
                | SIOCATMARK
                | FIOSETOWN
                | SIOCSPGRP
                | FIOGETOWN
                | SIOCGPGRP
        )
    }

    /// Whether the request may give a socket an owner; then [`Process::serve_owners`] is due.
    #[must_use]
    pub fn ioctl_sets_owner(request: u64) -> bool {
        matches!(request, FIOSETOWN | SIOCSPGRP)
    }

    /// The requests that take a pointer to int: FIONBIO, FIONREAD (SIOCINQ), TIOCOUTQ (SIOCOUTQ),
    /// SIOCOUTQNSD, SIOCATMARK, owners.
    pub fn ioctl(&self, fd: i32, request: u64, arg: &mut i32) -> Outcome<i32> {
        let socket = self.table.socket_of(fd)?;
        match request {
            FIONBIO => set_mode(&socket, *arg != 0)?,
            FIOASYNC => self.set_async(fd, &socket, *arg != 0)?,
            FIONREAD => *arg = self.unread(&socket)?,
            TIOCOUTQ => {
                *arg = match socket.decided() {
                    Some(Decided::Stream(stream)) => int(stream.queued()),
                    Some(Decided::Listener(_)) => return Err(Errno::EINVAL.into()),
                    _ => 0,
                };
            }
            SIOCOUTQNSD => {
                *arg = match socket.decided() {
                    Some(Decided::Stream(stream)) => int(stream.unsent()?),
                    Some(Decided::Listener(_)) => return Err(Errno::EINVAL.into()),
                    None if socket.kind == Kind::Stream => 0,
                    _ => return Err(Divert::Kernel),
                };
            }
            FIOSETOWN | SIOCSPGRP => self.set_owner_number(&socket, *arg)?,
            FIOGETOWN | SIOCGPGRP => *arg = Process::owner(&socket).number(),
            SIOCATMARK => {
                *arg = match socket.decided() {
                    Some(Decided::Stream(stream)) => i32::from(stream.is_at_mark()),
                    Some(Decided::Dgram(_)) => return Err(Errno::ENOTTY.into()),
                    _ if socket.kind == Kind::Dgram => return Err(Errno::ENOTTY.into()),
                    _ => 0,
                };
            }
            _ => return Err(Divert::Kernel),
        }
        Ok(0)
    }

    /// Sets O_ASYNC. The kernel's part sends its signals by itself.
    fn set_async(&self, fd: i32, socket: &Description, is_on: bool) -> Result<(), Errno> {
        if socket.sigio.is_on() == is_on {
            return Ok(());
        }
        if let Some(attachment) = self.engines.first() {
            // Events that have already happened are not reported.
            attachment.turn(self.kernel.now_ns());
        }
        if let Some(Decided::Stream(stream)) = socket.decided() {
            stream.note_connected();
        }
        socket.sigio.set(fd, is_on);
        if socket.kernel_speaks()
            && let Some(number) = Descriptor::new(fd)
        {
            let mut flags = rustix::fs::fcntl_getfl(number.as_fd())?;
            flags.set(OFlags::from_bits_retain(libc::O_ASYNC as u32), is_on);
            rustix::fs::fcntl_setfl(number.as_fd(), flags)?;
        }
        Ok(())
    }

    fn unread(&self, socket: &Arc<Description>) -> Outcome<i32> {
        match socket.decided() {
            Some(Decided::Stream(stream)) => Ok(int(stream.unread())),
            Some(Decided::Listener(_)) => Err(Errno::EINVAL.into()),
            Some(Decided::Dgram(dgram)) => {
                if dgram.is_intent() && dgram.side() != Side::Kernel {
                    // A program may ask for nothing else until there is something.
                    self.realize(socket);
                }
                unread_datagram(socket, dgram)
            }
            Some(Decided::Foreign(it)) if socket.kind == Kind::Dgram => {
                Ok(int(self.unread_borrowed(socket, it)))
            }
            Some(Decided::Foreign(it)) => match self.count_borrowed(socket, it) {
                Some(count) => Ok(int(count?)),
                None => self.unread(socket),
            },
            None if socket.kind == Kind::Dgram && socket.has_kernel() => Err(Divert::Kernel),
            None => Ok(0),
        }
    }
}

/// The length of the next datagram. A program that asks for it makes room for that one, so that
/// it counts as peeked at.
fn unread_datagram(socket: &Description, dgram: &Dgram) -> Outcome<i32> {
    let kernel = match dgram.side() {
        Side::Kernel => return Err(Divert::Kernel),
        Side::Both => socket.kernel_number(),
        Side::Stack => None,
    };
    // An error there (POLLERR) has no length.
    let is_there = || ready_in_kernel(kernel, PollFlags::IN).contains(PollFlags::IN);
    if dgram.turns.has_looked_in_kernel() && is_there() {
        return Err(Divert::Kernel);
    }
    if let Some(len) = dgram.next_len() {
        dgram.turns.note_read(true, false);
        return Ok(int(len));
    }
    if !is_there() {
        return Ok(0);
    }
    dgram.turns.note_read(true, true);
    Err(Divert::Kernel)
}

fn set_mode(socket: &Description, is_nonblocking: bool) -> Result<(), Errno> {
    socket
        .is_nonblocking
        .store(is_nonblocking, Ordering::Relaxed);
    match (socket.decided(), socket.kernel_number()) {
        // The kernel serves it.
        (Some(Decided::Foreign(_)), Some(number)) => set_nonblocking(number, is_nonblocking),
        _ => Ok(()),
    }
}

fn int(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
