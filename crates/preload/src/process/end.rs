//! The end of the process: its connections are handed over first.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use slipstack_posix::Exit;

use super::last::has_other_threads;
use super::sys::exit_at_once;
use super::{current, raw};
use crate::thread::InCall;

/// The process is ending; its connections are handed over already.
static IS_ENDED: AtomicBool = AtomicBool::new(false);

/// Ends the process in order: its connections go to the keeper, once no other process uses them.
pub extern "C" fn end_in_order() {
    if let Some(process) = current()
        && process.has_borrowers()
        && !has_other_threads()
    {
        let _in_call = InCall::enter();
        raw::with_room(|| process.outlast_borrowers());
    }
    end(Exit::Orderly);
}

/// Ends a helper process once its connections are no longer used.
pub fn end_helper() -> ! {
    if let Some(process) = current() {
        let _in_call = InCall::enter();
        raw::with_room(|| process.outlast_borrowers());
    }
    end(Exit::Orderly);
    exit_at_once()
}

/// The process ends by the default action of `signal`.
pub fn end_by_signal(signal: i32) {
    end(Exit::Signal(signal));
}

fn end(how: Exit) {
    let Some(process) = current() else { return };
    if IS_ENDED.swap(true, Relaxed) {
        return;
    }
    // A program that has confined itself may end, and not much else.
    if !process.has_engine() {
        return;
    }
    let _in_call = InCall::enter();
    // A signal's handler may have no more than 8 KiB.
    raw::with_room(|| process.exit(how));
}

/// The child of a fork ends on its own account.
pub fn begin_again() {
    IS_ENDED.store(false, Relaxed);
}
