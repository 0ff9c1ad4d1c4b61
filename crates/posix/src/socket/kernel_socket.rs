//! The kernel's socket under a number.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use slipstack_mem::Descriptor;

use crate::errno::Errno;
use crate::kernel::Kernel;

/// Backlog of a listener if the kernel does not report one (net.core.somaxconn of Linux).
pub(crate) const BACKLOG: i32 = 4096;

/// Whether the kernel has something to read under this number now.
pub(crate) fn is_readable(number: Option<Descriptor>) -> bool {
    is_ready(number, PollFlags::IN)
}

pub(crate) fn is_ready(number: Option<Descriptor>, what: PollFlags) -> bool {
    !ready_in_kernel(number, what).is_empty()
}

/// Returns the kernel's readiness of this number now.
pub(crate) fn ready_in_kernel(number: Option<Descriptor>, what: PollFlags) -> PollFlags {
    let Some(number) = number else {
        return PollFlags::empty();
    };
    let fd = number.as_fd();
    let mut fds = [PollFd::from_borrowed_fd(fd, what)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    match rustix::event::poll(&mut fds, Some(&now)) {
        Ok(1) => fds[0].revents(),
        _ => PollFlags::empty(),
    }
}

/// The kernel's idea of a socket's local address.
pub(crate) fn kernel_name(number: Descriptor) -> Option<SocketAddr> {
    let any = rustix::net::getsockname(number.as_fd()).ok()?;
    SocketAddr::try_from(any).ok()
}

/// Replaces the descriptor under `number` by `with`; its close-on-exec flag stays.
pub(crate) fn replace(number: Descriptor, with: &OwnedFd) -> Result<(), Errno> {
    let flags = rustix::io::fcntl_getfd(number.as_fd())?;
    let is_cloexec = flags.contains(rustix::io::FdFlags::CLOEXEC);
    Ok(number.replace_with(with.as_fd(), is_cloexec)?)
}

pub(crate) fn set_nonblocking(number: Descriptor, is_on: bool) -> Result<(), Errno> {
    let mut flags = rustix::fs::fcntl_getfl(number.as_fd())?;
    flags.set(rustix::fs::OFlags::NONBLOCK, is_on);
    Ok(rustix::fs::fcntl_setfl(number.as_fd(), flags)?)
}

/// Number of connections that may wait on a listener, as the kernel has understood it: -1 is as
/// many as possible, and net.core.somaxconn bounds all.
pub(crate) fn backlog_of(kernel: &dyn Kernel, listener: Descriptor) -> i32 {
    // tcpi_sacked (tcp_get_info)
    const AT: usize = 28;
    let mut info = [0; AT + 4];
    let (fd, level) = (listener.number(), libc::IPPROTO_TCP);
    let result = kernel.getsockopt(fd, level, libc::TCP_INFO, &mut info);
    match (result, info[AT..].try_into()) {
        (Ok(len), Ok(word)) if len == info.len() => i32::from_ne_bytes(word),
        _ => BACKLOG,
    }
}
