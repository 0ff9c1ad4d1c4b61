//! Functions on descriptors, declared as in F-Stack's headers.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_ulong};

use slipstack_abi::raw::system;
use slipstack_posix::{Errno, Process};

use crate::call::{answer, fail};
use crate::io::control;
use crate::{interfaces, life};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_close(fd: c_int) -> c_int {
    if life::process().is_some_and(|process| process.is_private(fd)) {
        return fail(Errno::EBADF) as c_int;
    }
    control::forget(fd);
    answer(
        |process| process.close(fd).map(|()| 0),
        // SAFETY: takes no pointer.
        || unsafe { system(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) },
    ) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_dup(fd: c_int) -> c_int {
    answer(
        |process| process.dup(fd).map(|fd| fd as isize),
        // SAFETY: takes no pointer.
        || unsafe { system(libc::SYS_dup, [fd as usize, 0, 0, 0, 0, 0]) },
    ) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_dup2(old: c_int, new: c_int) -> c_int {
    if old == new {
        // SAFETY: takes no pointer.
        let is_open = unsafe {
            system(
                libc::SYS_fcntl,
                [old as usize, libc::F_GETFD as usize, 0, 0, 0, 0],
            )
        };
        return if is_open < 0 { -1 } else { new };
    }
    answer(
        |process| process.dup3(old, new, 0).map(|fd| fd as isize),
        // SAFETY: takes no pointer.
        || unsafe { system(libc::SYS_dup3, [old as usize, new as usize, 0, 0, 0, 0]) },
    ) as c_int
}

/// In C with an open argument list, of which it takes one: the calling conventions pass it alike.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    let args = [fd as usize, command as usize, argument, 0, 0, 0];
    answer(
        |process| process.fcntl(fd, command, argument).map(|r| r as isize),
        // SAFETY: the program's own call.
        || unsafe { system(libc::SYS_fcntl, args) },
    ) as c_int
}

/// In C with an open argument list, of which it takes one: the calling conventions pass it alike.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    let args = [fd as usize, request as usize, argument, 0, 0, 0];
    // SAFETY: the program's own call.
    let kernel = || unsafe { system(libc::SYS_ioctl, args) };
    if interfaces::is_request(request)
        && let Some(process) = life::process().filter(|process| process.is_alone(fd))
    {
        // SAFETY: the program's own call.
        return unsafe { interfaces::abi::ask(process, request, argument) };
    }
    if !Process::ioctl_takes_int(request) {
        return answer(|process| process.prepare_kernel(fd).map(|()| 0), kernel) as c_int;
    }
    // SAFETY: null or an int of the program's.
    let Some(value) = (unsafe { (argument as *mut c_int).as_mut() }) else {
        return fail(Errno::EFAULT) as c_int;
    };
    answer(
        |process| process.ioctl(fd, request, value).map(|r| r as isize),
        kernel,
    ) as c_int
}

#[unsafe(no_mangle)]
pub extern "C" fn ff_fdisused(fd: c_int) -> c_int {
    life::process().map_or(0, |process| c_int::from(process.is_ours(fd)))
}

pub fn page_size() -> c_int {
    // SAFETY: takes no pointer.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    c_int::try_from(size).unwrap_or(-1)
}

#[unsafe(no_mangle)]
pub extern "C" fn ff_getmaxfd() -> c_int {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a structure of ours.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if result < 0 {
        return -1;
    }
    c_int::try_from(limit.rlim_cur).unwrap_or(c_int::MAX)
}
