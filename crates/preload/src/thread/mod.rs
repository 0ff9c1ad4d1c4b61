//! What we keep per thread: whether it is inside one of our calls, and which signal
//! handlers were put off or have run.
//!
//! The state is all-zero plain memory without a destructor, so that it can be used at
//! any time in a thread's life and in signal handlers.

mod sys;

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, compiler_fence};

use slipstack_posix::Interruptions;

use crate::raw;

/// One thread's state. Only its thread uses it, in calls and in signal handlers;
/// atomics because a handler may come between any two instructions.
#[repr(C, align(64))]
pub struct Thread {
    /// How many guards are open.
    depth: AtomicU32,
    /// A handler came while a guard was open: all signals are blocked.
    is_deferred: AtomicBool,
    /// The signal mask to go back to when `is_deferred`.
    saved_mask: AtomicU64,
    handlers: AtomicU64,
    without_restart: AtomicU64,
    /// The program's cancellations that this thread has looked at.
    cancellations: AtomicU32,
}

/// The calling thread's state.
#[inline]
pub fn current() -> &'static Thread {
    sys::current()
}

impl Thread {
    #[cfg(not(target_arch = "x86_64"))]
    const fn new() -> Thread {
        Thread {
            depth: AtomicU32::new(0),
            is_deferred: AtomicBool::new(false),
            saved_mask: AtomicU64::new(0),
            handlers: AtomicU64::new(0),
            without_restart: AtomicU64::new(0),
            cancellations: AtomicU32::new(0),
        }
    }

    /// Whether the thread is inside one of our calls: then libc's functions are to be
    /// what they are without us.
    #[inline]
    pub fn is_in_call(&self) -> bool {
        self.depth.load(Relaxed) != 0
    }

    pub fn interruptions(&self) -> Interruptions {
        Interruptions {
            handlers: self.handlers.load(Relaxed),
            without_restart: self.without_restart.load(Relaxed),
        }
    }

    pub fn count_handler(&self, restarts: bool) {
        self.handlers.fetch_add(1, Relaxed);
        if !restarts {
            self.without_restart.fetch_add(1, Relaxed);
        }
    }

    pub fn cancellations(&self) -> u32 {
        self.cancellations.load(Relaxed)
    }

    pub fn note_cancellations(&self, asked: u32) {
        self.cancellations.store(asked, Relaxed);
    }

    /// Notes that a signal was put off. `mask` is what the interrupted code had; the
    /// caller sees to it that everything is blocked from now on.
    pub fn defer(&self, mask: u64) {
        if !self.is_deferred.swap(true, Relaxed) {
            self.saved_mask.store(mask, Relaxed);
        }
    }

    pub fn is_deferred(&self) -> bool {
        self.is_deferred.load(Relaxed)
    }

    /// The mask the program believes in force, if handlers were put off.
    pub fn deferred_mask(&self) -> Option<u64> {
        self.is_deferred().then(|| self.saved_mask.load(Relaxed))
    }

    /// Lets the handlers run that were put off and that `mask` lets through, inside an open
    /// guard whose holder is ready for them (holds no lock). Without a mask the thread's
    /// own is in force again.
    pub fn run_deferred(&self, mask: Option<u64>) {
        let depth = self.open();
        let Some(mask) = mask else {
            if self.is_deferred.swap(false, Relaxed) {
                raw::swap_mask(self.saved_mask.load(Relaxed));
            }
            self.reopen(depth);
            return;
        };
        let before = raw::swap_mask(mask);
        // What `mask` has held back is put off, not run, when the old mask returns.
        self.reopen(depth);
        raw::swap_mask(before);
    }

    /// Handlers run at once from here to [`Thread::reopen`].
    pub fn open(&self) -> u32 {
        let depth = self.depth.swap(0, Relaxed);
        compiler_fence(SeqCst);
        depth
    }

    pub fn reopen(&self, depth: u32) {
        compiler_fence(SeqCst);
        self.depth.store(depth, Relaxed);
    }
}

/// An open guard: the thread is inside one of our calls, handlers are put off, libc's
/// functions are their plain selves, and `errno` stays what it was.
pub struct InCall {
    thread: &'static Thread,
    errno: i32,
}

impl InCall {
    /// Opens a guard that [`InCall::end_long`] closes, in another function. Whether it is
    /// inside another one.
    pub fn begin_long() -> bool {
        core::mem::forget(InCall::enter());
        InCall::is_nested()
    }

    /// Whether there is a guard around the innermost one.
    pub fn is_nested() -> bool {
        current().depth.load(Relaxed) > 1
    }

    /// Closes the guard of [`InCall::begin_long`] on the same thread (or on its copy in
    /// the child of a fork).
    pub fn end_long() {
        drop(InCall {
            thread: current(),
            errno: raw::errno(),
        });
    }

    #[inline]
    pub fn enter() -> InCall {
        let thread = current();
        thread.depth.fetch_add(1, Relaxed);
        compiler_fence(SeqCst);
        InCall {
            thread,
            errno: raw::errno(),
        }
    }
}

impl Drop for InCall {
    #[inline]
    fn drop(&mut self) {
        raw::set_errno(self.errno);
        compiler_fence(SeqCst);
        let depth = self.thread.depth.load(Relaxed).saturating_sub(1);
        self.thread.depth.store(depth, Relaxed);
        if depth == 0 && self.thread.is_deferred() {
            self.thread.run_deferred(None);
        }
    }
}
