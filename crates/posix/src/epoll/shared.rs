//! The kernel's part of a set that a forked child has inherited.
//!
//! Parent and child share it: what one adds there, the other's wait reports. What only the child
//! may get events of is in a kernel's set of its own, in which the shared one is a member.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::event::epoll;
use slipstack_mem::{Descriptor, raised_copy};

use crate::epoll::set::{COMMON_DATA, Set};
use crate::errno::Errno;
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

/// Gives the child a kernel's set of its own, if it has none, beside the one that it shares.
pub(crate) fn part_from_parent(set: &Set) -> Result<(), Errno> {
    if !set.is_inherited.load(Ordering::Acquire) {
        return Ok(());
    }
    let Some(first) = set.number().and_then(Descriptor::new) else {
        return Ok(());
    };
    let own = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    if set.common().is_some() {
        // The parent keeps its own set, with the ends of pairs that this process has too.
        copy_members(&own, first)?;
    } else {
        let common = raised_copy(first.as_fd())?;
        let data = epoll::EventData::new_u64(COMMON_DATA);
        match epoll::add(&own, &common, data, epoll::EventFlags::IN) {
            Ok(()) => _ = set.set_common(Some(Descriptor::keep(common))),
            // There would be too many sets within each other.
            Err(_) => copy_members(&own, first)?,
        }
    }
    put_under_numbers(set, &own)
}

/// Gives the child a kernel's set with copies of the members of the shared one. What other
/// processes add to that later is not seen; [`Set::common`] of before is for the caller to close.
pub(crate) fn end_sharing(set: &Set) -> Result<(), Errno> {
    let (is_inherited, common) = (set.is_inherited.load(Ordering::Acquire), set.common());
    let Some(first) = set.number().and_then(Descriptor::new) else {
        return Ok(());
    };
    if !is_inherited && common.is_none() {
        return Ok(());
    }
    let own = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    copy_members(&own, first)?;
    if let Some(common) = common {
        let _ = epoll::delete(&own, common.as_fd());
        copy_members(&own, common)?;
    }
    put_under_numbers(set, &own)?;
    set.set_common(None);
    Ok(())
}

/// Copies the members of the kernel's set `from` whose descriptors this process still has.
fn copy_members(own: &OwnedFd, from: Descriptor) -> Result<(), Errno> {
    let fdinfo = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", from.number()));
    let fdinfo = fdinfo.map_err(|_| Errno::EINVAL)?;
    for line in fdinfo.lines().filter_map(line_of) {
        let Some(fd) = Descriptor::new(line.fd) else {
            continue;
        };
        if rustix::fs::fstat(fd.as_fd()).is_ok_and(|it| it.st_ino == line.inode) {
            let flags = epoll::EventFlags::from_bits_retain(line.events);
            let data = epoll::EventData::new_u64(line.data);
            epoll::add(own.as_fd(), fd.as_fd(), data, flags)?;
        }
    }
    Ok(())
}

fn put_under_numbers(set: &Set, own: &OwnedFd) -> Result<(), Errno> {
    let numbers = set.inner.lock().numbers.clone();
    for number in numbers.into_iter().filter_map(Descriptor::new) {
        replace(number, own)?;
    }
    set.is_inherited.store(false, Ordering::Release);
    Ok(())
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
