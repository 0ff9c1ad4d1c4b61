//! libc's calls on the kernel's descriptors.

use std::time::Duration;

use slipstack_posix::Errno;

use crate::raw::{self, syscall6};
use crate::symbols::next;

/// libc's `ppoll`: a cancellation point.
pub fn ppoll(
    fds: &mut [libc::pollfd],
    timeout: Option<Duration>,
    mask: &libc::sigset_t,
) -> Result<usize, Errno> {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout
        .as_ref()
        .map_or(core::ptr::null(), core::ptr::from_ref);
    let ppoll = next::ppoll.get();
    // SAFETY: pointers and length are those of live values.
    let result = unsafe { ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout, mask) };
    usize::try_from(result).map_err(|_| Errno(raw::errno()))
}

/// What a raw system call came to.
fn outcome(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno(-(result as i32)))
}

pub fn setsockopt(fd: i32, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    let (at, len) = (value.as_ptr() as usize, value.len());
    let args = [fd as usize, level as usize, name as usize, at, len, 0];
    // SAFETY: pointer and length are those of a live slice.
    outcome(unsafe { syscall6(libc::SYS_setsockopt, args) }).map(drop)
}

pub fn getsockopt(fd: i32, level: i32, name: i32, value: &mut [u8]) -> Result<usize, Errno> {
    let mut len = value.len() as libc::socklen_t;
    let (at, room) = (value.as_mut_ptr() as usize, &raw mut len as usize);
    let args = [fd as usize, level as usize, name as usize, at, room, 0];
    // SAFETY: pointer and length are those of a live slice.
    outcome(unsafe { syscall6(libc::SYS_getsockopt, args) })?;
    Ok(len as usize)
}

pub fn close_range(first: u32, last: u32, flags: u32) -> Result<(), Errno> {
    let args = [first as usize, last as usize, flags as usize, 0, 0, 0];
    // SAFETY: the caller has looked which descriptors these are.
    outcome(unsafe { syscall6(libc::SYS_close_range, args) }).map(drop)
}
