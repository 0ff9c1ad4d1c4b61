//! Our own descriptors, kept out of the program's way.

use std::os::fd::{AsRawFd, OwnedFd};

/// Our descriptors live from here on where the limit allows, so that programs see the numbers
/// they are used to (the lowest free one is often assumed, and FD_SETSIZE is 1024).
const PRIVATE_FROM: i32 = 1 << 14;

/// Moves a descriptor of ours to a high number. Where the limit is too low it stays.
pub(crate) fn raised(fd: OwnedFd) -> OwnedFd {
    for from in [PRIVATE_FROM, 900, 200] {
        if fd.as_raw_fd() >= from {
            break;
        }
        if let Ok(high) = rustix::io::fcntl_dupfd_cloexec(&fd, from) {
            return high;
        }
    }
    fd
}
