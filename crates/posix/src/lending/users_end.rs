//! A peer's reset as a program without the library sees it.
//!
//! The kernel reports ECONNRESET at one end of a pair, after the bytes that wait there, when the
//! other end is closed with bytes unread. So a byte is written into the program's end, which is
//! taken from it for a moment (pidfd_getfd), and the steward's end is closed. A copy of that end
//! which the steward kept would hide the program's own close.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, fstat};
use rustix::net::{
    SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrAny, SocketAddrUnix, getpeername,
    getsockname,
};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Numbers of the program that are looked at most, and for how long.
const NUMBERS_MAX: usize = 16 << 10;
const TIME_MAX: Duration = Duration::from_millis(100);

/// The end of a pair that a program without the library uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsersEnd {
    /// The process that made the pair, and has become the program.
    pub(crate) user: u32,
    pub(crate) inode: u64,
}

impl UsersEnd {
    /// Sees to it that closing the steward's end of the pair resets this one. It ends if it is not
    /// found.
    pub(crate) fn prepare_reset(self, ours: &OwnedFd) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut none = SendAncillaryBuffer::default();
        let byte = [IoSlice::new(b"\0")];
        let is_sent = |end: OwnedFd| rustix::net::sendmsg(end, &byte, &mut none, flags).is_ok();
        if is_filtered() || !self.find(ours).is_some_and(is_sent) {
            let _ = rustix::net::shutdown(ours, Shutdown::Both);
        }
    }

    /// Returns a copy of it. No other file of the program's is touched: a number is taken only if
    /// it is seen to be this end, which is looked at again when it is here.
    fn find(self, ours: &OwnedFd) -> Option<OwnedFd> {
        // The program names its end, and could name one of a process that it may not touch.
        let own_name = name_of(getsockname(ours).ok()?)?;
        let is_peer = |end: &OwnedFd| {
            getpeername(end)
                .ok()
                .flatten()
                .and_then(name_of)
                .is_some_and(|name| name == own_name)
        };
        let until = Instant::now() + TIME_MAX;
        let process = pidfd_open(Pid::from_raw(self.user.cast_signed())?, PidfdFlags::empty());
        let process = process.ok()?;
        let name = format!("socket:[{}]", self.inode);
        let is_it = |stat: rustix::fs::Stat| {
            stat.st_ino == self.inode && FileType::from_raw_mode(stat.st_mode) == FileType::Socket
        };
        let numbers = std::fs::read_dir(format!("/proc/{}/fd", self.user)).ok()?;
        let mut numbers = numbers.flatten().take(NUMBERS_MAX);
        let mut numbers = std::iter::from_fn(|| numbers.next().filter(|_| Instant::now() < until));
        numbers.find_map(|entry| {
            let target = std::fs::read_link(entry.path()).ok()?;
            let number = entry.file_name().to_str()?.parse().ok()?;
            if target.as_os_str() != name.as_str() {
                return None;
            }
            let end = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok()?;
            let is_found = fstat(&end).is_ok_and(is_it) && is_peer(&end);
            is_found.then_some(end)
        })
    }
}

/// The abstract name of a UNIX socket; `None`: it has none.
fn name_of(addr: SocketAddrAny) -> Option<Vec<u8>> {
    let addr = SocketAddrUnix::try_from(addr).ok()?;
    addr.abstract_name().map(<[u8]>::to_vec)
}

/// Whether this process has a filter of system calls (seccomp), which may end it for a rare one.
fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let mut modes = status
        .lines()
        .filter_map(|line| line.strip_prefix("Seccomp:"));
    modes.next().map(str::trim) != Some("0")
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;

    #[test]
    fn closing_the_stewards_end_resets_the_users_after_its_bytes() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let (users, ours) =
            rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let name = format!("ss-test-{}", std::process::id());
        let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        rustix::net::bind(&ours, &name).unwrap();
        rustix::net::send(&ours, b"last", SendFlags::empty()).unwrap();
        let end = UsersEnd {
            user: std::process::id(),
            inode: fstat(&users).unwrap().st_ino,
        };
        end.prepare_reset(&ours);
        drop(ours);
        let mut room = [0; 8];
        assert_eq!(rustix::io::read(&users, &mut room), Ok(4));
        assert_eq!(rustix::io::read(&users, &mut room), Err(Errno::CONNRESET));
        assert_eq!(rustix::io::read(&users, &mut room), Ok(0));
    }

    #[test]
    fn another_pairs_end_is_not_touched() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let pair = || rustix::net::socketpair(family, kind, SocketFlags::NONBLOCK, None).unwrap();
        let ((victim, victims_peer), (_users, ours)) = (pair(), pair());
        let name = format!("ss-test-other-{}", std::process::id());
        let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        rustix::net::bind(&ours, &name).unwrap();
        let end = UsersEnd {
            user: std::process::id(),
            inode: fstat(&victim).unwrap().st_ino,
        };
        end.prepare_reset(&ours);
        let read = rustix::io::read(&victims_peer, &mut [0; 8]);
        assert_eq!(read, Err(Errno::AGAIN));
    }

    #[test]
    fn an_end_that_is_not_found_ends() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let (users, ours) =
            rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let end = UsersEnd {
            user: std::process::id(),
            inode: 1,
        };
        end.prepare_reset(&ours);
        assert_eq!(rustix::io::read(&users, &mut [0; 8]), Ok(0));
    }
}
