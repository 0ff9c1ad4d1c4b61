//! The signal mask of the calling thread.

use std::mem::MaybeUninit;
use std::ptr;

/// Blocks what can be blocked and returns the mask that was in force.
pub(super) fn block_all() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set it is given.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both point to sets of this frame; `all` is initialised.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: zeroed is a valid set, and the call has filled it in.
    unsafe { before.assume_init() }
}

pub(super) fn restore(before: &libc::sigset_t) {
    // SAFETY: `before` is an initialised set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}
