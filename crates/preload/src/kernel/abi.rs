//! The one libc call that sleeps.

use std::time::Duration;

use slipstack_posix::Errno;

use crate::raw;
use crate::symbols::next;

/// libc's `ppoll`: a cancellation point.
pub fn ppoll(
    fds: &mut [libc::pollfd],
    timeout: Option<Duration>,
    mask: &libc::sigset_t,
) -> Result<usize, Errno> {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout
        .as_ref()
        .map_or(core::ptr::null(), core::ptr::from_ref);
    let ppoll = next::ppoll.get();
    // SAFETY: pointers and length are those of live values.
    let result = unsafe { ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout, mask) };
    usize::try_from(result).map_err(|_| Errno(raw::errno()))
}
