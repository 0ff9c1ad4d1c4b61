//! The signal mask and the time slice of the calling thread.

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

/// The shortest slice that the kernel grants.
const SLICE_NS: u64 = 100_000;

/// `struct sched_attr` in its first version.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks for a short slice, which since Linux 6.12 also means an earlier turn (sched(7) of ordinary
/// threads, `sched_runtime`); kernels before that take no notice. Nothing else changes.
pub(super) fn shorten_slice() {
    let mut attr = SchedAttr::default();
    let size = size_of::<SchedAttr>();
    // SAFETY: the kernel writes at most `size` bytes, which `attr` has.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    if read != 0 || attr.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attr.runtime = SLICE_NS;
    // SAFETY: the kernel reads `attr.size` bytes, which the call above has set to its length.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}
