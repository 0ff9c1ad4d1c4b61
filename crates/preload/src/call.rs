//! A call of the program on one of the stack's descriptors: guard, result, errno.

use core::ffi::c_int;

use slipstack_posix::{BorrowedEnd, Divert, Errno, Interruptions, Outcome, Process};

use crate::thread::InCall;
use crate::{cancel, process, raw, signals, thread};

/// Whether a call on `fd` goes to the stack's side.
#[inline(always)]
pub fn is_ours(fd: i32) -> bool {
    process::is_ours(fd)
}

/// Whether this call comes from our own code, which wants libc as it is.
#[inline]
pub fn is_from_us() -> bool {
    thread::current().is_in_call()
}

/// Which calls a handler with SA_RESTART does not end: those that wait for one socket, as
/// long as no timeout is set on it (signal(7)).
#[derive(Clone, Copy)]
pub enum Restart {
    Never,
    Receiving(i32),
    Sending(i32),
}

/// Runs `ask` on the process and returns its result to the program; `libc` makes the same call in
/// libc, if the outcome says so.
pub fn answer(
    restart: Restart,
    ask: impl FnMut(&Process) -> Outcome<isize>,
    libc: impl FnMut() -> isize,
) -> isize {
    answer_to::<true>(restart, ask, libc)
}

/// As [`answer`], for a call that libc does not cancel.
pub fn answer_uncancelled(
    restart: Restart,
    ask: impl FnMut(&Process) -> Outcome<isize>,
    libc: impl FnMut() -> isize,
) -> isize {
    answer_to::<false>(restart, ask, libc)
}

#[inline(always)]
fn answer_to<const IS_POINT: bool>(
    restart: Restart,
    mut ask: impl FnMut(&Process) -> Outcome<isize>,
    mut libc: impl FnMut() -> isize,
) -> isize {
    let Some(process) = process::current() else {
        return libc();
    };
    loop {
        let before = thread::current().handlers_run();
        let Some(outcome) = inside_unless_asked(process, &mut ask) else {
            return answer_among_cancellations::<IS_POINT>(process, restart, ask, libc);
        };
        if let Some(result) = settle(process, restart, before, outcome, &mut libc) {
            return result;
        }
    }
}

/// As [`answer_to`], in a program that has cancelled a thread. Our own code meets calls of libc's
/// that would end this one in the midst of it.
#[cold]
#[inline(never)]
fn answer_among_cancellations<const IS_POINT: bool>(
    process: &'static Process,
    restart: Restart,
    mut ask: impl FnMut(&Process) -> Outcome<isize>,
    mut libc: impl FnMut() -> isize,
) -> isize {
    loop {
        cancel::edge(IS_POINT);
        let before = thread::current().handlers_run();
        let outcome = cancel::undisturbed(|| inside(process, &mut ask));
        if let Some(result) = settle(process, restart, before, outcome, &mut libc) {
            return result;
        }
    }
}

/// The result of a call; `None`: it is made again.
#[inline(always)]
fn settle(
    process: &Process,
    restart: Restart,
    before: Interruptions,
    outcome: Outcome<isize>,
    libc: &mut impl FnMut() -> isize,
) -> Option<isize> {
    match outcome {
        Ok(value) => Some(value),
        Err(Divert::Errno(Errno::EINTR)) if goes_on(process, restart, before) => None,
        Err(Divert::Errno(errno)) => Some(raw::fail(errno) as isize),
        Err(Divert::Stopped) => Some(raw::fail(Errno::EINTR) as isize),
        Err(Divert::Pipe) => {
            signals::raise_pipe();
            Some(raw::fail(Errno::EPIPE) as isize)
        }
        Err(Divert::Kernel) => Some(libc()),
        Err(Divert::KernelFirst) => {
            let result = libc();
            (result != -1 || raw::errno() != libc::EAGAIN).then_some(result)
        }
        Err(Divert::KernelLent) => Some(lent_call(process, libc)),
        Err(Divert::KernelRead) => match (lent_call(process, libc), restart) {
            (0, Restart::Receiving(fd)) => end_of_borrowed(process, fd),
            (-1, Restart::Receiving(fd)) if raw::errno() == libc::ECONNRESET => {
                reset_of_borrowed(process, fd)
            }
            (-1, Restart::Receiving(fd)) if [libc::EAGAIN, libc::EINTR].contains(&raw::errno()) => {
                on_vain_read(process, fd);
                Some(-1)
            }
            (count @ 1.., Restart::Receiving(fd)) => {
                on_borrowed_read(process, fd);
                Some(count)
            }
            (result, _) => Some(result),
        },
    }
}

