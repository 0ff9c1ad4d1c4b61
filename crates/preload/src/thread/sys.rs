//! Storage of the thread state.

use super::Thread;

// Thread-local storage of the initial-exec kind: two instructions to reach, and safe in signal
// handlers. (The general kind calls ld.so, which may allocate after a dlopen.)
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .tbss.slipstack_thread,\"awT\",@nobits",
    ".balign 64",
    ".globl slipstack_thread",
    ".hidden slipstack_thread",
    ".type slipstack_thread, @object",
    ".size slipstack_thread, 256",
    "slipstack_thread:",
    ".zero 256",
    ".popsection",
);

const _: () = assert!(size_of::<Thread>() == 256);

#[cfg(target_arch = "x86_64")]
#[inline]
pub fn current() -> &'static Thread {
    let thread: *const Thread;
    // SAFETY: computes an address from the thread pointer and a fixed offset.
    unsafe {
        core::arch::asm!(
            "mov {0}, qword ptr [rip + slipstack_thread@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) thread,
            options(pure, nomem, nostack),
        );
    }
    // SAFETY: this thread's block, zero-initialised (a valid Thread), 256 bytes, aligned; the
    // reference does not leave the thread because Thread is only used by its own thread.
    unsafe { &*thread }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn current() -> &'static Thread {
    thread_local! {
        static THREAD: Thread = const { Thread::new() };
    }
    // SAFETY: no destructor, so the value lives as long as its thread.
    THREAD.with(|thread| unsafe { &*core::ptr::from_ref(thread) })
}

/// The state of another thread. glibc's `pthread_t` is the thread pointer, from which the state has
/// the same distance in every thread.
///
/// # Safety
/// The thread is alive or has not been joined, and is not detached.
#[cfg(target_arch = "x86_64")]
pub unsafe fn of(thread: libc::pthread_t) -> Option<&'static Thread> {
    // SAFETY: takes nothing.
    let own = unsafe { libc::pthread_self() } as usize;
    let distance = core::ptr::from_ref(current()).addr().wrapping_sub(own);
    let at = core::ptr::with_exposed_provenance::<Thread>((thread as usize).wrapping_add(distance));
    // SAFETY: the block of a thread whose memory exists, as the caller vouches.
    Some(unsafe { &*at })
}

/// The place of another thread's state is unknown.
///
/// # Safety
/// None is needed.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn of(_: libc::pthread_t) -> Option<&'static Thread> {
    None
}
