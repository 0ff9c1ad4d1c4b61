//! libc's calls on kernel descriptors.

use std::ptr;
use std::time::Duration;

use slipstack_posix::Errno;

use super::timeouts;
use crate::raw::syscall6;

/// The system call `ppoll`, with the thread's own mask where none is given; not a cancellation
/// point of libc (see [`crate::cancel`]).
pub fn ppoll(
    fds: &mut [libc::pollfd],
    timeout: Option<Duration>,
    mask: Option<u64>,
) -> Result<usize, Errno> {
    let mut timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout
        .as_mut()
        .map_or(0, |timeout| &raw mut *timeout as usize);
    ppoll_for(fds, timeout, mask)
}

/// As [`ppoll`], but a stop of the process (SIGSTOP, SIGCONT) makes it return `EINTR` although no
/// handler runs. It may return `Ok(0)` before its time.
///
/// The kernel writes back how much of the time was left, and repeats an interrupted call with it;
/// where it cannot, it returns `EINTR` instead (poll_select_finish()). So the time lies in memory
/// that is only read.
pub fn ppoll_until_stopped(
    fds: &mut [libc::pollfd],
    timeout: Option<Duration>,
    mask: Option<u64>,
) -> Result<usize, Errno> {
    match timeouts::most_of(timeout) {
        Some(fixed) => ppoll_for(fds, ptr::from_ref(fixed) as usize, mask),
        None => ppoll(fds, timeout, mask),
    }
}

/// `timeout`: the address of a timespec, or 0.
fn ppoll_for(fds: &mut [libc::pollfd], timeout: usize, mask: Option<u64>) -> Result<usize, Errno> {
    let mask = mask.as_ref().map_or(0, |mask| ptr::from_ref(mask) as usize);
    let (at, len) = (fds.as_mut_ptr() as usize, fds.len());
    let args = [at, len, timeout, mask, 8, 0];
    // SAFETY: pointers and length are those of live values; a kernel signal set has 8 bytes.
    outcome(unsafe { syscall6(libc::SYS_ppoll, args) })
}

/// Returns the result of a raw system call.
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

/// Number of a command of bpf(2): BPF_OBJ_GET_INFO_BY_FD.
const BPF_INFO: usize = 15;

/// Returns the first words of the kernel's description of a map or program of BPF: its kind, its
/// id, and for a map the lengths of keys and values.
pub fn bpf_info(fd: i32) -> Result<[u32; 4], Errno> {
    let mut info = [0u32; 4];
    let mut attr = [0u64; 2];
    attr[0] = u64::from(fd.cast_unsigned()) | (size_of_val(&info) as u64) << 32;
    attr[1] = info.as_mut_ptr() as u64;
    let (at, len) = (attr.as_mut_ptr() as usize, size_of_val(&attr));
    // SAFETY: an attribute of that length, which names a live array with its length.
    outcome(unsafe { syscall6(libc::SYS_bpf, [BPF_INFO, at, len, 0, 0, 0]) })?;
    Ok(info)
}
