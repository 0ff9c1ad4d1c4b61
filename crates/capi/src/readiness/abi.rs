//! epoll, poll and select, declared as in F-Stack's headers.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::c_int;

use libc::{epoll_event, fd_set, nfds_t, pollfd, timeval};
use slipstack_abi::abi;
use slipstack_abi::raw::system;
use slipstack_posix::{Errno, Process};

use crate::call::{answer, fail, length, without_stack};
use crate::thread;

/// Accepts any size, also 0; its bits may select the stack or the kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_epoll_create(size: c_int) -> c_int {
    const FLAGS: c_int = Process::SOCK_KERNEL | Process::SOCK_STACK;
    if size & FLAGS == Process::SOCK_KERNEL {
        // SAFETY: takes no pointer.
        return unsafe { system(libc::SYS_epoll_create1, [0; 6]) as c_int };
    }
    answer(
        |process| process.epoll_create1(0).map(|fd| fd as isize),
        without_stack,
    ) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_epoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    if event.is_null() && op != libc::EPOLL_CTL_DEL {
        return fail(Errno::EFAULT) as c_int;
    }
    // SAFETY: null or the program's structure.
    let wanted = unsafe { event.as_ref() }.copied();
    let args = [
        epfd as usize,
        op as usize,
        fd as usize,
        event as usize,
        0,
        0,
    ];
    answer(
        |process| process.epoll_ctl(epfd, op, fd, wanted).map(|()| 0),
        // SAFETY: the program's own call.
        || unsafe { system(libc::SYS_epoll_ctl, args) },
    ) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    let room = match usize::try_from(count) {
        Ok(room) if room != 0 => room,
        _ => return fail(Errno::EINVAL) as c_int,
    };
    // SAFETY: the program's array.
    let found = match unsafe { abi::array_mut(events, room) } {
        Ok(found) => found,
        Err(errno) => return fail(errno) as c_int,
    };
    let wait = thread::bounded(abi::milliseconds(timeout));
    let least = wait.map_or(-1, |wait| {
        c_int::try_from(wait.as_millis()).unwrap_or(timeout)
    });
    let args = [epfd, 0, count, least].map(|word| word as usize);
    let args = [args[0], events as usize, args[2], args[3], 0, 8];
    let result = answer(
        |process| process.epoll_wait(epfd, found, wait, None).map(length),
        // SAFETY: the program's own call.
        || unsafe { system(libc::SYS_epoll_pwait, args) },
    );
    thread::note_wait(epfd, usize::try_from(result).unwrap_or(0), wait);
    result as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let room = match usize::try_from(count) {
        Ok(room) if c_int::try_from(count).is_ok_and(|count| count <= super::limit()) => room,
        _ => return fail(Errno::EINVAL) as c_int,
    };
    // SAFETY: the program's array.
    let fds = match unsafe { abi::array_mut(fds, room) } {
        Ok(fds) => fds,
        Err(errno) => return fail(errno) as c_int,
    };
    let wait = thread::bounded(abi::milliseconds(timeout));
    let result = answer(
        |process| process.poll(fds, wait, None).map(length),
        without_stack,
    );
    thread::note_wait(-1, usize::try_from(result).unwrap_or(0), wait);
    result as c_int
}

/// Returns the words of a set that the call uses.
unsafe fn words<'a>(set: *mut fd_set, count: usize) -> Option<&'a mut [u64]> {
    if set.is_null() {
        return None;
    }
    // SAFETY: the program's set has at least `count` bits, in words of 64.
    Some(unsafe { core::slice::from_raw_parts_mut(set.cast(), count.div_ceil(64)) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let Ok(bits) = usize::try_from(count) else {
        return fail(Errno::EINVAL) as c_int;
    };
    if bits > libc::FD_SETSIZE {
        return fail(Errno::EINVAL) as c_int;
    }
    // SAFETY: null or the program's structure.
    let asked = match unsafe { abi::timeval(timeout) } {
        Ok(asked) => asked,
        Err(errno) => return fail(errno) as c_int,
    };
    // SAFETY: the program's sets.
    let [mut read, mut write, mut except] =
        [read, write, except].map(|set| unsafe { words(set, bits) });
    let wait = thread::bounded(asked);
    let mut left = wait;
    let result = answer(
        |process| {
            let (read, write) = (read.as_deref_mut(), write.as_deref_mut());
            let except = except.as_deref_mut();
            process
                .select(count, read, write, except, &mut left, None)
                .map(length)
        },
        without_stack,
    );
    thread::note_wait(-1, usize::try_from(result).unwrap_or(0), wait);
    // SAFETY: null or the program's structure.
    let place = unsafe { timeout.as_mut() };
    if let (Some(asked), Some(wait), Some(left), Some(place)) = (asked, wait, left, place) {
        let passed = wait.saturating_sub(left);
        let rest = asked.saturating_sub(passed);
        place.tv_sec = rest.as_secs().cast_signed();
        place.tv_usec = rest.subsec_micros().into();
    }
    result as c_int
}
