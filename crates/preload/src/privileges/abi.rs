//! Interposed calls that change the privileges of a thread, with C's signatures.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_long, c_uint, c_void};

use slipstack_posix::{HelperHandover, Process, await_settled_threads};

use super::raw::have_done;
use super::{is_first_thread, is_of_thread};
use crate::next::{self, CapabilityHeader};
use crate::process;
use crate::raw::{self, libc_result, swap_mask, syscall6, thread_id};
use crate::signals;
use crate::thread::InCall;

/// A limit of descriptors below this is one of a program that confines itself.
const FEW_DESCRIPTORS: u64 = 16;

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
        // SAFETY: the kernel reads memory that it has read already; both outlive the calls.
        unsafe { have_done(libc::SYS_capset, args) };
    }
    result
}

pub unsafe fn prctl(operation: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    if operation == libc::PR_SET_SECCOMP && confines(a, b) {
        before_confinement();
        process::watch_under_filter();
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

/// Prepares a program that may have no further descriptor, or no further process: it takes over the
/// pairs of borrowed sockets while it may, and gives its engine up.
unsafe fn before_limit(resource: c_uint, new: *const libc::rlimit) {
    // SAFETY: the caller's pointer, or null.
    let Some(new) = (unsafe { new.as_ref() }) else {
        return;
    };
    match resource {
        libc::RLIMIT_NOFILE if new.rlim_cur < FEW_DESCRIPTORS => before_hard_limit(false),
        libc::RLIMIT_NPROC if new.rlim_cur == 0 => before_hard_limit(true),
        _ => {}
    }
}

/// Returns whether a call with a mode (or operation) and its filter confines: with a null pointer
/// programs only check whether the kernel has filters.
fn confines(mode: usize, filter: usize) -> bool {
    mode == libc::SECCOMP_MODE_STRICT as usize || filter != 0
}

/// Called before `seccomp(2)`.
pub fn before_seccomp(operation: usize, flags: usize, filter: usize) {
    let is_strict = operation == libc::SECCOMP_SET_MODE_STRICT as usize;
    let is_filter = operation == libc::SECCOMP_SET_MODE_FILTER as usize;
    if is_strict || is_filter && filter != 0 {
        before_confinement();
        match flags & libc::SECCOMP_FILTER_FLAG_TSYNC as usize {
            0 => process::watch_under_filter(),
            _ => process::end_without_handover(),
        }
    }
}

/// A raw call of [`super::is_change_of_user`].
pub unsafe fn change_user(number: c_long, args: [usize; 6]) -> c_long {
    // SAFETY: the program's own call.
    let result = libc_result(unsafe { syscall6(number, args) });
    if result == 0 && is_first_thread() {
        // SAFETY: the kernel reads memory that it has read already, which outlives the calls.
        unsafe { have_done(number, args) };
    }
    result as c_long
}

/// Called before `prctl(PR_SET_SECCOMP)` and `seccomp(2)` install a filter.
fn before_confinement() {
    if let Some(process) = process::current() {
        leave(process, Process::prepare_confinement);
        let _in_call = InCall::enter();
        process.before_confinement();
    }
    let _in_call = InCall::enter();
    signals::confine();
    await_settled_threads();
}

/// Called before a limit of a program that confines itself, which often comes first: `is_last` if
/// no process can be made after it.
fn before_hard_limit(is_last: bool) {
    let Some(process) = process::current() else {
        return;
    };
    if process.is_session() {
        leave(process, Process::prepare_confinement);
    }
    if !is_last {
        let _in_call = InCall::enter();
        process.before_few_descriptors();
    }
}

/// Leaves connections of the program to a helper, which handlers of the program's never run in.
fn leave(process: &'static Process, prepare: fn(&Process) -> Option<HelperHandover>) {
    let prepared = {
        let _in_call = InCall::enter();
        prepare(process)
    };
    let Some(leaving) = prepared else { return };
    let mask = swap_mask(raw::BLOCK_ALL);
    let pid = process::forked(process::fork_away);
    if pid == 0 {
        let _in_call = InCall::enter();
        process::become_helper();
        process.keep_for_program(leaving);
        process::end_helper();
    }
    let in_call = InCall::enter();
    process.leave_to_helper(leaving, pid > 0);
    drop(in_call);
    swap_mask(mask);
}
