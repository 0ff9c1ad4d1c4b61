//! `ff_kqueue`, `ff_kevent` and `ff_kevent_do_each`. Each is as F-Stack's headers say.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_void};
use std::time::Duration;

use libc::timespec;
use slipstack_abi::abi;
use slipstack_posix::kqueue::Kevent;
use slipstack_posix::{Errno, Process};

use crate::call::{answer, fail, without_stack};
use crate::thread;

type Each = unsafe extern "C" fn(*mut *mut c_void, *mut Kevent);

/// Changes that are copied without asking for memory.
const FEW: usize = 16;

#[unsafe(no_mangle)]
pub extern "C" fn ff_kqueue() -> c_int {
    answer(
        |process| process.kqueue().map(|fd| fd as isize),
        without_stack,
    ) as c_int
}

/// The program's changes, copied: it may give the same array for events.
unsafe fn with_changes<T>(
    at: *const Kevent,
    count: c_int,
    work: impl FnOnce(&[Kevent]) -> T,
) -> Result<T, Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    if count > 0 && at.is_null() {
        return Err(Errno::EFAULT);
    }
    let mut few = [Kevent::default(); FEW];
    let mut many = Vec::new();
    let changes = if count <= FEW {
        &mut few[..count]
    } else {
        many.resize(count, Kevent::default());
        &mut many[..]
    };
    for (index, change) in changes.iter_mut().enumerate() {
        // SAFETY: inside the program's array.
        let place = unsafe { at.add(index) };
        // SAFETY: as above; the array may be anywhere.
        *change = unsafe { place.read_unaligned() };
    }
    Ok(work(changes))
}

/// One kevent on `kq`; `put` is given each event, `room` of them at most.
unsafe fn kevent(
    kq: c_int,
    (changes, count): (*const Kevent, c_int),
    room: c_int,
    timeout: *const timespec,
    mut put: impl FnMut(usize, Kevent),
) -> c_int {
    // SAFETY: null or the program's structure.
    let timeout = match unsafe { abi::timespec(timeout) } {
        Ok(timeout) => timeout,
        Err(errno) => return fail(errno) as c_int,
    };
    let Ok(room) = usize::try_from(room) else {
        return fail(Errno::EINVAL) as c_int;
    };
    let wait: Option<Duration> = thread::bounded(timeout);
    let mut found = 0;
    let ask = |changes: &[Kevent]| {
        answer(
            |process: &Process| {
                let mut put = |event| {
                    if found == room {
                        return false;
                    }
                    put(found, event);
                    found += 1;
                    true
                };
                process.kevent(kq, changes, wait, room > 0, &mut put)?;
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
    if result < 0 {
        return -1;
    }
    if room > 0 {
        thread::note_wait(kq, found, wait);
    }
    c_int::try_from(found).unwrap_or(c_int::MAX)
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
    if room > 0 && events.is_null() {
        return fail(Errno::EFAULT) as c_int;
    }
    let put = |index, event| {
        // SAFETY: inside the program's array.
        let place = unsafe { events.add(index) };
        // SAFETY: as above; the array may be anywhere.
        unsafe { place.write_unaligned(event) };
    };
    // SAFETY: the program's changes and its time.
    unsafe { kevent(kq, (changes, count), room, timeout, put) }
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
    let Some(each) = each else {
        return fail(Errno::EFAULT) as c_int;
    };
    // It may call us again: it is called when nothing of ours is locked.
    let mut found = Vec::new();
    // SAFETY: the program's changes and its time.
    let result = unsafe {
        kevent(kq, (changes, count), room, timeout, |_, event| {
            found.push(event);
        })
    };
    for event in &mut found {
        // SAFETY: the program's function, with its cursor and an event that lives while it runs.
        unsafe { each(&raw mut cursor, event) };
    }
    result
}
