//! Interposed waits, with C's signatures.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::c_int;
use std::time::Duration;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use slipstack_posix::{Divert, Errno, OURS_USUALLY_FROM, Outcome};

use crate::abi;
use crate::call::{Restart, answer, answer_uncancelled, is_ours, length};
use crate::next;
use crate::process;
use crate::raw::{self, fail};
use crate::signals;
use crate::thread::{self, InCall};

/// do_sys_poll(): more entries than possible descriptors are EINVAL, which libc returns.
fn is_too_many(count: nfds_t) -> bool {
    /// A soft limit that programs are started with.
    const FEW: nfds_t = 1024;
    if count <= FEW {
        return false;
    }
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a structure of ours.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    result < 0 || count > limit.rlim_cur
}

/// Whether one of the program's `fds` is ours.
///
/// # Safety
/// As `poll`.
pub unsafe fn concerns_us(fds: *const pollfd, count: nfds_t) -> bool {
    if abi::is_out_of_reach(fds) || process::current().is_none() || is_too_many(count) {
        return false;
    }
    // SAFETY: the program's array.
    let fds = unsafe { core::slice::from_raw_parts(fds, count as usize) };
    fds.iter().any(|poll| is_ours(poll.fd))
}

/// The effect of a signal on a wait that finds nothing and does not sleep.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pending {
    /// do_poll(), core_sys_select(): the descriptors are checked all the same.
    Interrupts,
    /// ep_poll(): not any more.
    Waits,
}

/// Checks with the signal mask of the call. Signals that arrive meanwhile are treated by it;
/// handlers that only this mask admits run if the call is interrupted
/// (restore_saved_sigmask_unless()).
fn under_mask(
    mask: Option<&sigset_t>,
    pending: Pending,
    ask: impl FnOnce() -> Outcome<isize>,
) -> Outcome<isize> {
    let Some(mask) = mask.map(signals::mask_of) else {
        return ask();
    };
    let thread = thread::current();
    thread.set_call_mask(mask);
    let mut outcome = ask();
    if pending == Pending::Interrupts && matches!(outcome, Ok(0)) && raw::pending() & !mask != 0 {
        outcome = Err(Errno::EINTR.into());
    }
    if !matches!(outcome, Err(Divert::Errno(Errno::EINTR))) {
        thread.drop_call_mask();
    }
    outcome
}

unsafe fn poll_ours(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: Option<Duration>,
    mask: *const sigset_t,
    libc: impl Fn() -> c_int,
) -> c_int {
    // SAFETY: the program's array.
    let fds = match unsafe { abi::array_mut(fds, count as usize) } {
        Ok(fds) => fds,
        Err(errno) => return fail(errno),
    };
    // SAFETY: null or a signal set of the program's.
    let mask = match unsafe { abi::optional(mask) } {
        Ok(mask) => mask,
        Err(errno) => return fail(errno),
    };
    answer(
        Restart::Never,
        |process| {
            let poll = || process.poll(fds, timeout, mask).map(length);
            under_mask(mask, Pending::Interrupts, poll)
        },
        || libc() as isize,
    ) as c_int
}

pub unsafe fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::poll.get())(fds, count, timeout) };
    // SAFETY: the program's array.
    if !unsafe { concerns_us(fds, count) } {
        return libc();
    }
    let wait = abi::milliseconds(timeout);
    // SAFETY: the program's array.
    unsafe { poll_ours(fds, count, wait, core::ptr::null(), libc) }
}

pub unsafe fn poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        // SAFETY: the program's own call; libc ends the program.
        return unsafe { (next::__poll_chk.get())(fds, count, timeout, room) };
    }
    // SAFETY: the program's own call.
    unsafe { poll(fds, count, timeout) }
}

pub unsafe fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::ppoll.get())(fds, count, timeout, mask) };
    // SAFETY: the program's array.
    if !unsafe { concerns_us(fds, count) } {
        return libc();
    }
    // SAFETY: null or the program's structure.
    match unsafe { abi::timespec(timeout) } {
        // SAFETY: the program's array and signal set.
        Ok(wait) => unsafe { poll_ours(fds, count, wait, mask, libc) },
        Err(errno) => fail(errno),
    }
}

pub unsafe fn ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        // SAFETY: the program's own call; libc ends the program.
        return unsafe { (next::__ppoll_chk.get())(fds, count, timeout, mask, room) };
    }
    // SAFETY: the program's own call.
    unsafe { ppoll(fds, count, timeout, mask) }
}

/// From this number on a descriptor that is not known as ours is the program's.
const BEHIND_OURS: c_int = OURS_USUALLY_FROM + 128;

