//! fcntl and ioctl.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::description::{Decided, Description, Kind};
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::place::set_nonblocking;
use crate::process::Process;
use crate::socket::Side;

const FIONREAD: u64 = libc::FIONREAD;
const FIONBIO: u64 = libc::FIONBIO;
const TIOCOUTQ: u64 = libc::TIOCOUTQ;

impl Process {
    /// `fcntl` on a number of ours. What is about the number itself is the kernel's.
    pub fn fcntl(&self, fd: i32, command: i32, arg: usize) -> Outcome<i32> {
        match command {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
                let least = i32::try_from(arg).map_err(|_| Errno::EINVAL)?;
                self.dup_from(fd, least, command == libc::F_DUPFD_CLOEXEC)
            }
            libc::F_GETFL => {
                let socket = self.socket_of(fd)?;
                let flags = if socket.is_nonblocking() {
                    libc::O_NONBLOCK
                } else {
                    0
                };
                Ok(libc::O_RDWR | flags)
            }
            libc::F_SETFL => {
                let socket = self.socket_of(fd)?;
                let is_on = arg & libc::O_NONBLOCK as usize != 0;
                set_mode(&socket, is_on)?;
                Ok(0)
            }
            _ => Err(Divert::Kernel),
        }
    }

    /// Whether [`Process::ioctl`] knows the request. For all others the caller asks
    /// [`Process::prepare_kernel`].
    #[must_use]
    pub fn ioctl_takes_int(request: u64) -> bool {
        matches!(request, FIONREAD | FIONBIO | TIOCOUTQ)
    }

    /// The requests that take a pointer to int: FIONBIO, FIONREAD (SIOCINQ), TIOCOUTQ (SIOCOUTQ).
    pub fn ioctl(&self, fd: i32, request: u64, arg: &mut i32) -> Outcome<i32> {
        let socket = self.socket_of(fd)?;
        match request {
            FIONBIO => set_mode(&socket, *arg != 0)?,
            FIONREAD => *arg = self.unread(&socket)?,
            TIOCOUTQ => {
                *arg = match socket.decided() {
                    Some(Decided::Stream(stream)) => int(stream.queued()),
                    Some(Decided::Listener(_)) => return Err(Errno::EINVAL.into()),
                    _ => 0,
                };
            }
            _ => return Err(Divert::Kernel),
        }
        Ok(0)
    }

    fn unread(&self, socket: &Arc<Description>) -> Outcome<i32> {
        match socket.decided() {
            Some(Decided::Stream(stream)) => Ok(int(stream.unread())),
            Some(Decided::Listener(_)) => Err(Errno::EINVAL.into()),
            Some(Decided::Dgram(dgram)) => match dgram.next_len() {
                Some(len) => Ok(int(len)),
                None if dgram.side() != Side::Stack => Err(Divert::Kernel),
                None => Ok(0),
            },
            Some(Decided::Foreign(it)) => Err(self.borrow(socket, it, true)),
            None if socket.kind == Kind::Dgram && socket.has_kernel() => Err(Divert::Kernel),
            None => Ok(0),
        }
    }
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
