//! Interposed stdio calls, with C's signatures.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering::Release;

use libc::{FILE, off64_t, size_t, ssize_t};

use slipstack_posix::Errno;

use super::{find, remove, reserve};
use crate::call::{is_from_us, is_ours};
use crate::descriptors::{closes_inside, closing};
use crate::io;
use crate::next;
use crate::raw;

/// libc's `cookie_io_functions_t`.
#[repr(C)]
struct CookieFunctions {
    read: Option<unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t>,
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t>,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int>,
    close: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

unsafe extern "C" {
    fn fopencookie(
        cookie: *mut c_void,
        mode: *const c_char,
        functions: CookieFunctions,
    ) -> *mut FILE;
}

unsafe extern "C" fn cookie_read(cookie: *mut c_void, buf: *mut c_char, len: size_t) -> ssize_t {
    let fd = cookie as c_int;
    if !is_ours(fd) || is_from_us() {
        // SAFETY: libc's buffer.
        return unsafe { (next::read.get())(fd, buf.cast(), len) };
    }
    // SAFETY: libc's buffer.
    unsafe { io::abi::read(fd, buf.cast(), len) }
}

/// A stream's write reports failure as 0.
unsafe extern "C" fn cookie_write(cookie: *mut c_void, buf: *const c_char, len: size_t) -> ssize_t {
    let fd = cookie as c_int;
    let mut done = 0;
    while done < len {
        // SAFETY: inside libc's buffer.
        let at = unsafe { buf.add(done) };
        let written = if !is_ours(fd) || is_from_us() {
            // SAFETY: libc's buffer.
            unsafe { (next::write.get())(fd, at.cast(), len - done) }
        } else {
            // SAFETY: libc's buffer.
            unsafe { io::abi::write(fd, at.cast(), len - done) }
        };
        match usize::try_from(written) {
            Ok(written) => done += written,
            Err(_) => break,
        }
    }
    done as ssize_t
}

unsafe extern "C" fn cookie_close(cookie: *mut c_void) -> c_int {
    // SAFETY: the cookie is the descriptor, and the stream owns it.
    unsafe { closing::abi::close(cookie as c_int) }
}

pub unsafe fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    let functions = CookieFunctions {
        read: Some(cookie_read),
        write: Some(cookie_write),
        seek: None,
        close: Some(cookie_close),
    };
    let Some(place) = reserve(fd) else {
        raw::fail(Errno::EMFILE);
        return core::ptr::null_mut();
    };
    // SAFETY: the cookie is a number, not a pointer; the functions stay loaded.
    let stream = unsafe { fopencookie(fd as usize as *mut c_void, mode, functions) };
    // A failure leaves 0: the place is free again.
    place.at.store(stream as usize, Release);
    stream
}

pub unsafe fn fclose(file: *mut FILE) -> c_int {
    if !remove(file as usize) {
        // SAFETY: the program's stream.
        closes_inside(unsafe { (next::fileno.get())(file) });
    }
    // SAFETY: the program's own call.
    unsafe { (next::fclose.get())(file) }
}

pub unsafe fn fileno(file: *mut FILE) -> c_int {
    match find(file as usize) {
        Some(fd) => fd,
        // SAFETY: the program's own call.
        None => unsafe { (next::fileno.get())(file) },
    }
}

pub unsafe fn freopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
    if !remove(file as usize) {
        // SAFETY: the program's stream.
        closes_inside(unsafe { (next::fileno.get())(file) });
    }
    // SAFETY: the program's own call.
    unsafe { (next::freopen.get())(path, mode, file) }
}

pub unsafe fn freopen64(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
    if !remove(file as usize) {
        // SAFETY: the program's stream.
        closes_inside(unsafe { (next::fileno.get())(file) });
    }
    // SAFETY: the program's own call.
    unsafe { (next::freopen64.get())(path, mode, file) }
}

/// A `va_list` of the program's, as its C library passes it on.
type List = *mut c_void;

unsafe extern "C" {
    fn vasprintf(text: *mut *mut c_char, format: *const c_char, list: List) -> c_int;
}

/// libc formats, the hooked write sends.
pub unsafe fn vdprintf(fd: c_int, format: *const c_char, list: List) -> c_int {
    let mut text = core::ptr::null_mut();
    // SAFETY: the program's own format and list.
    let len = unsafe { vasprintf(&raw mut text, format, list) };
    let Ok(whole) = usize::try_from(len) else {
        return -1;
    };
    // SAFETY: the cookie is a descriptor; libc has made a text of this length.
    let written = unsafe { cookie_write(fd as usize as *mut c_void, text, whole) };
    let errno = raw::errno();
    // SAFETY: libc allocated it for us.
    unsafe { libc::free(text.cast()) };
    raw::set_errno(errno);
    if written == whole as ssize_t { len } else { -1 }
}

pub unsafe fn vdprintf_chk(fd: c_int, _flag: c_int, format: *const c_char, list: List) -> c_int {
    // SAFETY: the program's own call.
    unsafe { vdprintf(fd, format, list) }
}

/// `dprintf`, from assembly.
pub unsafe extern "C" fn print_list(fd: c_int, format: *const c_char, list: List) -> c_int {
    if !is_ours(fd) || is_from_us() {
        // SAFETY: the program's own call.
        return unsafe { (next::vdprintf.get())(fd, format, list) };
    }
    // SAFETY: the program's own call.
    unsafe { vdprintf(fd, format, list) }
}

/// `__dprintf_chk`, from assembly.
pub unsafe extern "C" fn print_list_checked(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    list: List,
) -> c_int {
    if !is_ours(fd) || is_from_us() {
        // SAFETY: the program's own call.
        return unsafe { (next::__vdprintf_chk.get())(fd, flag, format, list) };
    }
    // SAFETY: the program's own call.
    unsafe { vdprintf(fd, format, list) }
}
