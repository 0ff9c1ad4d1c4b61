//! State of a thread: whether it is inside one of our calls, and which signal handlers were
//! deferred or have run.
//!
//! The state is all-zero plain memory without a destructor, so that it can be used at any time in a
//! thread's life and in signal handlers.

mod sys;

pub use sys::of;

use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU32, AtomicU64, compiler_fence};
use std::sync::OnceLock;

use slipstack_posix::Interruptions;

use crate::raw;

/// Words of a kernel's `siginfo` that mean something for a signal that was sent.
const INFO_WORDS: usize = 6;
/// Signals that arrive at once and are kept with their `siginfo`. Handlers of further ones get
/// their number alone.
const KEPT_MAX: usize = 4;

/// A signal's `siginfo`, without its unused end.
pub type KeptInfo = [u64; INFO_WORDS];

/// Runs the handler of a kept signal for a thread whose mask is the given one, and returns the mask
/// that the handler goes back to.
pub type DeliverKept = fn(&KeptInfo, u64) -> u64;

static DELIVER_KEPT: OnceLock<DeliverKept> = OnceLock::new();

/// Sets the function that runs handlers of kept signals.
pub fn deliver_kept_by(deliver: DeliverKept) {
    _ = DELIVER_KEPT.set(deliver);
}

/// One thread's state. Only its thread uses it, in calls and in signal handlers; atomics because a
/// handler may run between any two instructions, and because the thread that requests the first
/// cancellation reads the state of the cancelled one.
#[repr(C, align(64))]
pub struct Thread {
    /// Number of open guards.
    depth: AtomicU32,
    /// The number of cancellations that this thread has seen.
    cancellations: AtomicU32,
    /// A signal arrived while a guard was open: all signals are blocked.
    is_deferred: AtomicBool,
    /// `saved_mask` came from a handler, not from a sleep that admits some signals.
    is_mask_of_handler: AtomicBool,
    /// The call has a signal mask of its own (`ppoll`, `pselect`, `epoll_pwait`).
    has_call_mask: AtomicBool,
    /// Signals that the mask admits are being delivered: the lowest handler returns to the mask in
    /// `call_mask`.
    is_letting_in: AtomicBool,
    /// The call was made by libc's `syscall`.
    is_raw: AtomicBool,
    /// Our code keeps the thread from being cancelled, which it could be.
    is_undisturbed: AtomicBool,
    /// The processor that the thread is bound to because it drives an engine, plus one.
    core: AtomicU16,
    call_mask: AtomicU64,
    /// The signal mask to go back to when `is_deferred`.
    saved_mask: AtomicU64,
    /// Signals that were queued again while they are deferred, one bit each, and those that are
    /// kept here instead.
    queued: AtomicU64,
    kept: AtomicU64,
    /// Deferred handlers that end a wait.
    interruptions: AtomicU32,
    /// The inverted number of the eventfd that ends the sleep in progress or about to begin; 0 =
    /// the thread is awake.
    doorbell: AtomicI32,
    /// Handlers that have run, and those of them without SA_RESTART.
    handlers: AtomicU32,
    without_restart: AtomicU32,
    kept_infos: [[AtomicU64; INFO_WORDS]; KEPT_MAX],
}

/// Number of times that the program has ended the waits of all of its threads.
static ALARMS: AtomicU64 = AtomicU64::new(0);

/// Ends the waits for events that are going on, once their threads look again.
pub fn alarm() {
    ALARMS.fetch_add(1, SeqCst);
}

