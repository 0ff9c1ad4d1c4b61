//! Interposed calls that begin and end processes, with C's signatures.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::c_int;

use libc::pid_t;

use crate::next;
use crate::process::{end_in_order, forked};

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
