//! The end of the process: its connections are handed over first.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use slipstack_posix::Process;

use super::last::has_other_threads;
use super::sys::exit_at_once;
use super::{become_helper, current, fork_away, forked, raw};
use crate::raw::{BLOCK_ALL, swap_mask};
use crate::thread::InCall;

/// The process is ending; its connections are handed over already.
static IS_ENDED: AtomicBool = AtomicBool::new(false);

/// Ends the process in order: its connections go to the keeper, once no other process uses them.
pub extern "C" fn end_in_order() {
    if let Some(process) = current()
        && process.has_borrowers()
        && !has_other_threads()
    {
        raw::with_room(|| leave_to_borrowers(process));
    }
    end();
}

/// Others may use connections of the process: a helper goes on with them, or else this process
/// does until nobody uses them.
fn leave_to_borrowers(process: &'static Process) {
    let prepared = {
        let _in_call = InCall::enter();
        process.prepare_succession()
    };
    if let Some(succession) = prepared {
        let mask = swap_mask(BLOCK_ALL);
        let pid = forked(fork_away);
        let _in_call = InCall::enter();
        if pid == 0 {
            become_helper();
            process.succeed(succession);
            end_helper();
        }
        process.end_succession(succession, pid > 0);
        swap_mask(mask);
    }
    let _in_call = InCall::enter();
    process.outlast_borrowers();
}

/// Ends a helper process once its connections are no longer used.
pub fn end_helper() -> ! {
    if let Some(process) = current() {
        let _in_call = InCall::enter();
        raw::with_room(|| process.outlast_borrowers());
    }
    end();
    exit_at_once()
}

/// The process ends without waiting for others: by the default action of a signal, or because
/// nobody else has its connections any more.
pub fn end() {
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
    raw::with_room(|| process.exit());
}

/// The child of a fork ends on its own account.
pub fn begin_again() {
    IS_ENDED.store(false, Relaxed);
}
