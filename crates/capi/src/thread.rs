//! State of a thread: interruptions of waits, and the outcome of a turn of `ff_run`.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use slipstack_posix::Interruptions;

/// Sets that one turn is remembered to have looked at.
const SETS_MAX: usize = 16;

#[derive(Debug, Default)]
struct Turn {
    /// Time for which a call inside the loop of `ff_run` may wait; `None` outside of it.
    most: Cell<Option<Duration>>,
    /// Something was done: there may be more.
    is_busy: Cell<bool>,
    /// A call has waited in vain.
    has_waited: Cell<bool>,
    /// A call has let the engine work.
    has_looked: Cell<bool>,
    /// Epoll sets and kqueues that had nothing.
    sets: RefCell<Vec<i32>>,
}

thread_local! {
    static INTERRUPTIONS: Cell<u64> = const { Cell::new(0) };
    static RUNS_LOOP: Cell<bool> = const { Cell::new(false) };
    static INSIDE: Cell<u32> = const { Cell::new(0) };
    static TURN: Turn = Turn::default();
}

/// The outcome of a turn.
pub struct Outcome {
    pub is_busy: bool,
    pub has_waited: bool,
    pub has_looked: bool,
    pub sets: Vec<i32>,
}

pub fn interruptions() -> Interruptions {
    let count = INTERRUPTIONS.get();
    Interruptions {
        handlers: count,
        without_restart: count,
    }
}

pub fn interrupt() {
    INTERRUPTIONS.set(INTERRUPTIONS.get() + 1);
}

/// Returns whether `ff_run` runs on this thread.
pub fn runs_loop() -> bool {
    RUNS_LOOP.get()
}

pub fn set_runs_loop(is_on: bool) {
    RUNS_LOOP.set(is_on);
}

/// The library works on this thread in a way that may fork.
pub fn enter() {
    INSIDE.set(INSIDE.get() + 1);
}

pub fn leave() {
    INSIDE.set(INSIDE.get().saturating_sub(1));
}

pub fn is_inside() -> bool {
    INSIDE.get() != 0
}

/// A number that tells this thread from all others alive.
pub fn number() -> usize {
    INTERRUPTIONS.with(|at| core::ptr::from_ref(at).addr())
}

/// Runs one turn of `ff_run`'s loop; waits inside it are as long as `most`, no longer.
pub fn turn(most: Duration, work: impl FnOnce()) -> Outcome {
    TURN.with(|turn| turn.most.set(Some(most)));
    work();
    TURN.with(|turn| {
        turn.most.set(None);
        Outcome {
            is_busy: turn.is_busy.take(),
            has_waited: turn.has_waited.take(),
            has_looked: turn.has_looked.take(),
            sets: turn.sets.take(),
        }
    })
}

/// Time for which a call with this timeout may wait on this thread.
pub fn bounded(timeout: Option<Duration>) -> Option<Duration> {
    TURN.with(|turn| match (turn.most.get(), timeout) {
        (Some(most), Some(timeout)) => Some(most.min(timeout)),
        (most, timeout) => timeout.or(most),
    })
}

/// A call has done something for the program.
pub fn note_work() {
    TURN.with(|turn| turn.is_busy.set(true));
}

/// A wait on `set` (-1: on none) has ended with `count` events.
pub fn note_wait(set: i32, count: usize, timeout: Option<Duration>) {
    TURN.with(|turn| {
        if turn.most.get().is_none() {
            return;
        }
        turn.has_looked.set(true);
        let mut sets = turn.sets.borrow_mut();
        match count {
            0 if timeout.is_none_or(|timeout| !timeout.is_zero()) => turn.has_waited.set(true),
            0 if set >= 0 && sets.len() < SETS_MAX && !sets.contains(&set) => sets.push(set),
            0 => {}
            _ => turn.is_busy.set(true),
        }
    });
}
