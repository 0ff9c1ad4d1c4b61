//! The hooked `pthread_cancel`.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::c_int;

use libc::pthread_t;

use crate::next;
use crate::raw::{self, syscall6};
use crate::thread;

unsafe extern "C" {
    fn pthread_testcancel();
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// libc's own signal for cancellations.
const SIGCANCEL: usize = 32;

/// Ends the thread here if it has been cancelled.
pub fn test() {
    // SAFETY: nothing is held at the edge of a call.
    unsafe { pthread_testcancel() };
}

const ENABLE: c_int = 0;
const DISABLE: c_int = 1;

/// Makes this thread uncancellable from now on; returns whether it was cancellable until now.
pub fn disable() -> bool {
    let mut old = DISABLE;
    // SAFETY: `old` is a live place.
    unsafe { pthread_setcancelstate(DISABLE, &raw mut old) };
    old == ENABLE
}

/// Ends [`disable`].
pub fn enable() {
    let mut old = DISABLE;
    // SAFETY: `old` is a live place.
    unsafe { pthread_setcancelstate(ENABLE, &raw mut old) };
}

/// A thread that began a call before the first cancellation is waited for so often, a tenth of a
/// millisecond each time.
const LOOKS_MAX: u32 = 1000;

/// Waits until `thread` is in no call that it began before it expected cancellations.
unsafe fn wait_until_out(thread: pthread_t) {
    // A thread that has not entered a call yet sees the request.
    raw::order_threads();
    let pause = libc::timespec {
        tv_sec: 0,
        tv_nsec: 100_000,
    };
    let args = [&raw const pause as usize, 0, 0, 0, 0, 0];
    for _ in 0..LOOKS_MAX {
        // SAFETY: the program's thread, which it may cancel.
        match unsafe { thread::of(thread) } {
            Some(state) if state.is_cancelled_anywhere() => {
                // SAFETY: a live time; the remaining time is not requested.
                unsafe { syscall6(libc::SYS_nanosleep, args) };
            }
            _ => return,
        }
    }
}

pub unsafe fn cancel(thread: pthread_t) -> c_int {
    if super::begin() {
        // SAFETY: the program's thread.
        unsafe { wait_until_out(thread) };
    }
    // SAFETY: the program's own call.
    let result = unsafe { (next::pthread_cancel.get())(thread) };
    if result == 0 {
        super::count();
        // SAFETY: the program's thread, alive as the call has succeeded.
        unsafe { interrupt(thread) };
    }
    result
}

/// Interrupts a system call of `thread`. libc's handler of this signal does nothing for a
/// thread that is not inside a cancellation point of libc's.
unsafe fn interrupt(thread: pthread_t) {
    let mut clock = 0;
    // SAFETY: the caller's thread is alive; `clock` is a live place.
    if unsafe { libc::pthread_getcpuclockid(thread, &raw mut clock) } != 0 {
        return;
    }
    // A thread's CPU clock carries its number, inverted, above three bits of kind.
    let number = !(clock >> 3);
    let args = [
        std::process::id() as usize,
        number as usize,
        SIGCANCEL,
        0,
        0,
        0,
    ];
    // SAFETY: sends a signal that libc has a handler for since its first cancellation.
    unsafe { syscall6(libc::SYS_tgkill, args) };
}
