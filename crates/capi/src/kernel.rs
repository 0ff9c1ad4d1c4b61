//! Kernel access of the POSIX layer: raw system calls and the interruptions of a thread.

use std::time::Duration;

use slipstack_abi::{kernel, raw};
use slipstack_posix::{Errno, Interruptions, Kernel, Owner};

use crate::{signals, thread};

/// Handlers run when they come; one that ends a sleep ends the call with EINTR.
pub struct System;

impl Kernel for System {
    fn ppoll(
        &self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
        mask: Option<&libc::sigset_t>,
    ) -> Result<usize, Errno> {
        let result = kernel::ppoll(fds, timeout, mask.map(raw::mask_of));
        if result == Err(Errno::EINTR) {
            thread::interrupt();
        }
        result
    }

    fn ppoll_until_stopped(
        &self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
        mask: Option<&libc::sigset_t>,
    ) -> Result<usize, Errno> {
        let result = kernel::ppoll_until_stopped(fds, timeout, mask.map(raw::mask_of));
        if result == Err(Errno::EINTR) {
            thread::interrupt();
        }
        result
    }

    fn signal_point(&self, _mask: Option<&libc::sigset_t>) -> Interruptions {
        thread::interruptions()
    }

    fn interruptions(&self) -> Interruptions {
        thread::interruptions()
    }

    fn thread(&self) -> usize {
        thread::number()
    }

    fn begin_call(&self) {
        thread::enter();
    }

    fn end_call(&self) {
        thread::leave();
    }

    fn signal_io(&self, owner: Owner, signal: i32, _fd: i32, _code: i32) {
        raw::signal(owner, signal);
    }

    fn signal_owner(&self, owner: Owner, signal: i32) {
        raw::signal(owner, signal);
    }

    fn watch_signal(&self, signal: i32, bell: i32) -> Result<(), Errno> {
        signals::watch(signal, bell)
    }

    fn signals_seen(&self, signal: i32) -> u64 {
        signals::seen(signal)
    }

    fn setsockopt(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        kernel::setsockopt(fd, level, name, value)
    }

    fn getsockopt(&self, fd: i32, level: i32, name: i32, value: &mut [u8]) -> Result<usize, Errno> {
        kernel::getsockopt(fd, level, name, value)
    }

    fn close_range(&self, first: u32, last: u32, flags: u32) -> Result<(), Errno> {
        kernel::close_range(first, last, flags)
    }

    fn warn(&self, line: &str) {
        say(line);
    }
}

/// Says a line on standard error.
pub fn say(line: &str) {
    raw::write_stderr(format!("slipstack: {line}\n").as_bytes());
}