/// Returns whether there has been an [`alarm`].
pub fn has_alarm() -> bool {
    ALARMS.load(Relaxed) != 0
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
            cancellations: AtomicU32::new(0),
            is_deferred: AtomicBool::new(false),
            is_mask_of_handler: AtomicBool::new(false),
            has_call_mask: AtomicBool::new(false),
            is_letting_in: AtomicBool::new(false),
            is_raw: AtomicBool::new(false),
            is_undisturbed: AtomicBool::new(false),
            core: AtomicU16::new(0),
            call_mask: AtomicU64::new(0),
            saved_mask: AtomicU64::new(0),
            queued: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            interruptions: AtomicU32::new(0),
            doorbell: AtomicI32::new(0),
            handlers: AtomicU32::new(0),
            without_restart: AtomicU32::new(0),
            kept_infos: [const { [const { AtomicU64::new(0) }; INFO_WORDS] }; KEPT_MAX],
        }
    }

    /// Returns whether the thread is inside one of our calls: then libc's functions are not
    /// interposed.
    #[inline]
    pub fn is_in_call(&self) -> bool {
        self.depth.load(Relaxed) != 0
    }

    /// Returns the values that a wait compares to detect its interruption. SA_RESTART is considered
    /// after the handlers have run, outside the call.
    pub fn interruptions(&self) -> Interruptions {
        let count = u64::from(self.interruptions.load(Relaxed));
        Interruptions {
            handlers: count + ALARMS.load(Relaxed),
            without_restart: count,
        }
    }

    /// Ends the wait that is going on.
    pub fn interrupt(&self) {
        self.interruptions.fetch_add(1, Relaxed);
    }

    /// Notes that the thread is about to sleep, and that the eventfd `doorbell` ends its sleep. A
    /// handler deferred from here on rings it; the caller checks afterwards whether one was
    /// deferred before.
    pub fn fall_asleep(&self, doorbell: i32) {
        self.doorbell.store(!doorbell, Relaxed);
        compiler_fence(SeqCst);
    }

    /// Ends [`Thread::fall_asleep`].
    pub fn wake_up(&self) {
        compiler_fence(SeqCst);
        self.doorbell.store(0, Relaxed);
    }

    /// The eventfd of [`Thread::fall_asleep`], until [`Thread::wake_up`].
    pub fn doorbell(&self) -> Option<i32> {
        match self.doorbell.load(Relaxed) {
            0 => None,
            inverted => Some(!inverted),
        }
    }

    /// The processor that the thread is bound to because it drives an engine.
    #[inline]
    pub fn core(&self) -> Option<usize> {
        usize::from(self.core.load(Relaxed)).checked_sub(1)
    }

    pub fn set_core(&self, core: Option<usize>) {
        let number = core.and_then(|core| u16::try_from(core + 1).ok());
        self.core.store(number.unwrap_or(0), Relaxed);
    }

    /// Handlers that have run on this thread, outside of calls.
    #[inline]
    pub fn handlers_run(&self) -> Interruptions {
        Interruptions {
            handlers: self.handlers.load(Relaxed).into(),
            without_restart: self.without_restart.load(Relaxed).into(),
        }
    }

    pub fn count_handler(&self, restarts: bool) {
        self.handlers.fetch_add(1, Relaxed);
        if !restarts {
            self.without_restart.fetch_add(1, Relaxed);
        }
    }

    /// Whether a cancellation may end the thread in the midst of one of our calls. Asked by other
    /// threads.
    pub fn is_cancelled_anywhere(&self) -> bool {
        self.depth.load(Acquire) != 0 && !self.is_undisturbed.load(Acquire)
    }

    pub fn cancellations(&self) -> u32 {
        self.cancellations.load(Relaxed)
    }

    pub fn note_cancellations(&self, asked: u32) {
        self.cancellations.store(asked, Relaxed);
    }

    pub fn is_raw(&self) -> bool {
        self.is_raw.load(Relaxed)
    }

    /// Whether it was before.
    pub fn set_raw(&self, is_raw: bool) -> bool {
        self.is_raw.swap(is_raw, Relaxed)
    }

    /// Whether it was before.
    pub fn set_undisturbed(&self, is_undisturbed: bool) -> bool {
        self.is_undisturbed.swap(is_undisturbed, Relaxed)
    }

    /// Sets the signal mask of the call that has begun, until its guard closes.
    pub fn set_call_mask(&self, mask: u64) {
        self.call_mask.store(mask, Relaxed);
        self.has_call_mask.store(true, Relaxed);
    }

    /// Drops the call's mask, because the call was not interrupted: signals that only this mask
    /// admits stay blocked.
    pub fn drop_call_mask(&self) {
        self.has_call_mask.store(false, Relaxed);
    }

    /// Returns the mask to which a handler has to return whose frame has [`raw::BLOCK_ALL`],
    /// because a call's mask admitted it.
    pub fn take_mask_beneath(&self) -> Option<u64> {
        let is_letting_in = self.is_letting_in.swap(false, Relaxed);
        is_letting_in.then(|| self.call_mask.load(Relaxed))
    }

    /// Whether the call's own mask keeps the signal from interrupting it.
    pub fn is_blocked_by_call(&self, bit: u64) -> bool {
        self.has_call_mask.load(Relaxed) && self.call_mask.load(Relaxed) & bit != 0
    }

    /// Records that all signals are blocked from now on, by the caller; `mask` was in force before.
    pub fn defer(&self, mask: u64) {
        self.is_mask_of_handler.store(false, Relaxed);
        if !self.is_deferred.swap(true, Relaxed) {
            self.saved_mask.store(mask, Relaxed);
        }
    }

    /// Records that a signal (its bit of a mask) was deferred. `mask` is the interrupted code's;
    /// the caller blocks all signals from now on.
    pub fn defer_signal(&self, bit: u64, mask: u64) {
        if !self.is_deferred() {
            self.defer(mask);
            return self.is_mask_of_handler.store(true, Relaxed);
        }
        // The last of several simultaneous signals is seen first, in the frame of the one before,
        // which is blocked there as in its handler.
        if self.is_mask_of_handler.load(Relaxed) && self.saved_mask() & bit & !mask != 0 {
            self.saved_mask.store(mask, Relaxed);
        }
    }

    pub fn is_deferred(&self) -> bool {
        self.is_deferred.load(Relaxed)
    }

    /// Cancels the deferral. The caller restores the mask.
    pub fn undefer(&self) {
        self.is_deferred.store(false, Relaxed);
    }

    /// Returns the mask that the program assumes in force while handlers are deferred.
    pub fn saved_mask(&self) -> u64 {
        self.saved_mask.load(Relaxed)
    }

    /// Records a signal (its bit of a mask) that is queued again; returns false if it was already,
    /// and has come out of the queue while handlers are deferred.
    pub fn note_queued(&self, bit: u64) -> bool {
        self.queued.fetch_or(bit, Relaxed) & bit == 0
    }

    /// Keeps a signal whose handler is called when the call is over.
    pub fn keep(&self, info: &KeptInfo) {
        let bit = raw::bit(info[0] as u32 as i32);
        self.kept.fetch_or(bit, Relaxed);
        // An unused place has no signal.
        let mut places = self.kept_infos.iter();
        if let Some(place) = places.find(|place| place[0].load(Relaxed) == 0) {
            for (to, word) in place.iter().zip(info) {
                to.store(*word, Relaxed);
            }
        }
    }

    /// Returns whether a signal is kept that `mask` admits.
    pub fn has_kept_beside(&self, mask: u64) -> bool {
        self.kept.load(Relaxed) & !mask != 0
    }

    /// The next kept signal: those that were kept with their `siginfo` in their order, then others.
    fn take_kept(&self) -> Option<KeptInfo> {
        let kept = self.kept.load(Relaxed);
        if kept == 0 {
            return None;
        }
        let mut found = [u64::from(kept.trailing_zeros()) + 1, 0, 0, 0, 0, 0];
        let is_used = |place: &&[AtomicU64; INFO_WORDS]| place[0].load(Relaxed) != 0;
        if let Some(place) = self.kept_infos.iter().find(is_used) {
            found = core::array::from_fn(|at| place[at].swap(0, Relaxed));
        }
        self.kept
            .store(kept & !raw::bit(found[0] as u32 as i32), Relaxed);
        Some(found)
    }

    /// Runs the deferred handlers. This is the last step of a call: they may leave by `siglongjmp`.
    #[cold]
    fn let_handlers_run(&self) {
        let is_deferred = self.is_deferred.swap(false, Relaxed);
        self.is_mask_of_handler.store(false, Relaxed);
        self.queued.store(0, Relaxed);
        let saved = self.saved_mask.load(Relaxed);
        if self.has_call_mask.swap(false, Relaxed) {
            let mask = self.call_mask.load(Relaxed);
            // The kernel stacks the frames of all admitted signals and returns to the thread's mask
            // beneath them, as at the end of its own call.
            self.call_mask.store(saved, Relaxed);
            self.is_letting_in.store(is_deferred, Relaxed);
            raw::let_in(mask);
            self.is_letting_in.store(false, Relaxed);
        }
        if is_deferred {
            let mask = self.run_kept(saved);
            raw::swap_mask(mask);
        }
    }

    /// Runs the handlers of kept signals, each under the mask of its action, as the kernel would.
    fn run_kept(&self, mut mask: u64) -> u64 {
        if let Some(deliver) = DELIVER_KEPT.get() {
            while let Some(info) = self.take_kept() {
                mask = deliver(&info, mask);
            }
        }
        mask
    }
}

/// An open guard: the thread is inside one of our calls, handlers are deferred, libc's functions
/// are not interposed, and `errno` is preserved.
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
        let thread = self.thread;
        if depth == 0 && (thread.is_deferred() || thread.has_call_mask.load(Relaxed)) {
            thread.let_handlers_run();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simultaneous_signals_leave_none_blocked() {
        std::thread::spawn(|| {
            let (term, child) = (raw::bit(libc::SIGTERM), raw::bit(libc::SIGCHLD));
            let thread = current();
            // The kernel stacks frames: the upper one returns to the lower one's handler.
            thread.defer_signal(child, term);
            thread.defer_signal(term, 0);
            assert_eq!(thread.saved_mask(), 0);
            thread.undefer();
            // A sleep that admits blocked signals: its own mask is restored.
            thread.defer(term);
            thread.defer_signal(child, raw::BLOCK_ALL);
            thread.defer_signal(term, child);
            assert_eq!(thread.saved_mask(), term);
            thread.undefer();
        })
        .join()
        .unwrap();
    }
}
