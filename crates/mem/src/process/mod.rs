//! Forking, and dropping inherited state, for processes that outlive their starter.

mod sys;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Resource, getrlimit, pidfd_open, test_kill_process};

use crate::raw::Mapping;

/// Which side of a fork this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The child's process number.
    Parent(u32),
    Child,
}

/// Forks a process that has one thread.
///
/// # Errors
/// The kernel's refusal, or more than one thread: the child of such a process could not even
/// allocate.
pub fn fork() -> io::Result<Forked> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other(
            "a process with several threads cannot fork here",
        ));
    }
    sys::fork()
}

/// Returns whether a process is known to have ended, also if its parent has not waited for it.
#[must_use]
pub fn has_ended(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
        return test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
    };
    let mut fds = [PollFd::new(&process, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|count| count > 0)
}

/// Closes every descriptor but the standard three.
///
/// To be called first thing in a program, before anything in it owns a descriptor of that range.
///
/// # Errors
/// The kernel's refusal.
pub fn close_inherited() -> io::Result<()> {
    sys::close_from(3)
}

/// Resets a real-time or idle scheduling class and a niceness.
///
/// # Errors
/// The kernel's refusal: not every process may lower its niceness.
pub fn take_ordinary_priority() -> io::Result<()> {
    sys::schedule_ordinarily()?;
    Ok(rustix::process::setpriority_process(None, 0)?)
}

/// A file that may not grow (RLIMIT_FSIZE) is an error from now on, not the end of the process.
pub fn survive_file_limit() {
    sys::ignore_file_limit();
}

/// Explains an error to people, with the limit to raise if there is one.
#[must_use]
pub fn explained(error: &io::Error) -> String {
    if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) {
        return open_file_limit();
    }
    error.to_string()
}

/// Returns the sentence about a limit of open files that may be too low.
#[must_use]
pub fn open_file_limit() -> String {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    format!(
        "the limit of open files is too low: it is {limit}; raise it (ulimit -n 1024, LimitNOFILE= \
         of systemd)"
    )
}

/// Number of bytes that this process may map in all (RLIMIT_AS), if that is limited.
#[must_use]
pub fn address_limit() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Returns whether this process may map so many bytes more.
#[must_use]
pub fn has_addresses(len: usize) -> bool {
    let no_memory = rustix::io::Errno::NOMEM.raw_os_error();
    !Mapping::reserved(len).is_err_and(|error| error.raw_os_error() == Some(no_memory))
}

/// Makes each panic end the process (SIGABRT) after its message, unless `may_unwind` returns that
/// this thread will catch it. Nothing unwinds into frames that are not Rust's.
pub fn abort_at_panics(may_unwind: fn() -> bool) {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        if !may_unwind() {
            std::process::abort();
        }
    }));
}

/// Blocks the signals that request the end of a process, SIGTERM, SIGINT and (unless it is ignored,
/// as under nohup) SIGHUP, and returns a descriptor that becomes readable when one arrives.
///
/// # Errors
/// The kernel's refusal.
pub fn end_signals() -> io::Result<OwnedFd> {
    sys::end_signals()
}

/// As [`end_signals`], for a process in which [`hang_up`] means something else.
///
/// # Errors
/// The kernel's refusal.
pub fn term_signals() -> io::Result<OwnedFd> {
    sys::term_signals()
}

/// Blocks SIGHUP, and gives a descriptor that becomes readable when it arrives.
///
/// # Errors
/// The kernel's refusal.
pub fn hang_up() -> io::Result<OwnedFd> {
    sys::hang_up()
}
