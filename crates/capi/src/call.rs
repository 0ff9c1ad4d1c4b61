//! One call of the program: its return value and `errno`.

use slipstack_abi::raw;
use slipstack_posix::{Divert, Errno, Outcome, Process};

use crate::{life, thread};

/// Asks the process; `kernel` makes the same call there, for a descriptor that is the kernel's.
#[inline(always)]
pub fn answer(
    mut ask: impl FnMut(&Process) -> Outcome<isize>,
    mut kernel: impl FnMut() -> isize,
) -> isize {
    let Some(process) = life::process() else {
        return kernel();
    };
    loop {
        match ask(process) {
            Ok(value) => return value,
            Err(Divert::Errno(errno)) => return fail(errno),
            // As in F-Stack there is no signal: a program of one thread would end by it.
            Err(Divert::Stopped) => return fail(Errno::EINTR),
            Err(Divert::Pipe) => return fail(Errno::EPIPE),
            Err(Divert::Kernel) => return kernel(),
            Err(Divert::KernelRead | Divert::KernelLent) => {
                let result = kernel();
                process.on_lent_call();
                return result;
            }
            Err(Divert::KernelFirst) => {
                let result = kernel();
                if result != -1 || raw::errno() != libc::EAGAIN {
                    return result;
                }
            }
        }
    }
}

/// As [`answer`], of a call that moves bytes or connections.
#[inline(always)]
pub fn answer_work(
    ask: impl FnMut(&Process) -> Outcome<isize>,
    kernel: impl FnMut() -> isize,
) -> isize {
    let result = answer(ask, kernel);
    if result >= 0 {
        thread::note_work();
    }
    result
}

/// A failed call.
pub fn fail(errno: Errno) -> isize {
    raw::fail(errno) as isize
}

/// Before `ff_init` there is no stack.
pub fn without_stack() -> isize {
    fail(Errno::ENETDOWN)
}

pub fn length(len: usize) -> isize {
    isize::try_from(len).unwrap_or(isize::MAX)
}
