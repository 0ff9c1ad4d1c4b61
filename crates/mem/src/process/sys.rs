//! The system calls of this folder.

use std::io;

use super::Forked;

pub(super) fn fork() -> io::Result<Forked> {
    // SAFETY: the caller has made sure that this is the only thread, so no lock is held by another.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid as u32)),
    }
}

pub(super) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: touches no memory; the caller promises that nothing in this process owns these descriptors.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
