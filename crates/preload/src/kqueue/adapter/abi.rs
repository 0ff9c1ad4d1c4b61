//! `ff_adapter_init` and related functions, declared as in F-Stack's header.

use core::ffi::c_int;

use slipstack_posix::{Errno, Process};

use crate::kernel;
use crate::raw::fail;
use crate::thread::{self, InCall};
use crate::{call, process};

/// Attaches the program to its engine now instead of with its first socket.
#[unsafe(no_mangle)]
pub extern "C" fn ff_adapter_init() -> c_int {
    let Some(process) = process::activate() else {
        return fail(Errno::ENETDOWN);
    };
    let attached = {
        let _in_call = InCall::enter();
        process.attach_now()
    };
    match attached {
        Ok(_) => 0,
        Err(sentence) => {
            kernel::say(&sentence);
            fail(Errno::ENETDOWN)
        }
    }
}

/// As [`ff_adapter_init`], for a forked child, which has its parent's sockets in any case.
#[unsafe(no_mangle)]
pub extern "C" fn ff_adapter_child_process_init() -> c_int {
    ff_adapter_init()
}

/// Ends the waits for events of all threads with EINTR. May be called by a signal's handler.
#[unsafe(no_mangle)]
pub extern "C" fn alarm_event_sem() {
    thread::alarm();
    process::wake_sleepers();
}

/// Returns 1 if `socket` with these arguments makes a socket of the stack, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn fstack_territory(domain: c_int, kind: c_int, _protocol: c_int) -> c_int {
    const FLAGS: c_int =
        libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK | Process::SOCK_STACK | Process::SOCK_KERNEL;
    let is_internet = matches!(domain, libc::AF_INET | libc::AF_INET6);
    let is_known = matches!(kind & !FLAGS, libc::SOCK_STREAM | libc::SOCK_DGRAM);
    c_int::from(is_internet && is_known)
}

/// Returns 1 if the descriptor is one of the stack's, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn is_fstack_fd(fd: c_int) -> c_int {
    c_int::from(call::is_ours(fd))
}
