//! Forks: every lock of ours is held for their duration.

use slipstack_posix::{Process, await_begun_threads};

use super::last::watch_this_thread;
use super::{BEGINNING, current, end};
use crate::thread::InCall;
use crate::{cores, heap, namespace, signals};

/// Prepares for any fork: every lock of ours is held until it is over. A fork from inside our own
/// call starts a helper, which leaves the program's sockets alone.
pub extern "C" fn prepare() {
    cores::leave();
    let is_helper = InCall::begin_long();
    if !is_helper {
        BEGINNING.take();
        if let Some(process) = current() {
            process.fork_prepare();
        }
        signals::hold();
    }
    heap::hold();
}

pub extern "C" fn parent() {
    let lending = over(Process::fork_parent).flatten();
    cores::come_back();
    if let Some((process, lending)) = current().zip(lending) {
        // A handler, as that of SIGCHLD, may fork: not while this takes locks.
        let _in_call = InCall::enter();
        process.lend(lending);
    }
}

pub extern "C" fn child() {
    cores::forget();
    namespace::after_fork_child();
    if !InCall::is_nested() {
        watch_this_thread();
    }
    over(|process| {
        // A child's end is not its parent's: the state of ending begins again.
        end::begin_again();
        process.fork_child();
    });
}

fn over<T>(go_on: impl FnOnce(&Process) -> T) -> Option<T> {
    heap::release();
    let mut result = None;
    if !InCall::is_nested() {
        signals::release();
        BEGINNING.release();
        result = current().map(go_on);
    }
    InCall::end_long();
    result
}

/// Makes a fork for which libc runs no handlers.
pub fn forked(fork: impl FnOnce() -> libc::pid_t) -> libc::pid_t {
    prepare();
    // None is started from now on.
    await_begun_threads();
    let pid = fork();
    if pid == 0 {
        child();
    } else {
        parent();
    }
    pid
}
