//! The one system call that no crate wraps.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// setsockopt with an int.
pub fn set_int(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    let at = (&raw const value).cast();
    // SAFETY: the value is a live int of the length given.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, at, 4) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A descriptor that this process was started with.
pub fn inherited(number: u32) -> OwnedFd {
    // SAFETY: the test that started this process passed the descriptor on for us to own.
    unsafe { OwnedFd::from_raw_fd(number as i32) }
}

/// Binds a packet socket to an interface.
pub fn bind_packet(fd: BorrowedFd<'_>, index: i32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 3u16.to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is a live sockaddr_ll of the length given.
    match unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
