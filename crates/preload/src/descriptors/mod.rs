//! Descriptor numbers: closing, duplicating, creating.

pub mod abi;
pub mod closing;
pub mod identity;

use crate::process;
use crate::thread::{self, InCall};

/// libc has made a kernel descriptor. If we thought the number was a socket of ours, or a
/// descriptor of the library's own, it was closed behind our back (by a raw system call, or inside
/// libc).
#[inline]
pub fn created(fd: i32) {
    let is_known =
        || process::is_ours(fd) || closing::abi::is_private(fd) || slipstack_posix::is_parents(fd);
    if fd >= 0 && is_known() && !thread::current().is_in_call() {
        forget(fd);
    }
}

#[cold]
pub fn forget(fd: i32) {
    if let Some(process) = process::current() {
        let _in_call = InCall::enter();
        process.invalidate(fd);
    }
}

/// libc is about to close `fd` itself, where we cannot see it.
pub fn closes_inside(fd: i32) {
    if process::is_ours(fd) {
        forget(fd);
    }
}
