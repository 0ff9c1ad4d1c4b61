//! One call of the program on a descriptor of ours: guard, answer, errno.

use slipstack_posix::{Divert, Errno, Outcome, Process};

use crate::thread::InCall;
use crate::{cancel, life, raw, signals, thread};

/// Whether a call on `fd` goes to the stack's side.
#[inline(always)]
pub fn is_ours(fd: i32) -> bool {
    life::is_ours(fd)
}

/// Whether this call comes from our own code, which wants libc as it is.
#[inline]
pub fn is_from_us() -> bool {
    thread::current().is_in_call()
}

/// Runs `ask` on the process and gives the program its answer; `libc` makes the same
/// call in libc, which the answer may ask for.
pub fn answer(
    mut ask: impl FnMut(&Process) -> Outcome<isize>,
    mut libc: impl FnMut() -> isize,
) -> isize {
    let Some(process) = life::process() else {
        return libc();
    };
    loop {
        cancel::point();
        match inside(process, &mut ask) {
            Ok(value) => return value,
            // The interruption may have been another thread's cancellation.
            Err(Divert::Errno(Errno::EINTR)) if cancel::is_suspected() => {}
            Err(Divert::Errno(errno)) => return raw::fail(errno) as isize,
            Err(Divert::Pipe) => {
                signals::raise_pipe();
                return raw::fail(Errno::EPIPE) as isize;
            }
            Err(Divert::Kernel) => return libc(),
            Err(Divert::KernelFirst) => {
                let result = libc();
                if result != -1 || raw::errno() != libc::EAGAIN {
                    return result;
                }
            }
        }
    }
}

#[inline]
fn inside(
    process: &'static Process,
    ask: &mut impl FnMut(&Process) -> Outcome<isize>,
) -> Outcome<isize> {
    let _in_call = InCall::enter();
    let outcome = ask(process);
    if !signals::is_armed() && process.owns_sockets() {
        signals::arm();
    }
    outcome
}

/// A length as the result of a call.
pub fn length(len: usize) -> isize {
    isize::try_from(len).unwrap_or(isize::MAX)
}
