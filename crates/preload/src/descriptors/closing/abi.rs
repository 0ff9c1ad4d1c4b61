//! Interposed calls that close, with C's signatures.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_uint};

use slipstack_posix::{Descriptor, Errno};

use crate::call::{Restart, answer, answer_uncancelled, is_ours};
use crate::raw::fail;
use crate::thread::InCall;
use crate::{next, process};

/// Lowest of our own descriptors that only the process lists: no program's usual number is ever
/// looked up there.
const LISTED_FROM: c_int = 200;

/// Whether `fd` is a descriptor that we need ourselves.
pub fn is_private(fd: c_int) -> bool {
    if slipstack_posix::is_private(fd) {
        return true;
    }
    if fd < LISTED_FROM || is_ours(fd) {
        return false;
    }
    let _in_call = InCall::enter();
    process::current().is_some_and(|process| process.is_private(fd))
}

pub unsafe fn close(fd: c_int) -> c_int {
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::close.get())(fd) };
    if is_private(fd) {
        return fail(Errno::EBADF);
    }
    if is_ours(fd) {
        return answer(
            Restart::Never,
            |process| process.close(fd).map(|()| 0),
            || libc() as isize,
        ) as c_int;
    }
    if take_from_parent(fd) {
        libc();
        return fail(Errno::EBADF);
    }
    libc()
}

/// Whether `fd` was only open because an engine of the parent's has it. It is not any more: it is
/// about to be closed, or replaced.
#[inline]
pub fn take_from_parent(fd: c_int) -> bool {
    let is_parents = slipstack_posix::is_parents(fd);
    if is_parents && let Some(number) = Descriptor::new(fd) {
        number.unlist();
    }
    is_parents
}

pub unsafe fn closefrom(first: c_int) {
    let first = c_uint::try_from(first).unwrap_or(0);
    // SAFETY: the program's own call.
    unsafe { close_range(first, c_uint::MAX, 0) };
}

pub unsafe fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // A program without sockets may have a connection to the keeper, which is spared.
    process::activate();
    answer_uncancelled(
        Restart::Never,
        |process| {
            let flags = flags.cast_unsigned();
            process.close_range(first, last, flags).map(|()| 0)
        },
        // SAFETY: the program's own call.
        || unsafe { (next::close_range.get())(first, last, flags) as isize },
    ) as c_int
}
