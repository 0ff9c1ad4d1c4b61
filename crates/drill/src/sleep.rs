//! Blocking in virtual time: a call sleeps until a turn of the engine or its timeout.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The state shared by blocking calls and the driver of virtual time.
#[derive(Default)]
pub struct Sleep {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    now_ns: u64,
    /// Counts events that may have completed a waiting call.
    generation: u64,
    /// The generation that the waiting call has seen.
    seen: u64,
    is_waiting: bool,
    deadline_ns: Option<u64>,
    /// Calls that run on other threads.
    calls: u32,
}

impl State {
    fn is_asleep(&self) -> bool {
        self.is_waiting
            && self.seen == self.generation
            && self.deadline_ns.is_none_or(|at| self.now_ns < at)
    }
}

impl Sleep {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now_ns(&self) -> u64 {
        self.state().now_ns
    }

    /// Advances the time; a call whose timeout has expired wakes up.
    pub fn set_now(&self, now_ns: u64) {
        let mut state = self.state();
        state.now_ns = state.now_ns.max(now_ns);
        self.changed.notify_all();
    }

    /// Records an event of a turn.
    pub fn notify(&self) {
        self.state().generation += 1;
        self.changed.notify_all();
    }

    /// From here on a call that waits would miss nothing.
    pub fn arm(&self) {
        let mut state = self.state();
        state.seen = state.generation;
    }

    /// Sleeps until an event since [`Sleep::arm`] or until `deadline_ns`.
    pub fn wait(&self, deadline_ns: Option<u64>) {
        let mut state = self.state();
        state.is_waiting = true;
        state.deadline_ns = deadline_ns;
        self.changed.notify_all();
        while state.is_asleep() {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.is_waiting = false;
        state.deadline_ns = None;
    }

    /// Time at which the waiting call times out.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.state().deadline_ns
    }

    /// A call begins on another thread.
    pub fn begin_call(&self) {
        self.state().calls += 1;
    }

    /// Counts the end of a call.
    pub fn end_call(&self) {
        let mut state = self.state();
        state.calls = state.calls.saturating_sub(1);
        self.changed.notify_all();
    }

    /// Waits until the other thread's call has returned or sleeps. Returns whether it still runs.
    pub fn settle(&self) -> bool {
        let mut state = self.state();
        while state.calls > 0 && !state.is_asleep() {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.calls > 0
    }
}
