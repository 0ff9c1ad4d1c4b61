//! `ff_kqueue`, `ff_kevent` and `ff_kevent_do_each`, declared as in F-Stack's headers.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_void};

use libc::timespec;
use slipstack_abi::abi;
use slipstack_abi::kqueue::{Places, with_changes};
use slipstack_posix::kqueue::Kevent;
use slipstack_posix::{Errno, Process};

use crate::call::{answer, fail, without_stack};
use crate::thread;

type Each = unsafe extern "C" fn(*mut *mut c_void, *mut Kevent);

#[unsafe(no_mangle)]
pub extern "C" fn ff_kqueue() -> c_int {
    answer(
        |process| process.kqueue().map(|fd| fd as isize),
        without_stack,
    ) as c_int
}

/// One kevent on `kq`, with room for events as long as `has_room` says so.
unsafe fn kevent(
    kq: c_int,
    (changes, count): (*const Kevent, c_int),
    timeout: *const timespec,
    has_room: bool,
    put: &mut dyn FnMut(Kevent) -> bool,
) -> isize {
    // SAFETY: null or the program's structure.
    let timeout = match unsafe { abi::timespec(timeout) } {
        Ok(timeout) => timeout,
        Err(errno) => return fail(errno),
    };
    let wait = thread::bounded(timeout);
    let mut found = 0;
    let ask = |changes: &[Kevent]| {
        answer(
            |process: &Process| {
                let mut counted = |event| {
                    let is_put = put(event);
                    found += usize::from(is_put);
                    is_put
                };
                process.kevent(kq, changes, wait, has_room, &mut counted)?;
                Ok(0)
            },
            || fail(Errno::EBADF),
        )
    };
    // SAFETY: the program's changes.
    let result = match unsafe { with_changes(changes, count, ask) } {
        Ok(result) => result,
        Err(errno) => fail(errno),
    };
    if result >= 0 && has_room {
        thread::note_wait(kq, found, wait);
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_kevent(
    kq: c_int,
    changes: *const Kevent,
    count: c_int,
    events: *mut Kevent,
    room: c_int,
    timeout: *const timespec,
) -> c_int {
    // SAFETY: the program's room.
    let mut places = match unsafe { Places::new(events, room) } {
        Ok(places) => places,
        Err(errno) => return fail(errno) as c_int,
    };
    let (changes, has_room) = ((changes, count), places.has_room());
    let mut put = |event| places.put(event);
    // SAFETY: the program's changes and its time.
    match unsafe { kevent(kq, changes, timeout, has_room, &mut put) } {
        ..0 => -1,
        _ => c_int::try_from(places.filled()).unwrap_or(c_int::MAX),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_kevent_do_each(
    kq: c_int,
    changes: *const Kevent,
    count: c_int,
    mut cursor: *mut c_void,
    room: c_int,
    timeout: *const timespec,
    each: Option<Each>,
) -> c_int {
    let (Some(each), Ok(room)) = (each, usize::try_from(room)) else {
        return fail(Errno::EINVAL) as c_int;
    };
    // `each` may call the library again, so no lock is held while it runs.
    let mut found = Vec::new();
    let mut put = |event| {
        let has_room = found.len() < room;
        if has_room {
            found.push(event);
        }
        has_room
    };
    // SAFETY: the program's changes and its time.
    if unsafe { kevent(kq, (changes, count), timeout, room > 0, &mut put) } < 0 {
        return -1;
    }
    for event in &mut found {
        // SAFETY: the program's function, with its cursor and an event that lives while it runs.
        unsafe { each(&raw mut cursor, event) };
    }
    c_int::try_from(found.len()).unwrap_or(c_int::MAX)
}
