//! The trait through which this crate uses the kernel, implemented by the layer that replaces libc.

use std::time::Duration;

use crate::errno::Errno;

/// Number of interruptions of the calling thread's waits so far. A wait takes one at
/// its start and compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interruptions {
    /// All.
    pub handlers: u64,
    /// Signals that end a call even if it may be restarted.
    pub without_restart: u64,
}

/// The parts of libc and of signal handling that belong to the preload layer.
///
/// The layer marks a thread as "inside a call" around every method of [`Process`](crate::Process):
/// a handler for a signal that arrives then is deferred until the call has ended, and counted at
/// once. A wait that sees the count change cleans up and returns `EINTR`; whether the call is
/// restarted (SA_RESTART) is then up to the layer.
pub trait Kernel: Send + Sync {
    /// The system call `ppoll`, with `mask` in force if one is given. The first of `fds` is the
    /// doorbell of this sleep, an eventfd, or −1. A handler that is deferred rings it or makes the
    /// call return `EINTR`, and so does one that was deferred already.
    fn ppoll(
        &self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
        mask: Option<&libc::sigset_t>,
    ) -> Result<usize, Errno>;

    /// As [`Kernel::ppoll`], but a stop of the process (SIGSTOP, SIGCONT) makes it return `EINTR`
    /// although no handler runs. It may return `Ok(0)` before its time.
    fn ppoll_until_stopped(
        &self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
        mask: Option<&libc::sigset_t>,
    ) -> Result<usize, Errno> {
        self.ppoll(fds, timeout, mask)
    }

    /// The point at which a wait handles signals; `mask` is that of the p-variants.
    fn signal_point(&self, mask: Option<&libc::sigset_t>) -> Interruptions;

    /// As [`Kernel::signal_point`].
    fn interruptions(&self) -> Interruptions;

    /// Returns a number that identifies the calling thread among all living ones, not 0 (the
    /// address of a thread-local will do).
    fn thread(&self) -> usize;

    /// Binds the calling thread, which drives an engine of its own, to a processor.
    fn take_core(&self, core: usize) {
        let _ = core;
    }

    /// A thread that the program has not made works for a call of the program's until
    /// [`Kernel::end_call`]: it is marked as "inside a call" like that one.
    fn begin_call(&self) {}

    /// Ends [`Kernel::begin_call`] on the same thread.
    fn end_call(&self) {}

    /// Returns monotonic nanoseconds, the clock of timeouts and spinning.
    fn now_ns(&self) -> u64 {
        slipstack_mem::now_ns()
    }

    /// Sends SIGIO, or another signal with `siginfo` (`code`: POLL_IN and so on), to the owner of a
    /// socket. One that has ended gets nothing.
    fn signal_io(&self, owner: Owner, signal: i32, fd: i32, code: i32) {
        let _ = (owner, signal, fd, code);
    }

    /// Sends a signal without more, as [`Kernel::signal_io`].
    fn signal_owner(&self, owner: Owner, signal: i32) {
        let _ = (owner, signal);
    }

    /// Begins to count a signal: each one rings `bell`, an eventfd, and then has its normal effect.
    /// A layer that does not support this returns ENOSYS.
    fn watch_signal(&self, signal: i32, bell: i32) -> Result<(), Errno> {
        let _ = (signal, bell);
        Err(Errno::ENOSYS)
    }

    /// Number of times that a watched signal has come.
    fn signals_seen(&self, signal: i32) -> u64 {
        let _ = signal;
        0
    }

    /// libc's `setsockopt`, on a kernel socket.
    fn setsockopt(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<(), Errno>;

    /// libc's `getsockopt`, on a kernel socket: the length that was written.
    fn getsockopt(&self, fd: i32, level: i32, name: i32, value: &mut [u8]) -> Result<usize, Errno>;

    /// The system call `close_range`.
    fn close_range(&self, first: u32, last: u32, flags: u32) -> Result<(), Errno>;

    /// Returns the kind and the id of a map or program of eBPF, and the lengths of a map's keys and
    /// values; `None` if the descriptor is another one's.
    fn bpf_info(&self, fd: i32) -> Option<[u32; 4]> {
        let _ = fd;
        None
    }

    /// Writes a message to the program's standard error with one raw write.
    /// `line` has no newline and no prefix.
    fn warn(&self, line: &str);
}

/// The kinds of owners. Without an owner Linux returns the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnerKind {
    #[default]
    Thread,
    Process,
    Group,
}

/// The owner of a socket (F_SETOWN, F_SETOWN_EX), by its number: it gets SIGURG and, with O_ASYNC,
/// SIGIO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub kind: OwnerKind,
    /// 0 = none.
    pub id: i32,
}

impl Owner {
    /// Returns the owner that F_SETOWN names: a process, or a negated process group. `None` if no
    /// process has such a number.
    pub(crate) fn from_number(number: i32) -> Option<Owner> {
        let kind = match number < 0 {
            true => OwnerKind::Group,
            false => OwnerKind::Process,
        };
        let id = number.checked_abs()?;
        Some(Owner { kind, id })
    }

    /// Returns the number by which F_GETOWN names it.
    pub(crate) fn number(self) -> i32 {
        match self.kind {
            OwnerKind::Group => -self.id,
            OwnerKind::Thread | OwnerKind::Process => self.id,
        }
    }

    pub(crate) fn is_any(self) -> bool {
        self.id != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_a_process_or_a_group() {
        for (number, kind) in [(7, OwnerKind::Process), (-7, OwnerKind::Group)] {
            let owner = Owner::from_number(number).unwrap();
            assert_eq!((owner.kind, owner.id, owner.number()), (kind, 7, number));
        }
        assert_eq!(Owner::from_number(i32::MIN), None);
        assert!(!Owner::default().is_any());
    }
}