/// Makes a call in libc on a connection of another process.
#[cold]
fn lent_call(process: &Process, libc: &mut impl FnMut() -> isize) -> isize {
    let result = libc();
    let errno = raw::errno();
    {
        let _in_call = InCall::enter();
        process.on_lent_call();
    }
    raw::set_errno(errno);
    result
}

#[cold]
fn on_borrowed_read(process: &Process, fd: c_int) {
    let _in_call = InCall::enter();
    process.on_borrowed_read(fd);
}

#[cold]
fn on_vain_read(process: &Process, fd: c_int) {
    let errno = raw::errno();
    {
        let _in_call = InCall::enter();
        process.on_vain_read(fd, errno == libc::EINTR);
    }
    raw::set_errno(errno);
}

#[cold]
fn end_of_borrowed(process: &Process, fd: i32) -> Option<isize> {
    let end = {
        cancel::undisturbed(|| {
            let _in_call = InCall::enter();
            process.end_of_borrowed(fd)
        })
    };
    match end {
        BorrowedEnd::End => Some(0),
        BorrowedEnd::Error(errno) => Some(raw::fail(errno) as isize),
        BorrowedEnd::Here => None,
    }
}

#[cold]
fn reset_of_borrowed(process: &Process, fd: i32) -> Option<isize> {
    let is_here = {
        cancel::undisturbed(|| {
            let _in_call = InCall::enter();
            process.reset_of_borrowed(fd)
        })
    };
    (!is_here).then(|| raw::fail(Errno::ECONNRESET) as isize)
}

/// Returns whether an interrupted call is restarted: no handler has run (another thread was
/// cancelled, or the signal is ignored by now), or only handlers with SA_RESTART. In a program that
/// has rung an alarm a wait for events that no handler has ended was ended by that.
#[cold]
fn goes_on(process: &Process, restart: Restart, before: Interruptions) -> bool {
    let now = thread::current().handlers_run();
    if now == before && !thread::has_alarm() {
        return true;
    }
    if now.without_restart != before.without_restart {
        return false;
    }
    let (fd, timeout) = match restart {
        Restart::Never => return false,
        Restart::Receiving(fd) => (fd, libc::SO_RCVTIMEO),
        Restart::Sending(fd) => (fd, libc::SO_SNDTIMEO),
    };
    let _in_call = InCall::enter();
    let mut value = [0; 16];
    let result = process.getsockopt(fd, libc::SOL_SOCKET, timeout, &mut value);
    result.is_ok() && value == [0; 16]
}

/// As [`inside`]; `None` in a program that has requested a cancellation. Checked inside the guard:
/// a thread that cancels waits for threads that entered before.
#[inline]
fn inside_unless_asked(
    process: &'static Process,
    ask: &mut impl FnMut(&Process) -> Outcome<isize>,
) -> Option<Outcome<isize>> {
    let _in_call = InCall::enter();
    (!cancel::is_asked()).then(|| asked_of(process, ask))
}

#[inline]
fn inside(
    process: &'static Process,
    ask: &mut impl FnMut(&Process) -> Outcome<isize>,
) -> Outcome<isize> {
    let _in_call = InCall::enter();
    asked_of(process, ask)
}

#[inline]
fn asked_of(
    process: &'static Process,
    ask: &mut impl FnMut(&Process) -> Outcome<isize>,
) -> Outcome<isize> {
    let outcome = ask(process);
    if !signals::is_armed() && process.owns_sockets() {
        signals::arm();
    }
    outcome
}

/// Most bytes that one call discards.
const DISCARDED_MAX: usize = 16 << 20;

/// A place for `len` bytes that the program wants discarded. `None`: it needs one of its own.
#[cold]
pub fn place_to_discard(fd: c_int, len: usize, flags: c_int) -> Option<Vec<u8>> {
    let is_meant = flags & libc::MSG_TRUNC != 0
        && process::current().is_some_and(|process| process.is_stream(fd));
    is_meant.then(|| vec![0; len.min(DISCARDED_MAX)])
}

/// A length as the result of a call.
pub fn length(len: usize) -> isize {
    isize::try_from(len).unwrap_or(isize::MAX)
}
