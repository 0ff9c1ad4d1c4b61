//! Catching of panics in handlers and jobs; all others end the process.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    // A panic hook gets only the panic, so the thread itself has to know whether it is in a
    // handler.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether a panic of this thread is caught by a host or a pool: for the process's panic
/// hook.
pub fn is_in_handler() -> bool {
    IS_GUARDED.get()
}

/// Runs a handler, a job or other foreign code; returns `None` if it panicked.
#[inline]
pub fn guarded<T>(run: impl FnOnce() -> T) -> Option<T> {
    // A pool without threads runs jobs inside of handlers.
    let is_within = IS_GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(run));
    IS_GUARDED.set(is_within);
    result.ok()
}
