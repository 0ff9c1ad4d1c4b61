//! An epoll set that a forked child has from its parent.
//!
//! Both share the kernel's set. In the child, the parent's connections are ends of socket pairs
//! (see [`crate::lending`]), about which the parent must not get events: before one becomes a
//! member the child gets a kernel set of its own, with the same members.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::epoll;
use slipstack_mem::Descriptor;

use crate::epoll::Set;
use crate::epoll::add_kernel_part;
use crate::errno::Errno;
use crate::process::Process;
use crate::socket::borrowed::ReadRequest;
use crate::socket::description::Decided;
use crate::socket::kernel_socket::replace;

/// A line of /proc/self/fdinfo about a set: one member of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    fd: i32,
    events: u32,
    data: u64,
    inode: u64,
}

/// `tfd: 5 events: 19 data: 5 pos:0 ino:61af sdev:7`, of which all but the number is hexadecimal.
fn line_of(text: &str) -> Option<Line> {
    let word = |name: &str| {
        let rest = text.split_once(name)?.1.trim_start();
        rest.split_whitespace().next()
    };
    let hexadecimal = |name: &str| u64::from_str_radix(word(name)?, 16).ok();
    Some(Line {
        fd: word("tfd:")?.parse().ok()?,
        events: u32::try_from(hexadecimal("events:")?).ok()?,
        data: hexadecimal("data:")?,
        inode: hexadecimal("ino:")?,
    })
}

impl Process {
    /// Connections of the parent's among the members: from now on their ends of pairs are.
    pub(crate) fn borrow_members(&self, set: &Arc<Set>) {
        for (item, socket, events) in set.not_borrowed() {
            let Some(Decided::Foreign(it)) = socket.decided() else {
                continue;
            };
            // The kernel's part of a datagram socket that is a member now goes with its number.
            if socket.has_kernel() {
                self.take_borrowed(&socket, it, ReadRequest::None);
            }
            if self.part_from_parent(set).is_err() {
                return;
            }
            self.take_borrowed(
                &socket,
                it,
                ReadRequest::if_reads(events & libc::EPOLLIN as u32 != 0),
            );
            if it.is_taken() {
                add_kernel_part(set, item);
            }
        }
    }

    /// Gives the child a kernel's part of its own, if it has not one.
    pub(crate) fn part_from_parent(&self, set: &Set) -> Result<(), Errno> {
        if !set.is_inherited.load(Ordering::Acquire) {
            return Ok(());
        }
        let numbers = set.inner.lock().numbers.clone();
        let Some(first) = numbers.first() else {
            return Ok(());
        };
        let fdinfo = std::fs::read_to_string(format!("/proc/self/fdinfo/{first}"));
        let fdinfo = fdinfo.map_err(|_| Errno::EINVAL)?;
        let own = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for line in fdinfo.lines().filter_map(line_of) {
            // Entries whose descriptor the child has closed are skipped.
            let Some(fd) = Descriptor::new(line.fd) else {
                continue;
            };
            if rustix::fs::fstat(fd.as_fd()).is_ok_and(|it| it.st_ino == line.inode) {
                let flags = epoll::EventFlags::from_bits_retain(line.events);
                let data = epoll::EventData::new_u64(line.data);
                epoll::add(own.as_fd(), fd.as_fd(), data, flags)?;
            }
        }
        for number in numbers.into_iter().filter_map(Descriptor::new) {
            replace(number, &own)?;
        }
        set.is_inherited.store(false, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_parsed_from_the_kernels_fdinfo() {
        let text = "tfd:        7 events: 80000019 data:     ffff00000005  pos:0 ino:61af sdev:7";
        let line = Line {
            fd: 7,
            events: 0x8000_0019,
            data: 0xffff_0000_0005,
            inode: 0x61af,
        };
        assert_eq!(line_of(text), Some(line));
        assert_eq!(line_of("flags:\t02000002"), None);
    }
}
