//! The hooked calls that begin and end processes. Each is as in C.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::c_int;

use libc::pid_t;

use super::{end_in_order, forked};
use crate::symbols::{exported, next};

/// A child that shared our memory would change the parent's sockets: it runs as `fork`,
/// which the standard allows. (The parent does not wait for the child's exec.)
pub unsafe fn vfork() -> pid_t {
    // SAFETY: libc's fork; what we do about it is registered with libc.
    unsafe { libc::fork() }
}

/// `_Fork` runs no registered functions.
pub unsafe fn plain_fork() -> pid_t {
    // SAFETY: the program's own call.
    forked(|| unsafe { (next::_Fork.get())() })
}

/// libc's own would end the parent where we cannot see it.
pub unsafe fn daemon(keeps_directory: c_int, keeps_files: c_int) -> c_int {
    // SAFETY: as in C.
    match unsafe { libc::fork() } {
        -1 => return -1,
        0 => {}
        // SAFETY: as in C.
        _ => unsafe { exported::_exit(0) },
    }
    // SAFETY: takes nothing.
    if unsafe { libc::setsid() } == -1 {
        return -1;
    }
    if keeps_directory == 0 {
        // SAFETY: a C string.
        unsafe { libc::chdir(c"/".as_ptr()) };
    }
    if keeps_files != 0 {
        return 0;
    }
    // SAFETY: a C string.
    let null = unsafe { (next::open.get())(c"/dev/null".as_ptr(), libc::O_RDWR, 0) };
    if null == -1 {
        return -1;
    }
    for fd in 0..3 {
        // SAFETY: as in C.
        unsafe { exported::dup2(null, fd) };
    }
    if null > 2 {
        // SAFETY: our own descriptor.
        unsafe { (next::close.get())(null) };
    }
    0
}

pub unsafe fn exit_now(status: c_int) -> ! {
    end_in_order();
    // SAFETY: the program's own call.
    unsafe { (next::_exit.get())(status) }
}
