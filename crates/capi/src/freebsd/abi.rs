//! Functions that take FreeBSD's numbers, declared as in F-Stack's headers.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_uint, c_ulong, c_void};

use libc::{size_t, socklen_t};
use slipstack_abi::abi;
use slipstack_posix::Errno;

use super::{options, sysctl};
use crate::call::fail;
use crate::descriptors::abi::ff_ioctl;
use crate::sockets::abi::{ff_getsockopt, ff_setsockopt};

/// FreeBSD's sys/filio.h.
const FIONREAD: c_ulong = 0x4004_667f;
const FIONBIO: c_ulong = 0x8004_667e;
const FIOASYNC: c_ulong = 0x8004_667d;

/// Numbers of one sysctl at most (CTL_MAXNAME).
const NUMBERS_MAX: c_uint = 24;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_setsockopt_freebsd(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    match options::of_linux(level, name) {
        // SAFETY: the program's own call.
        Some((level, name)) => unsafe { ff_setsockopt(fd, level, name, value, len) },
        None => fail(Errno::ENOPROTOOPT) as c_int,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_getsockopt_freebsd(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    match options::of_linux(level, name) {
        // SAFETY: the program's own call.
        Some((level, name)) => unsafe { ff_getsockopt(fd, level, name, value, len) },
        None => fail(Errno::ENOPROTOOPT) as c_int,
    }
}

/// In C with an open argument list, of which it takes one: the calling conventions pass it alike.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_ioctl_freebsd(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    let request = match request {
        FIONREAD => libc::FIONREAD,
        FIONBIO => libc::FIONBIO,
        FIOASYNC => libc::FIOASYNC,
        _ => return fail(Errno::EINVAL) as c_int,
    };
    // SAFETY: the program's own call.
    unsafe { ff_ioctl(fd, request, argument) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_sysctl(
    numbers: *const c_int,
    count: c_uint,
    old: *mut c_void,
    old_len: *mut size_t,
    new: *const c_void,
    new_len: size_t,
) -> c_int {
    if numbers.is_null() || count == 0 || count > NUMBERS_MAX {
        return fail(Errno::EINVAL) as c_int;
    }
    // SAFETY: the program's numbers.
    let numbers = unsafe { core::slice::from_raw_parts(numbers, count as usize) };
    // SAFETY: null or the program's bytes.
    let input = match unsafe { abi::bytes(new, new_len) } {
        Ok(input) => input,
        Err(errno) => return fail(errno) as c_int,
    };
    let value = match sysctl::call(numbers, input) {
        Ok(value) => value,
        Err(errno) => return fail(errno) as c_int,
    };
    // SAFETY: null or a word of the program's.
    let Some(room) = (unsafe { old_len.as_mut() }) else {
        return 0;
    };
    let len = if old.is_null() {
        0
    } else {
        value.len().min(*room)
    };
    // SAFETY: the program's place.
    match unsafe { abi::bytes_mut(old, len) } {
        Ok(place) => place.copy_from_slice(&value[..len]),
        Err(errno) => return fail(errno) as c_int,
    }
    let is_cut = !old.is_null() && len < value.len();
    *room = if is_cut { len } else { value.len() };
    match is_cut {
        true => fail(Errno::ENOMEM) as c_int,
        false => 0,
    }
}

/// Refuses: no FreeBSD with a routing socket lies below.
#[unsafe(no_mangle)]
pub extern "C" fn ff_rtioctl(
    _table: c_int,
    _message: *mut c_void,
    _len: *mut c_uint,
    _len_max: c_uint,
) -> c_int {
    fail(Errno::EOPNOTSUPP) as c_int
}

/// Refuses: netgraph has no nodes here.
#[unsafe(no_mangle)]
pub extern "C" fn ff_ngctl(_command: c_int, _data: *mut c_void) -> c_int {
    fail(Errno::EOPNOTSUPP) as c_int
}

/// Threads need no structure of a stack's: each is known by itself. The result is `parent`, or
/// without one an address of nothing, as null would mean that there is no memory.
#[unsafe(no_mangle)]
pub extern "C" fn ff_adapt_user_thread_add(parent: *mut c_void) -> *mut c_void {
    match parent.is_null() {
        true => core::ptr::dangling_mut(),
        false => parent,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn ff_adapt_user_thread_exit(_thread: *mut c_void) {}

#[unsafe(no_mangle)]
pub extern "C" fn ff_switch_curthread(_thread: *mut c_void) -> *mut c_void {
    core::ptr::null_mut()
}

#[unsafe(no_mangle)]
pub extern "C" fn ff_restore_curthread(_thread: *mut c_void) {}
