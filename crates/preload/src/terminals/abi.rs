//! Interposed calls of <utmp.h> and <pty.h>, and `daemon`, with C's signatures.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_char, c_int, c_ulong};
use core::ptr;

use libc::{pid_t, termios, winsize};

use crate::descriptors::abi::dup2;
use crate::descriptors::closing::abi::close;
use crate::life::abi::exit_now;
use crate::next;
use crate::raw::errno;

/// The terminal becomes that of the session.
const TIOCSCTTY: c_ulong = 0x540e;

unsafe extern "C" {
    fn openpty(
        master: *mut c_int,
        terminal: *mut c_int,
        name: *mut c_char,
        settings: *const termios,
        size: *const winsize,
    ) -> c_int;
}

pub unsafe fn login_tty(fd: c_int) -> c_int {
    // SAFETY: takes nothing.
    unsafe { libc::setsid() };
    // SAFETY: takes no pointer.
    if unsafe { (next::ioctl.get())(fd, TIOCSCTTY, ptr::null_mut()) } == -1 {
        return -1;
    }
    for number in 0..3 {
        // SAFETY: as in C.
        while unsafe { dup2(fd, number) } == -1 && errno() == libc::EBUSY {}
    }
    if fd > 2 {
        // SAFETY: the program's own descriptor.
        unsafe { close(fd) };
    }
    0
}

pub unsafe fn forkpty(
    master: *mut c_int,
    name: *mut c_char,
    settings: *const termios,
    size: *const winsize,
) -> pid_t {
    let (mut own, mut terminal) = (-1, -1);
    // SAFETY: two live places; the rest is the program's.
    if unsafe { openpty(&raw mut own, &raw mut terminal, name, settings, size) } == -1 {
        return -1;
    }
    // SAFETY: as in C.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => {}
        -1 => {
            // SAFETY: a descriptor that was made for this.
            unsafe { close(own) };
            // SAFETY: as above.
            unsafe { close(terminal) };
            return -1;
        }
        _ => {
            // SAFETY: the program's place.
            unsafe { *master = own };
            // SAFETY: a descriptor that was made for this.
            unsafe { close(terminal) };
            return pid;
        }
    }
    // SAFETY: the parent's side.
    unsafe { close(own) };
    // SAFETY: as in C.
    if unsafe { login_tty(terminal) } != 0 {
        // SAFETY: as in C.
        unsafe { exit_now(1) };
    }
    0
}

/// libc's own would end the parent where we cannot see it.
pub unsafe fn daemon(keeps_directory: c_int, keeps_files: c_int) -> c_int {
    // SAFETY: as in C.
    match unsafe { libc::fork() } {
        -1 => return -1,
        0 => {}
        // SAFETY: as in C.
        _ => unsafe { exit_now(0) },
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
        unsafe { dup2(null, fd) };
    }
    if null > 2 {
        // SAFETY: our own descriptor.
        unsafe { (next::close.get())(null) };
    }
    0
}
