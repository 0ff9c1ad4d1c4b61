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

type ChildFunction = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The function of a child with a memory of its own, and its argument.
struct Start {
    run: ChildFunction,
    with: *mut c_void,
}

/// The child's begin, on a stack of its own. `start`: in its copy of the parent's frame.
unsafe extern "C" fn begin(start: *mut c_void) -> c_int {
    process::fork_child();
    // SAFETY: the parent waits for the clone with this in its frame, of which this is a copy.
    let start = unsafe { &*start.cast::<Start>() };
    // SAFETY: the program's function and argument.
    let status = unsafe { (start.run)(start.with) };
    end_in_order();
    status
}

/// The last three are there as `flags` says. A child that has a memory of its own is that of a
/// fork.
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
    let is_fork = !run.is_null() && !stack.is_null() && flags & libc::CLONE_VM == 0;
    // As [`vfork`]: the parent does not wait for the child's exec, with every lock of ours held.
    let flags = if is_fork {
        flags & !libc::CLONE_VFORK
    } else {
        flags
    };
    let begin_at = begin as *const c_void;
    let clone = |run: *const c_void, with: *mut c_void| {
        // SAFETY: the program's own call, perhaps with a function that calls the program's.
        unsafe { (next::clone.get())(run, stack, flags, with, parent, storage, child) }
    };
    if !is_fork {
        return clone(run, with);
    }
    // SAFETY: the program's function, which `clone` has this signature for.
    let run = unsafe { core::mem::transmute::<*const c_void, ChildFunction>(run) };
    let mut start = Start { run, with };
    forked(|| clone(begin_at, (&raw mut start).cast()))
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