/// FD_SETSIZE.
const BITS_OF_A_SET: c_int = 1024;

/// core_sys_select(): no more bits than the table of descriptors has places, whatever the program's
/// count. Our descriptors make that table larger than the program knows, and its sets may have only
/// the bits that its own descriptors need.
fn within_table(count: c_int) -> c_int {
    if count <= BITS_OF_A_SET {
        return count;
    }
    let Some(process) = process::current() else {
        return count;
    };
    let _in_call = InCall::enter();
    // SAFETY: takes no pointer.
    let is_open = |fd: c_int| unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1;
    if is_open(count - 1) && !process.is_private(count - 1) {
        return count;
    }
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else {
        return count;
    };
    let numbers = open
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<c_int> = numbers.collect();
    numbers.sort_unstable();
    // Behind ours there are only those for which there was no room before them. Between those of
    // ours some are in no list for a moment.
    let is_counted = |fd| fd >= BEHIND_OURS || process.is_ours(fd);
    let is_programs =
        |fd: &&c_int| **fd < OURS_USUALLY_FROM || is_counted(**fd) && !process.is_private(**fd);
    // The list has the directory's own descriptor, which is closed by now.
    let highest = numbers
        .iter()
        .rev()
        .find(|fd| is_programs(fd) && is_open(**fd));
    match highest {
        // The program's descriptors reach up to ours: there is no room for more.
        Some(fd) if *fd + 1 == OURS_USUALLY_FROM => count,
        highest => count.min(places(highest.copied().unwrap_or(0))),
    }
}

/// Number of places of a table in which `highest` is the highest number (alloc_fdtable()).
fn places(highest: c_int) -> c_int {
    const PLACES_MIN: u32 = 256;
    let places = (highest.cast_unsigned() + 1).next_power_of_two();
    places.max(PLACES_MIN).cast_signed()
}

/// Returns the words of a set that the call uses.
unsafe fn words<'a>(set: *mut fd_set, count: c_int) -> Option<&'a mut [u64]> {
    if abi::is_out_of_reach(set) {
        return None;
    }
    let len = usize::try_from(count).unwrap_or(0).div_ceil(64);
    // SAFETY: the program's set has at least `count` bits, in words of 64.
    Some(unsafe { core::slice::from_raw_parts_mut(set.cast(), len) })
}

/// Whether a descriptor of ours is in one of the program's sets.
///
/// # Safety
/// As `select`.
pub unsafe fn names_ours(count: c_int, sets: [*mut fd_set; 3]) -> bool {
    let count = within_table(count);
    // SAFETY: the program's sets.
    let [read, write, except] = sets.map(|set| unsafe { words(set, count) });
    names_us(count, [&read, &write, &except])
}

fn names_us(count: c_int, sets: [&Option<&mut [u64]>; 3]) -> bool {
    process::current().is_some()
        && sets.into_iter().flatten().any(|set| {
            set.iter().enumerate().any(|(index, &word)| {
                let mut rest = word;
                while rest != 0 {
                    let fd = (index * 64) as c_int + rest.trailing_zeros().cast_signed();
                    if fd < count && is_ours(fd) {
                        return true;
                    }
                    rest &= rest - 1;
                }
                false
            })
        })
}

/// The three sets of a `select`.
struct Sets {
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
}

/// Returns the found descriptors and the remaining time, if the call is ours; else libc's result.
unsafe fn select_ours(
    sets: &Sets,
    timeout: Result<Option<Duration>, Errno>,
    mask: *const sigset_t,
    libc: impl Fn() -> c_int,
) -> (c_int, Option<Duration>) {
    let count = sets.count;
    let is_bad = |set: *mut fd_set| !set.is_null() && abi::is_out_of_reach(set);
    if [sets.read, sets.write, sets.except].into_iter().any(is_bad) {
        return (fail(Errno::EFAULT), None);
    }
    // SAFETY: the program's sets.
    let mut read = unsafe { words(sets.read, count) };
    // SAFETY: the program's sets.
    let mut write = unsafe { words(sets.write, count) };
    // SAFETY: the program's sets.
    let mut except = unsafe { words(sets.except, count) };
    if !names_us(count, [&read, &write, &except]) {
        return (libc(), None);
    }
    let mut left = match timeout {
        Ok(timeout) => timeout,
        Err(errno) => return (fail(errno), None),
    };
    // SAFETY: null or a signal set of the program's.
    let mask = match unsafe { abi::optional(mask) } {
        Ok(mask) => mask,
        Err(errno) => return (fail(errno), None),
    };
    let mut is_ours = true;
    let result = answer(
        Restart::Never,
        |process| {
            let (read, write) = (read.as_deref_mut(), write.as_deref_mut());
            let except = except.as_deref_mut();
            under_mask(mask, Pending::Interrupts, || {
                process
                    .select(count, read, write, except, &mut left, mask)
                    .map(length)
            })
        },
        || {
            is_ours = false;
            libc() as isize
        },
    );
    (result as c_int, left.filter(|_| is_ours))
}

