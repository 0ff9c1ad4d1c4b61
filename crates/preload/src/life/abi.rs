//! Interposed calls that begin and end processes, or bring them into other namespaces, with C's
//! signatures.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_void};

use libc::pid_t;

use crate::process::{self, end_in_order, forked};
use crate::thread::InCall;
use crate::{namespace, next};

/// A child that shared our memory would change the parent's sockets: it runs as `fork`,
/// which the standard allows. (The parent does not wait for the child's exec.)
pub unsafe fn vfork() -> pid_t {
    // SAFETY: libc's fork; our handlers are registered with libc.
    unsafe { libc::fork() }
}

/// `_Fork` runs no registered functions.
pub unsafe fn plain_fork() -> pid_t {
    // SAFETY: the program's own call.
    forked(|| unsafe { (next::_Fork.get())() })
}

pub unsafe fn exit_now(status: c_int) -> ! {
    end_in_order();
    // SAFETY: the program's own call.
    unsafe { (next::_exit.get())(status) }
}

pub unsafe fn setns(fd: c_int, kinds: c_int) -> c_int {
    if kinds == 0 || kinds & libc::CLONE_NEWNET != 0 {
        before_namespace();
    }
    // SAFETY: the program's own call.
    unsafe { (next::setns.get())(fd, kinds) }
}

pub unsafe fn unshare(kinds: c_int) -> c_int {
    if kinds & libc::CLONE_NEWNET != 0 {
        before_namespace();
    }
    // SAFETY: the program's own call.
    unsafe { (next::unshare.get())(kinds) }
}

/// The last three are there as `flags` says.
pub unsafe fn clone(
    run: *const c_void,
    stack: *mut c_void,
    flags: c_int,
    with: *mut c_void,
    parent: *mut c_void,
    storage: *mut c_void,
    child: *mut c_void,
) -> c_int {
    if flags & libc::CLONE_NEWNET != 0 {
        before_namespace();
    }
    // SAFETY: the program's own call.
    unsafe { (next::clone.get())(run, stack, flags, with, parent, storage, child) }
}

/// Called before a thread or child goes to another network namespace. Sockets that may still become
/// the kernel's stay in the one in which they were made.
pub fn before_namespace() {
    if namespace::part()
        && let Some(process) = process::current()
        && !namespace::is_elsewhere()
    {
        let _in_call = InCall::enter();
        process.settle_kernel_parts();
    }
}
