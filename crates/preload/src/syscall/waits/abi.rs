//! The raw waits, with the signatures of the system calls.

use core::ffi::{c_int, c_long};
use core::ptr;
use std::time::Instant;

use libc::{fd_set, nfds_t, pollfd, sigset_t, timespec};
use slipstack_posix::Errno;

use super::super::KERNEL_SET;
use crate::abi;
use crate::call::is_ours;
use crate::raw::fail;
use crate::readiness::{
    self,
    abi::{concerns_us, names_ours},
};

/// Waits for descriptors of which one is ours.
///
/// # Safety
/// As the system call.
pub unsafe fn route(number: c_long, args: [usize; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = args;
    let (epfd, events, count) = (a as c_int, b as *mut _, c as c_int);
    let result = match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => {
            let (fds, count) = (a as *mut pollfd, b as nfds_t);
            // SAFETY: the program's array.
            if !unsafe { concerns_us(fds, count) } {
                return None;
            }
            // SAFETY: the program's own call.
            unsafe { readiness::abi::poll(fds, count, c as c_int) }
        }
        // SAFETY: the program's own call.
        libc::SYS_ppoll => unsafe { ppoll(a as *mut _, b as _, c as *mut _, d as *const _, e)? },
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => {
            let [read, write, except] = [b, c, d].map(|set| set as *mut fd_set);
            // SAFETY: the program's sets.
            if !unsafe { names_ours(a as c_int, [read, write, except]) } {
                return None;
            }
            // SAFETY: the program's own call.
            unsafe { readiness::abi::select(a as c_int, read, write, except, e as *mut _) }
        }
        libc::SYS_pselect6 => {
            let sets = [b, c, d].map(|set| set as *mut fd_set);
            // SAFETY: the program's own call.
            unsafe { pselect(a as c_int, sets, e as *mut _, f as *const _)? }
        }
        _ if !is_ours(epfd) => return None,
        // SAFETY: the program's own call.
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => unsafe {
            readiness::abi::epoll_wait(epfd, events, count, d as c_int)
        },
        libc::SYS_epoll_pwait => match mask(e, f) {
            // SAFETY: the program's own call.
            Ok(mask) => unsafe {
                readiness::abi::epoll_pwait(epfd, events, count, d as c_int, mask)
            },
            Err(errno) => fail(errno),
        },
        libc::SYS_epoll_pwait2 => match mask(e, f) {
            // SAFETY: the program's own call.
            Ok(mask) => unsafe {
                readiness::abi::epoll_pwait2(epfd, events, count, d as *const _, mask)
            },
            Err(errno) => fail(errno),
        },
        _ => return None,
    };
    Some(result.into())
}

/// set_user_sigmask(): without a set its length does not matter.
fn mask(set: usize, len: usize) -> Result<*const sigset_t, Errno> {
    match (set, len) {
        (0, _) => Ok(ptr::null()),
        (set, KERNEL_SET) => Ok(set as *const _),
        _ => Err(Errno::EINVAL),
    }
}

unsafe fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *mut timespec,
    set: *const sigset_t,
    len: usize,
) -> Option<c_int> {
    // SAFETY: the program's array.
    if !unsafe { concerns_us(fds, count) } {
        return None;
    }
    // SAFETY: null or the program's structure.
    let wait = unsafe { Remaining::of(timeout) };
    let result = match mask(set as usize, len) {
        // SAFETY: the program's own call.
        Ok(mask) => unsafe { readiness::abi::ppoll(fds, count, timeout, mask) },
        Err(errno) => return Some(fail(errno)),
    };
    wait.tell();
    Some(result)
}

/// The argument of `pselect6` in the place of a signal set.
#[repr(C)]
struct Set {
    set: usize,
    len: usize,
}

unsafe fn pselect(
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: *mut timespec,
    set: *const Set,
) -> Option<c_int> {
    // SAFETY: the program's sets.
    if !unsafe { names_ours(count, sets) } {
        return None;
    }
    // SAFETY: null or the program's structure.
    let set = unsafe { set.as_ref() };
    // SAFETY: null or the program's structure.
    let wait = unsafe { Remaining::of(timeout) };
    let [read, write, except] = sets;
    let result = match set.map_or(Ok(ptr::null()), |set| mask(set.set, set.len)) {
        // SAFETY: the program's own call.
        Ok(mask) => unsafe { readiness::abi::pselect(count, read, write, except, timeout, mask) },
        Err(errno) => return Some(fail(errno)),
    };
    wait.tell();
    Some(result)
}

/// The timeout of a call that gets the remaining time.
struct Remaining<'a> {
    of: Option<&'a mut timespec>,
    begun: Instant,
}

impl Remaining<'_> {
    /// # Safety
    /// Null or a structure that nothing else changes during the call.
    unsafe fn of(timeout: *mut timespec) -> Self {
        Remaining {
            // SAFETY: the caller vouches for it.
            of: unsafe { timeout.as_mut() },
            begun: Instant::now(),
        }
    }

    /// poll_select_finish(): however the call ended; an invalid time stays as it is.
    fn tell(self) {
        let Some(time) = self.of else { return };
        // SAFETY: a live structure.
        if let Ok(Some(wait)) = unsafe { abi::timespec(time) } {
            let left = wait.saturating_sub(self.begun.elapsed());
            time.tv_sec = left.as_secs().cast_signed();
            time.tv_nsec = left.subsec_nanos().into();
        }
    }
}