pub unsafe fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let count = within_table(count);
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::select.get())(count, read, write, except, timeout) };
    // SAFETY: null or the program's structure.
    let wait = unsafe { abi::timeval(timeout) };
    let sets = Sets {
        count,
        read,
        write,
        except,
    };
    // SAFETY: the program's sets.
    let (result, left) = unsafe { select_ours(&sets, wait, core::ptr::null(), libc) };
    // SAFETY: null or the program's structure.
    if let (Some(left), Some(timeout)) = (left, unsafe { timeout.as_mut() }) {
        timeout.tv_sec = left.as_secs().cast_signed();
        timeout.tv_usec = left.subsec_micros().into();
    }
    result
}

pub unsafe fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let count = within_table(count);
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::pselect.get())(count, read, write, except, timeout, mask) };
    // SAFETY: null or the program's structure.
    let wait = unsafe { abi::timespec(timeout) };
    let sets = Sets {
        count,
        read,
        write,
        except,
    };
    // SAFETY: the program's sets.
    unsafe { select_ours(&sets, wait, mask, libc) }.0
}

pub unsafe fn epoll_create(size: c_int) -> c_int {
    if size <= 0 {
        return fail(Errno::EINVAL);
    }
    // SAFETY: the program's own call.
    unsafe { epoll_create1(0) }
}

pub unsafe fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::epoll_create1.get())(flags) };
    if process::activate().is_none() {
        return libc();
    }
    answer_uncancelled(
        Restart::Never,
        |process| process.epoll_create1(flags).map(|fd| fd as isize),
        || libc() as isize,
    ) as c_int
}

pub unsafe fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    let wanted = match op {
        libc::EPOLL_CTL_DEL => None,
        // SAFETY: the program's structure.
        _ => match unsafe { abi::object(event) } {
            Ok(event) => Some(*event),
            Err(errno) => return fail(errno),
        },
    };
    answer_uncancelled(
        Restart::Never,
        |process| process.epoll_ctl(epfd, op, fd, wanted).map(|()| 0),
        // SAFETY: the program's own call.
        || unsafe { (next::epoll_ctl.get())(epfd, op, fd, event) as isize },
    ) as c_int
}

unsafe fn wait_ours(
    epfd: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: Option<Duration>,
    mask: *const sigset_t,
    libc: impl Fn() -> c_int,
) -> c_int {
    let count = match usize::try_from(count) {
        Ok(count) if count != 0 => count,
        _ => return fail(Errno::EINVAL),
    };
    // SAFETY: the program's array.
    let events = match unsafe { abi::array_mut(events, count) } {
        Ok(events) => events,
        Err(errno) => return fail(errno),
    };
    // SAFETY: null or a signal set of the program's.
    let mask = match unsafe { abi::optional(mask) } {
        Ok(mask) => mask,
        Err(errno) => return fail(errno),
    };
    answer(
        Restart::Never,
        |process| {
            let wait = || process.epoll_wait(epfd, events, timeout, mask).map(length);
            under_mask(mask, Pending::Waits, wait)
        },
        || libc() as isize,
    ) as c_int
}

pub unsafe fn epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    let wait = abi::milliseconds(timeout);
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::epoll_wait.get())(epfd, events, count, timeout) };
    // SAFETY: the program's array.
    unsafe { wait_ours(epfd, events, count, wait, core::ptr::null(), libc) }
}

pub unsafe fn epoll_pwait(
    epfd: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    let wait = abi::milliseconds(timeout);
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::epoll_pwait.get())(epfd, events, count, timeout, mask) };
    // SAFETY: the program's array.
    unsafe { wait_ours(epfd, events, count, wait, mask, libc) }
}

pub unsafe fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::epoll_pwait2.get())(epfd, events, count, timeout, mask) };
    // SAFETY: null or the program's structure.
    match unsafe { abi::timespec(timeout) } {
        // SAFETY: the program's array.
        Ok(wait) => unsafe { wait_ours(epfd, events, count, wait, mask, libc) },
        Err(errno) => fail(errno),
    }
}
