//! The ethtool ioctl.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const SIOCETHTOOL: libc::c_ulong = 0x8946;

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
