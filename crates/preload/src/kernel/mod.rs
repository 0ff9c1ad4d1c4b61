//! Kernel access of the POSIX layer, through libc and our signal handling.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use slipstack_abi::kernel as abi;
use slipstack_posix::{Errno, Interruptions, Kernel, Owner};

use crate::cancel;
use crate::cores;
use crate::raw;
use crate::signals;
use crate::thread::{self, InCall, Thread};

/// The file that lines go to instead of standard error (`--log-file`).
static LOG_FILE: OnceLock<CString> = OnceLock::new();

/// Sends the lines of [`say`] to a file from now on.
pub fn log_to(file: &Path) {
    if let Ok(path) = CString::new(file.as_os_str().as_bytes()) {
        let _ = LOG_FILE.set(path);
    }
}

/// Writes a line for the user who runs the program: to the log file, or if that cannot be written,
/// to standard error.
pub fn say(line: &str) {
    let line = format!("slipstack: {line}\n");
    let is_filed = LOG_FILE
        .get()
        .is_some_and(|path| raw::append(path, line.as_bytes()));
    if !is_filed {
        raw::write_stderr(line.as_bytes());
    }
}

/// libc as it is behind us.
pub struct Libc;

impl Kernel for Libc {
    fn ppoll(
        &self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
        mask: Option<&libc::sigset_t>,
    ) -> Result<usize, Errno> {
        sleep(fds, (abi::ppoll, timeout), mask)
    }

    fn ppoll_until_stopped(
        &self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
        mask: Option<&libc::sigset_t>,
    ) -> Result<usize, Errno> {
        sleep(fds, (abi::ppoll_until_stopped, timeout), mask)
    }

    fn signal_point(&self, _mask: Option<&libc::sigset_t>) -> Interruptions {
        thread::current().interruptions()
    }

    fn interruptions(&self) -> Interruptions {
        thread::current().interruptions()
    }

    fn thread(&self) -> usize {
        core::ptr::from_ref(thread::current()).addr()
    }

    fn take_core(&self, core: usize) {
        cores::take(core);
    }

    fn begin_call(&self) {
        InCall::begin_long();
    }

    fn end_call(&self) {
        InCall::end_long();
    }

    fn signal_io(&self, owner: Owner, signal: i32, fd: i32, code: i32) {
        signals::send_io(owner, signal, fd, code);
    }

    fn signal_owner(&self, owner: Owner, signal: i32) {
        raw::signal(owner, signal);
    }

    fn setsockopt(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        abi::setsockopt(fd, level, name, value)
    }

    fn getsockopt(&self, fd: i32, level: i32, name: i32, value: &mut [u8]) -> Result<usize, Errno> {
        abi::getsockopt(fd, level, name, value)
    }

    fn close_range(&self, first: u32, last: u32, flags: u32) -> Result<(), Errno> {
        abi::close_range(first, last, flags)
    }

    fn bpf_info(&self, fd: i32) -> Option<[u32; 4]> {
        abi::bpf_info(fd).ok()
    }

    fn warn(&self, line: &str) {
        say(line);
    }
}

/// The system call of a sleep.
type Call = fn(&mut [libc::pollfd], Option<Duration>, Option<u64>) -> Result<usize, Errno>;

fn sleep(
    fds: &mut [libc::pollfd],
    how: (Call, Option<Duration>),
    mask: Option<&libc::sigset_t>,
) -> Result<usize, Errno> {
    let thread = thread::current();
    let result = match (fds.first(), mask) {
        (Some(doorbell), None) if doorbell.fd >= 0 => sleep_by_doorbell(thread, fds, how),
        _ => sleep_under_mask(thread, fds, how, mask),
    };
    if cancel::is_suspected() {
        thread.interrupt();
    }
    result
}

/// Sleeps without changing the signal mask: a handler that is deferred once the doorbell is known
/// rings it, so none that arrives just before the sleep is missed. Handlers deferred earlier, and
/// cancellations once the program has requested one, are let in only by a changed mask.
fn sleep_by_doorbell(
    thread: &Thread,
    fds: &mut [libc::pollfd],
    (call, timeout): (Call, Option<Duration>),
) -> Result<usize, Errno> {
    thread.fall_asleep(fds[0].fd);
    let result = match thread.is_deferred() || cancel::is_asked() {
        true => None,
        false => Some(call(fds, timeout, None)),
    };
    thread.wake_up();
    result.unwrap_or_else(|| sleep_under_mask(thread, fds, (call, timeout), None))
}

/// Sleeps with all signals blocked beforehand: no handler can run between the last check and the
/// sleep, because the kernel sets the mask and sleeps in one step. A handler of a signal that
/// arrives then is deferred like any other; it ends the sleep.
fn sleep_under_mask(
    thread: &Thread,
    fds: &mut [libc::pollfd],
    (call, timeout): (Call, Option<Duration>),
    mask: Option<&libc::sigset_t>,
) -> Result<usize, Errno> {
    let current = raw::swap_mask(raw::BLOCK_ALL);
    let before = thread.interruptions();
    let was_deferred = thread.is_deferred();
    thread.defer(current);
    let admitting = mask.map_or(thread.saved_mask(), signals::mask_of);
    let result = if cancel::is_suspected() {
        Err(Errno::EINTR)
    } else if thread.has_kept_beside(admitting) {
        // The signal is not pending in the kernel, so nothing there would end the sleep.
        thread.interrupt();
        Err(Errno::EINTR)
    } else {
        call(fds, timeout, Some(admitting))
    };
    if !was_deferred && thread.interruptions() == before {
        thread.undefer();
        raw::swap_mask(current);
    }
    result
}

#[cfg(test)]
mod tests {
    use slipstack_posix::Kernel;

    use super::Libc;
    use crate::call::is_from_us;

    #[test]
    fn a_helper_thread_can_be_marked_as_inside_a_call() {
        let thread = std::thread::spawn(|| {
            let mut answers = vec![is_from_us()];
            Libc.begin_call();
            answers.push(is_from_us());
            Libc.end_call();
            answers.push(is_from_us());
            answers
        });
        assert_eq!(thread.join().unwrap(), [false, true, false]);
    }
}
