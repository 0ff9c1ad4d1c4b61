//! The outcome of a call: a result of ours, an error, or a call to be made on the kernel.

use crate::errno::Errno;

/// The answer of a call, or why it is not ours to give.
pub type Outcome<T> = Result<T, Divert>;

/// Reason why a call has no answer from this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divert {
    /// The call fails with this number.
    Errno(Errno),
    /// The process was stopped and continued in the midst of the call, which fails with `EINTR`
    /// whatever the handlers that have run (signal(7)).
    Stopped,
    /// The call fails with `EPIPE` and `SIGPIPE` is raised for the calling thread (`MSG_NOSIGNAL`
    /// is already considered).
    Pipe,
    /// The descriptor is the kernel's (perhaps since just now): make the same call
    /// in libc and give the program its answer.
    Kernel,
    /// Make the same call in libc; the descriptor does not block there. If it
    /// answers `EAGAIN`, call us again; any other answer is the program's.
    KernelFirst,
    /// The call is a read, to be made in libc. If it finds the end of the stream,
    /// [`Process::end_of_borrowed`](crate::Process::end_of_borrowed) returns the cause; of bytes
    /// [`Process::on_borrowed_read`](crate::Process::on_borrowed_read) is told.
    KernelRead,
    /// As `Kernel`, for a connection of another process:
    /// [`Process::on_lent_call`](crate::Process::on_lent_call) is told when the call is over, also
    /// after `KernelRead`.
    KernelLent,
}

impl From<Errno> for Divert {
    fn from(errno: Errno) -> Self {
        Divert::Errno(errno)
    }
}

impl From<rustix::io::Errno> for Divert {
    fn from(errno: rustix::io::Errno) -> Self {
        Divert::Errno(errno.into())
    }
}
