//! Signals: the program's handlers run through a trampoline of ours.
//!
//! Inside one of our calls a handler is deferred: the trampoline blocks all signals in the mask
//! that the signal frame restores, and queues the signal again for this thread. When the call ends
//! the old mask is restored and the kernel delivers the signal as if nothing had happened. A thread
//! that sleeps, or is about to, has its doorbell rung, so that it does not sleep on with a deferred
//! handler. Signals whose default action ends the process get a trampoline too, once the process
//! has sockets on the stack: the connections are handed over, then the signal is raised again with
//! its default action. `sigaction` always returns the program's own setting.
//!
//! A program that confines itself (seccomp) may not be allowed to queue signals. From then on a
//! deferred signal is kept in memory and its handler is called at the end of the call, for which
//! only the mask changes; signals that end the process by default are the kernel's again.

pub mod abi;
mod io;
mod sys;

pub use io::send_io;
pub use sys::{mask_of, raise_pipe};

use core::ffi::c_int;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize};
use std::sync::OnceLock;

use rustix::process::{Signal, getpid, kill_process};

use crate::lock::Lock;
use crate::raw;
use crate::thread::{InCall, deliver_kept_by};

/// Linux has signals 1 to 64.
const SIGNALS_LEN: usize = 65;

/// Signals whose default action ends the process and that an operator or a peer sends. Those that
/// indicate a bug (SIGSEGV, SIGABRT …) are crashes, which the keeper handles.
const ENDING: [c_int; 15] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGSTKFLT,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
];

/// The program's action for one signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// SIG_DFL (0), SIG_IGN (1) or the address of a handler.
    pub handler: usize,
    pub flags: c_int,
    /// The kernel's 64 signals.
    pub mask: u64,
}

impl Action {
    const DEFAULT: Action = Action {
        handler: libc::SIG_DFL,
        flags: 0,
        mask: 0,
    };

    fn has_handler(self) -> bool {
        self.handler != libc::SIG_DFL && self.handler != libc::SIG_IGN
    }
}

/// One row of the table. The trampoline reads it without a lock; a torn pair of handler
/// and flags is harmless, as every handler is called with three arguments.
struct Row {
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
}

impl Row {
    const fn new() -> Row {
        Row {
            handler: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicI32::new(0),
            mask: AtomicU64::new(0),
        }
    }

    fn load(&self) -> Action {
        Action {
            handler: self.handler.load(Acquire),
            flags: self.flags.load(Relaxed),
            mask: self.mask.load(Relaxed),
        }
    }

    fn store(&self, action: Action) {
        self.flags.store(action.flags, Relaxed);
        self.mask.store(action.mask, Relaxed);
        self.handler.store(action.handler, Release);
    }
}

/// The program's settings, from the moment we look after signals.
static TABLE: [Row; SIGNALS_LEN] = [const { Row::new() }; SIGNALS_LEN];
/// Whether the table counts: set when the process gets its first socket.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Whether it is settled if signals that end the process are caught.
static IS_ARMED: AtomicBool = AtomicBool::new(false);
/// Whether they are.
static CATCHES: AtomicBool = AtomicBool::new(false);
/// Set once the program has confined itself: it may make only the system calls of its own.
static IS_CONFINED: AtomicBool = AtomicBool::new(false);
/// Signals that `siginterrupt` made interrupt calls (for `signal`).
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);
/// The work before a signal ends the process.
static AT_END: OnceLock<fn()> = OnceLock::new();
/// Serializes changes of the table. Taken inside a guard only, so no handler waits for it.
static CHANGE: Lock = Lock::new();

fn row(signal: c_int) -> Option<&'static Row> {
    let index = usize::try_from(signal).ok()?;
    TABLE.get(index).filter(|_| index != 0)
}

/// Returns whether `signal` may have a handler of a program at all (32 and 33 are libc's).
fn is_for_programs(signal: c_int) -> bool {
    !matches!(signal, libc::SIGKILL | libc::SIGSTOP | 32 | 33) && row(signal).is_some()
}

pub fn is_on() -> bool {
    IS_ON.load(Acquire)
}

