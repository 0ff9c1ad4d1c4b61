//! Interposed calls on descriptors, with C's signatures.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_ulong, c_void};

use slipstack_posix::{Errno, Owner, OwnerKind, Process};

use super::closing::abi::{is_private, take_from_parent};
use super::created;
use crate::call::{Restart, answer_uncancelled, is_ours};
use crate::next;
use crate::raw::fail;
use crate::stdio::standard::abi::on_placed;
use crate::{abi, interfaces, process};

pub unsafe fn dup(fd: c_int) -> c_int {
    let copy = answer_uncancelled(
        Restart::Never,
        |process| process.dup(fd).map(|fd| fd as isize),
        // SAFETY: the program's own call.
        || unsafe { (next::dup.get())(fd) as isize },
    ) as c_int;
    on_placed(copy);
    copy
}

pub unsafe fn dup2(old: c_int, new: c_int) -> c_int {
    let concerns_us = is_ours(old) || is_ours(new) || is_private(new);
    if old == new || !concerns_us {
        take_from_parent(new);
        // SAFETY: the program's own call.
        return unsafe { (next::dup2.get())(old, new) };
    }
    let result = answer_uncancelled(
        Restart::Never,
        |process| process.dup3(old, new, 0).map(|fd| fd as isize),
        // SAFETY: the program's own call.
        || unsafe { (next::dup2.get())(old, new) as isize },
    ) as c_int;
    on_placed(result);
    result
}

pub unsafe fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    let concerns_us = is_ours(old) || is_ours(new) || is_private(new);
    if old == new || !concerns_us {
        take_from_parent(new);
        // SAFETY: the program's own call.
        return unsafe { (next::dup3.get())(old, new, flags) };
    }
    let result = answer_uncancelled(
        Restart::Never,
        |process| process.dup3(old, new, flags).map(|fd| fd as isize),
        // SAFETY: the program's own call.
        || unsafe { (next::dup3.get())(old, new, flags) as isize },
    ) as c_int;
    on_placed(result);
    result
}

pub unsafe fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    if command == libc::F_SETFD && is_private(fd) {
        // A program that changes all descriptors goes on, and ours stay as they are over an exec.
        return 0;
    }
    if !is_ours(fd) {
        // SAFETY: the program's own call.
        let result = unsafe { (next::fcntl.get())(fd, command, argument) };
        if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
            created(result);
        }
        return result;
    }
    if matches!(command, F_SETOWN_EX | F_GETOWN_EX) && is_ours(fd) {
        // SAFETY: null or a struct of the program's.
        return match unsafe { (argument as *mut OwnerEx).as_mut() } {
            Some(owner) => owner_ex(fd, command, owner),
            None => fail(Errno::EFAULT),
        };
    }
    let result = answer_uncancelled(
        Restart::Never,
        |process| process.fcntl(fd, command, argument).map(|r| r as isize),
        || {
            // SAFETY: the program's own call.
            let result = unsafe { (next::fcntl.get())(fd, command, argument) };
            if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
                created(result);
            }
            result as isize
        },
    );
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        on_placed(result as c_int);
    }
    if command == libc::F_SETOWN && result == 0 {
        serve_owners(fd);
    }
    result as c_int
}

const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;

/// struct f_owner_ex.
#[repr(C)]
struct OwnerEx {
    kind: c_int,
    id: c_int,
}

/// The kinds of owners in their order: F_OWNER_TID, F_OWNER_PID, F_OWNER_PGRP.
const OWNER_KINDS: [OwnerKind; 3] = [OwnerKind::Thread, OwnerKind::Process, OwnerKind::Group];

fn owner_ex(fd: c_int, command: c_int, owner: &mut OwnerEx) -> c_int {
    let kind = usize::try_from(owner.kind).ok();
    let kind = kind.and_then(|at| OWNER_KINDS.get(at)).copied();
    let (number, id) = (owner.kind, owner.id);
    let mut given = OwnerEx { kind: number, id };
    let result = answer_uncancelled(
        Restart::Never,
        |process| match command {
            F_GETOWN_EX => {
                let found = process.owner_of(fd)?;
                let kind = OWNER_KINDS.iter().position(|kind| *kind == found.kind);
                owner.kind = kind.unwrap_or(0) as c_int;
                owner.id = found.id;
                Ok(0)
            }
            _ => {
                let kind = kind.ok_or(Errno::EINVAL)?;
                process.set_owner_of(fd, Owner { kind, id }).map(|()| 0)
            }
        },
        // SAFETY: a struct of ours.
        || unsafe { (next::fcntl.get())(fd, command, &raw mut given as usize) as isize },
    );
    if command == F_SETOWN_EX && result == 0 {
        serve_owners(fd);
    }
    result as c_int
}

/// A socket has an owner now: a thread has to wait for urgent marks.
#[cold]
fn serve_owners(fd: c_int) {
    if is_ours(fd)
        && let Some(process) = process::current()
    {
        process.serve_owners();
    }
}

pub unsafe fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::ioctl.get())(fd, request, argument) };
    if matches!(request, libc::FIOCLEX | libc::FIONCLEX) && is_private(fd) {
        return 0;
    }
    if !Process::ioctl_takes_int(request) {
        if interfaces::is_request(request) {
            // SAFETY: the program's own call.
            return unsafe { interfaces::ask(fd, request, argument) };
        }
        let ask = |process: &Process| process.prepare_kernel(fd).map(|()| 0);
        return answer_uncancelled(Restart::Never, ask, || libc() as isize) as c_int;
    }
    // SAFETY: an int of the program's.
    let value = match unsafe { abi::object_mut(argument.cast::<c_int>()) } {
        Ok(value) => value,
        Err(errno) => return fail(errno),
    };
    let result = answer_uncancelled(
        Restart::Never,
        |process| process.ioctl(fd, request, value).map(|r| r as isize),
        || libc() as isize,
    );
    if Process::ioctl_sets_owner(request) && result == 0 {
        serve_owners(fd);
    }
    result as c_int
}

pub unsafe fn pipe(pair: *mut c_int) -> c_int {
    // SAFETY: the program's own call.
    unsafe { pipe2(pair, 0) }
}

pub unsafe fn pipe2(pair: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { (next::pipe2.get())(pair, flags) };
    if result == 0 {
        // SAFETY: libc has just filled both.
        for fd in unsafe { *pair.cast::<[c_int; 2]>() } {
            created(fd);
        }
    }
    result
}
