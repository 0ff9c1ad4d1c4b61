//! The hooked calls that change rights of a thread. Each is as in C.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_long, c_uint, c_void};

use super::raw::have_done;
use super::{is_first_thread, is_of_thread};
use crate::life;
use crate::raw::{libc_result, syscall6, thread_id};
use crate::symbols::next;

/// A limit of descriptors below this is one of a program that confines itself.
const FEW_DESCRIPTORS: u64 = 16;

/// `struct __user_cap_header_struct`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CapabilityHeader {
    version: u32,
    /// Thread; 0: the calling one.
    pid: c_int,
}

pub unsafe fn capset(header: *mut CapabilityHeader, data: *const c_void) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { (next::capset.get())(header, data) };
    if result != 0 || !is_first_thread() {
        return result;
    }
    // SAFETY: the kernel has read it.
    let header = unsafe { *header };
    if header.pid == 0 || header.pid as usize == thread_id() {
        let own = CapabilityHeader { pid: 0, ..header };
        let args = [&raw const own as usize, data as usize, 0, 0, 0, 0];
        // SAFETY: the kernel reads what it has read already; both outlive the calls.
        unsafe { have_done(libc::SYS_capset, args) };
    }
    result
}

pub unsafe fn prctl(operation: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    if operation == libc::PR_SET_SECCOMP {
        before_confinement();
    }
    // SAFETY: the program's own call.
    let result = unsafe { (next::prctl.get())(operation, a, b, c, d) };
    if result == 0 && is_of_thread(operation) && is_first_thread() {
        let args = [operation as usize, a, b, c, d, 0];
        // SAFETY: of numbers only, as the program's.
        unsafe { have_done(libc::SYS_prctl, args) };
    }
    result
}

pub unsafe fn setrlimit(resource: c_uint, new: *const libc::rlimit) -> c_int {
    // SAFETY: the kernel reads it as well.
    unsafe { before_limit(resource, new) };
    // SAFETY: the program's own call.
    unsafe { (next::setrlimit.get())(resource, new) }
}

pub unsafe fn prlimit(
    pid: libc::pid_t,
    resource: c_uint,
    new: *const libc::rlimit,
    old: *mut libc::rlimit,
) -> c_int {
    if pid == 0 {
        // SAFETY: the kernel reads it as well.
        unsafe { before_limit(resource, new) };
    }
    // SAFETY: the program's own call.
    unsafe { (next::prlimit.get())(pid, resource, new, old) }
}

/// A program that may have no further descriptor takes what other processes lend it while it may.
unsafe fn before_limit(resource: c_uint, new: *const libc::rlimit) {
    // SAFETY: the caller's pointer, or null.
    let Some(new) = (unsafe { new.as_ref() }) else {
        return;
    };
    if resource == libc::RLIMIT_NOFILE
        && new.rlim_cur < FEW_DESCRIPTORS
        && let Some(process) = life::process()
    {
        process.before_few_descriptors();
    }
}

/// Called before `prctl(PR_SET_SECCOMP)` and `seccomp(2)`.
pub fn before_confinement() {
    if let Some(process) = life::process() {
        process.before_confinement();
    }
}

/// A raw call of [`super::is_change_of_user`].
pub unsafe fn change_user(number: c_long, args: [usize; 6]) -> c_long {
    // SAFETY: the program's own call.
    let result = libc_result(unsafe { syscall6(number, args) });
    if result == 0 && is_first_thread() {
        // SAFETY: the kernel reads what it has read already, which outlives the calls.
        unsafe { have_done(number, args) };
    }
    result as c_long
}