/// Starts to look after signals: handlers that are installed already get the trampoline.
pub fn start() {
    deliver_kept_by(sys::deliver_kept);
    CHANGE.with(|| {
        for signal in (1..SIGNALS_LEN as c_int).filter(|&signal| is_for_programs(signal)) {
            let Some(action) = sys::query(signal) else {
                continue;
            };
            let Some(row) = row(signal) else { continue };
            row.store(action);
            if action.has_handler() {
                sys::install(signal, wanted(signal, action));
            }
        }
        IS_ON.store(true, Release);
    });
}

/// Has signals that end the process hand over its connections first, from now on.
/// Call inside a guard.
pub fn arm() {
    CHANGE.with(|| {
        if !is_on() || IS_ARMED.swap(true, Relaxed) {
            return;
        }
        CATCHES.store(true, Relaxed);
        for signal in ENDING {
            let Some(row) = row(signal) else { continue };
            let action = row.load();
            if action.handler == libc::SIG_DFL {
                sys::install(signal, wanted(signal, action));
            }
        }
    });
}

/// Prepares for a filter of system calls, about which nothing is known: those that queue a signal
/// or change its action are not made any more. The default actions are the kernel's again: the
/// keeper finishes the connections of a process that is ended by one, as those of a killed one.
/// Call inside a guard.
pub fn confine() {
    CHANGE.with(|| {
        IS_ARMED.store(true, Relaxed);
        let caught = CATCHES.swap(false, Relaxed);
        if IS_CONFINED.swap(true, Relaxed) || !is_on() {
            return;
        }
        for signal in (1..SIGNALS_LEN as c_int).filter(|&signal| is_for_programs(signal)) {
            let Some(row) = row(signal) else { continue };
            let action = row.load();
            let is_caught = caught && action.handler == libc::SIG_DFL && ENDING.contains(&signal);
            let is_one_shot = action.has_handler() && action.flags & libc::SA_RESETHAND != 0;
            if is_caught || is_one_shot {
                sys::install(signal, wanted(signal, action));
            }
        }
    });
}

/// Ends the process by the default action of a signal.
pub fn end_process(signal: Signal) {
    sys::install(signal.as_raw(), Wanted::Plain(Action::DEFAULT));
    raw::swap_mask(!raw::bit(signal.as_raw()));
    let _ = kill_process(getpid(), signal);
}

fn is_confined() -> bool {
    IS_CONFINED.load(Relaxed)
}

/// Has `run` called before a signal ends the process by its default action.
pub fn at_end(run: fn()) {
    _ = AT_END.set(run);
}

pub fn is_armed() -> bool {
    IS_ARMED.load(Relaxed)
}

/// The request to the kernel when the program wants `action`.
enum Wanted {
    Plain(Action),
    Trampoline { flags: c_int, mask: u64 },
}

fn wanted(signal: c_int, action: Action) -> Wanted {
    if action.has_handler() {
        let mut kept =
            libc::SA_NOCLDSTOP | libc::SA_NOCLDWAIT | libc::SA_ONSTACK | libc::SA_RESTART;
        if is_confined() {
            kept |= libc::SA_RESETHAND;
        }
        return Wanted::Trampoline {
            flags: action.flags & kept,
            mask: action.mask,
        };
    }
    if action.handler == libc::SIG_DFL && CATCHES.load(Relaxed) && ENDING.contains(&signal) {
        let flags = libc::SA_ONSTACK | libc::SA_RESTART;
        return Wanted::Trampoline {
            flags,
            mask: raw::BLOCK_ALL,
        };
    }
    Wanted::Plain(action)
}

/// `sigaction` of a signal programs may handle, while [`is_on`]: the old setting. Call
/// inside a guard.
fn set(signal: c_int, new: Option<Action>) -> Option<Action> {
    let row = row(signal)?;
    CHANGE.with(|| {
        let old = row.load();
        if let Some(new) = new {
            row.store(new);
            if !sys::install(signal, wanted(signal, new)) {
                row.store(old);
                return None;
            }
        }
        Some(old)
    })
}

/// The `SA_RESETHAND` of a handler that is about to run. The kernel does it in a program that has
/// confined itself.
fn reset(signal: c_int) {
    if is_confined() {
        return row(signal).map_or((), |row| row.store(Action::DEFAULT));
    }
    let _in_call = InCall::enter();
    set(signal, Some(Action::DEFAULT));
}

/// Holds the table over a fork.
pub fn hold() {
    CHANGE.take();
}

/// Ends [`hold`], in the parent and in the child.
pub fn release() {
    CHANGE.release();
}

#[cfg(test)]
mod tests;
