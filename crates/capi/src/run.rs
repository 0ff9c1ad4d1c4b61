//! `ff_run`: the program's loop between sleeps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use slipstack_posix::{Errno, Process};

use crate::thread;

/// The loop is called this often while nothing happens: programs keep timers in it.
const PERIOD: Duration = Duration::from_millis(1);

static IS_RUNNING: AtomicBool = AtomicBool::new(false);
static IS_TO_STOP: AtomicBool = AtomicBool::new(false);

/// Calls `work` for every turn until [`stop`].
///
/// # Errors
/// EBUSY: it runs already.
pub fn run(process: &Process, mut work: impl FnMut()) -> Result<(), Errno> {
    if IS_RUNNING.swap(true, Ordering::AcqRel) {
        return Err(Errno(libc::EBUSY));
    }
    thread::set_runs_loop(true);
    while !IS_TO_STOP.swap(false, Ordering::AcqRel) {
        let turn = thread::turn(PERIOD, &mut work);
        if turn.is_busy {
            if !turn.has_looked {
                process.work();
            }
        } else if !turn.has_waited && !IS_TO_STOP.load(Ordering::Acquire) {
            process.idle(&turn.sets, PERIOD);
        }
    }
    thread::set_runs_loop(false);
    IS_RUNNING.store(false, Ordering::Release);
    Ok(())
}

pub fn is_running() -> bool {
    IS_RUNNING.load(Ordering::Acquire)
}

/// The loop ends with this turn. May be called by a signal's handler.
pub fn stop() {
    IS_TO_STOP.store(true, Ordering::Release);
}
