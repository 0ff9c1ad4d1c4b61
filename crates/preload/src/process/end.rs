//! The end of the process: its connections are handed over first.

use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use slipstack_posix::{End, EndHandover, Process};

use super::last::{self, has_other_threads};
use super::sys::exit_at_once;
use super::{become_helper, current, fork_away, forked, raw};
use crate::raw::{BLOCK_ALL, swap_mask};
use crate::thread::InCall;

/// Interval and largest number of a thread's looks whether another one is done.
const LOOK: Duration = Duration::from_millis(5);
const LOOKS_MAX: u32 = 400;

/// The process is ending; its connections are handed over already.
static IS_ENDED: AtomicBool = AtomicBool::new(false);

/// A filter of system calls is in force for our threads too: one that ended would be killed, and
/// the process with it.
static IS_SHUT_IN: AtomicBool = AtomicBool::new(false);

/// Another thread hands over the connections that others use, and ends the process.
static IS_LEFT: AtomicBool = AtomicBool::new(false);

/// Ends the process in order: its connections go to the keeper, once no other process uses them.
pub extern "C" fn end_in_order() {
    if let Some(process) = current()
        && process.has_borrowers()
    {
        let end = match has_other_threads() {
            true => End::AtOnce,
            false => End::Alone,
        };
        raw::with_room(|| leave_to_borrowers(process, end));
    }
    if !IS_SHUT_IN.load(Relaxed)
        && let Some(process) = current()
    {
        process.send_kept();
    }
    end();
}

/// Ends the process by the default action of a signal.
pub fn end_by_signal() {
    if let Some(process) = current()
        && process.has_borrowers()
    {
        raw::with_room(|| leave_to_borrowers(process, End::AtOnce));
    }
    end();
}

/// Others may use connections of the process: a helper goes on with them. Where it cannot, this
/// process does until nobody uses them, if no other thread of the program's would go on too.
fn leave_to_borrowers(process: &'static Process, end: End) {
    let mask = swap_mask(BLOCK_ALL);
    if IS_LEFT.swap(true, Relaxed) {
        await_end();
        swap_mask(mask);
        return;
    }
    leave_to_successor(process, |process| process.prepare_succession(end));
    swap_mask(mask);
    if end == End::Alone {
        let _in_call = InCall::enter();
        process.outlast_borrowers();
    }
}

/// Called before the program is replaced: connections that the new one is to have, or others use,
/// go on without it.
pub fn before_exec() {
    let Some(process) = current() else { return };
    let mask = swap_mask(BLOCK_ALL);
    leave_to_successor(process, Process::prepare_exec);
    swap_mask(mask);
}

/// A helper goes on with connections of this process, which handlers of the program's never run in.
fn leave_to_successor(
    process: &'static Process,
    prepare: impl FnOnce(&'static Process) -> Option<EndHandover>,
) {
    let prepared = {
        let _in_call = InCall::enter();
        prepare(process)
    };
    let Some(succession) = prepared else { return };
    let pid = forked(fork_away);
    let _in_call = InCall::enter();
    if pid == 0 {
        become_helper();
        process.succeed(succession);
        end_helper();
    }
    process.end_succession(succession, pid > 0);
}

/// Waits until the thread that hands the connections over is done, which ends the process.
fn await_end() {
    for _ in 0..LOOKS_MAX {
        if IS_ENDED.load(Relaxed) {
            return;
        }
        std::thread::sleep(LOOK);
    }
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

/// The process ends without waiting for others.
pub fn end() {
    let Some(process) = current() else { return };
    if IS_ENDED.swap(true, Relaxed) {
        return;
    }
    // A program that has confined itself may end, and not much else.
    if !process.has_engine() || IS_SHUT_IN.load(Relaxed) {
        return;
    }
    let _in_call = InCall::enter();
    // A signal's handler may have no more than 8 KiB.
    raw::with_room(|| process.exit());
}

/// Has the process end without a system call of ours: the keeper finishes its connections, as those
/// of a killed one.
pub fn end_without_handover() {
    IS_SHUT_IN.store(true, Relaxed);
}

/// The child of a fork ends on its own account.
pub fn begin_again() {
    IS_ENDED.store(false, Relaxed);
    IS_LEFT.store(false, Relaxed);
    last::begin_again();
}
