//! The system calls of this folder.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use super::Forked;

pub(super) fn fork() -> io::Result<Forked> {
    // SAFETY: the caller has made sure that this is the only thread, so no lock is held by another.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid as u32)),
    }
}

pub(super) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: touches no memory; the caller promises that nothing in this process owns these
    // descriptors.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

pub(super) fn schedule_ordinarily() -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters are read during the call alone; 0 is this process.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const priority) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

pub(super) fn ignore_file_limit() {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

pub(super) fn end_signals() -> io::Result<OwnedFd> {
    let hang_up = (!is_ignored(libc::SIGHUP)).then_some(libc::SIGHUP);
    held([libc::SIGTERM, libc::SIGINT].into_iter().chain(hang_up))
}

pub(super) fn term_signals() -> io::Result<OwnedFd> {
    held([libc::SIGTERM, libc::SIGINT].into_iter())
}

pub(super) fn hang_up() -> io::Result<OwnedFd> {
    held([libc::SIGHUP].into_iter())
}

/// Blocks these signals; the descriptor becomes readable when one arrives.
fn held(signals: impl Iterator<Item = i32>) -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: initialises the set it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: the set has been initialised, the signal exists.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: the set is valid; the former mask is not requested.
    let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut()) };
    if blocked != 0 {
        return Err(io::Error::from_raw_os_error(blocked));
    }
    // SAFETY: the set is valid; −1 requests a new descriptor.
    let fd = unsafe { libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Blocked, even an ignored signal arrives.
fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a query; the answer is written to the action.
    let asked = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zero means that the action has been written.
    asked == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}
