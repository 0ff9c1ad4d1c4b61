//! FreeBSD's `kqueue` and `kevent`, as programs for F-Stack's adapter call them.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::c_int;

use libc::timespec;
use slipstack_abi::kqueue::{Places, with_changes};
use slipstack_posix::Errno;
use slipstack_posix::kqueue::Kevent;

use crate::abi;
use crate::call::{Restart, answer, answer_uncancelled};
use crate::process;
use crate::raw::fail;

#[unsafe(no_mangle)]
pub extern "C" fn kqueue() -> c_int {
    if process::activate().is_none() {
        return fail(Errno::ENOSYS);
    }
    answer_uncancelled(
        Restart::Never,
        |process| process.kqueue().map(|fd| fd as isize),
        || fail(Errno::ENOSYS) as isize,
    ) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn kevent(
    kq: c_int,
    changes: *const Kevent,
    count: c_int,
    events: *mut Kevent,
    room: c_int,
    timeout: *const timespec,
) -> c_int {
    // SAFETY: null or the program's structure.
    let timeout = match unsafe { abi::timespec(timeout) } {
        Ok(timeout) => timeout,
        Err(errno) => return fail(errno),
    };
    // SAFETY: the program's room.
    let mut places = match unsafe { Places::new(events, room) } {
        Ok(places) => places,
        Err(errno) => return fail(errno),
    };
    let ask = |changes: &[Kevent]| {
        // A call that is made again has made its changes.
        let mut changes = changes;
        answer(
            Restart::Never,
            |process| {
                let has_room = places.has_room();
                process.kevent(kq, changes, timeout, has_room, &mut |event| {
                    places.put(event)
                })?;
                changes = &[];
                Ok(0)
            },
            || fail(Errno::EBADF) as isize,
        )
    };
    // SAFETY: the program's changes.
    match unsafe { with_changes(changes, count, ask) } {
        Ok(0) => c_int::try_from(places.filled()).unwrap_or(c_int::MAX),
        Ok(_) => -1,
        Err(errno) => fail(errno),
    }
}
