//! Hooks for the end of a thread and of the process.

use core::ffi::c_void;
use core::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crate::next;

/// The key whose destructor runs as a thread ends; negative: there is none yet.
static KEY: AtomicI64 = AtomicI64::new(-1);

/// Has `run` called when the calling thread ends without the process (pthread_exit, a return from
/// its function, a cancellation).
pub fn at_end_of_this_thread(run: extern "C" fn()) {
    extern "C" fn end(run: *mut c_void) {
        // SAFETY: the value of the key, which is only set below.
        let run = unsafe { core::mem::transmute::<*mut c_void, extern "C" fn()>(run) };
        run();
    }
    if KEY.load(Relaxed) < 0 {
        let mut key = 0;
        // SAFETY: `end` stays loaded for the life of the process.
        if unsafe { libc::pthread_key_create(&raw mut key, Some(end)) } != 0 {
            return;
        }
        KEY.store(key.into(), Relaxed);
    }
    if let Ok(key) = libc::pthread_key_t::try_from(KEY.load(Relaxed)) {
        // SAFETY: a key that was created and is never deleted.
        unsafe { libc::pthread_setspecific(key, run as *const c_void) };
    }
}

/// Ends the process without the program's own end.
pub fn exit_at_once() -> ! {
    // SAFETY: takes a number.
    unsafe { (next::_exit.get())(0) }
}
