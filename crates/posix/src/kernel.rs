//! What this crate needs from the layer that stands in libc's place.

use std::time::Duration;

use crate::errno::Errno;

/// How many signal handlers have run on the calling thread so far. A call takes one
/// at its start and compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interruptions {
    /// All handlers.
    pub handlers: u64,
    /// Those that were installed without `SA_RESTART`.
    pub without_restart: u64,
}

/// The parts of libc and of signal handling that belong to the preload layer.
///
/// The layer marks a thread as "inside a call" around every method of
/// [`Process`](crate::Process): a handler that arrives then is put off. It runs at
/// the next [`Kernel::signal_point`], inside [`Kernel::ppoll`], or when the call
/// ends. This crate calls those two only while it holds no lock.
pub trait Kernel: Send + Sync {
    /// libc's `ppoll`: a cancellation point. Put-off handlers run first, and then it
    /// answers `EINTR` at once; a handler that arrives while it sleeps runs at once
    /// and makes it answer `EINTR`. `mask` as in `ppoll`; `None` leaves the mask.
    fn ppoll(
        &self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
        mask: Option<&libc::sigset_t>,
    ) -> Result<usize, Errno>;

    /// Runs the handlers that were put off (with `mask` in force, where one is
    /// given, as the p-variants want it) and tells how many have run on this thread.
    fn signal_point(&self, mask: Option<&libc::sigset_t>) -> Interruptions;

    /// As [`Kernel::signal_point`], but runs nothing.
    fn interruptions(&self) -> Interruptions;

    /// A number that tells the calling thread from all others alive, not 0 (the address of a
    /// thread-local will do).
    fn thread(&self) -> usize;

    /// libc's `setsockopt`, on a kernel socket.
    fn setsockopt(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<(), Errno>;

    /// libc's `getsockopt`, on a kernel socket: the length that was written.
    fn getsockopt(&self, fd: i32, level: i32, name: i32, value: &mut [u8]) -> Result<usize, Errno>;

    /// The system call `close_range`.
    fn close_range(&self, first: u32, last: u32, flags: u32) -> Result<(), Errno>;

    /// Writes a message to the program's standard error with one raw write.
    /// `line` has no newline and no prefix.
    fn warn(&self, line: &str);
}
