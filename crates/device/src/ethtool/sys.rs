//! The ethtool ioctl.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const SO_NETNS_COOKIE: i32 = 71;

/// Asks about an interface, or changes it. `words` begins with the command and has room for all
/// that the kernel answers to it.
pub(super) fn request(socket: BorrowedFd<'_>, name: &str, words: &mut [u32]) -> io::Result<()> {
    // SAFETY: an ifreq is plain data for which zero means absent.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    // One byte stays zero: names are at most 15 bytes long.
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the request is a live ifreq that points to the words, which callers make as long as
    // the structure of their command.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    match rc {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Number of a socket's network namespace, which no other one has until the machine is restarted.
pub(super) fn namespace(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = 0u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    let at = (&raw mut cookie).cast();
    let (level, name) = (libc::SOL_SOCKET, SO_NETNS_COOKIE);
    // SAFETY: the option is a number of 64 bits, and `len` says how much room there is.
    let rc = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, at, &raw mut len) };
    match rc {
        0 => Ok(cookie),
        _ => Err(io::Error::last_os_error()),
    }
}
