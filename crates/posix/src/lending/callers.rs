//! Threads that are in calls on connections of other processes.
//!
//! A connection comes here only while no other thread is in such a call: libc would go on with the
//! end of the pair, or with the descriptor that replaces it. Threads that wait in our own calls do
//! not count, because they are woken when the connection comes.

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{gettid, sched_getaffinity};
use slipstack_mem::Lock;

use crate::outcome::Divert;

/// Calls of one thread that are remembered at most: handlers of signals may interrupt each other,
/// and one that jumps leaves its call without an end.
const NESTED_MAX: usize = 16;

/// See the [module documentation](self).
#[derive(Debug, Default)]
pub(crate) struct Callers(Lock<Vec<Caller>>);

#[derive(Clone, Copy, Debug)]
struct Caller {
    thread: usize,
    /// The kernel's number of it, which tells whether it lives: one that is cancelled in its call,
    /// or ends in a handler there, never leaves it. `None`: it may not be asked for.
    id: Option<Pid>,
    /// The description's number.
    socket: u64,
}

/// A call on a connection of another process, until it ends.
#[derive(Debug)]
pub(crate) struct LentCall<'a> {
    callers: &'a Callers,
    thread: usize,
}

impl Callers {
    /// Notes that `thread` begins a call on `socket`.
    pub(crate) fn enter(&self, thread: usize, socket: u64) -> LentCall<'_> {
        self.enter_as((thread, Some(gettid())), socket)
    }

    /// As [`Callers::enter`], in a process that has confined itself, to which no connection comes.
    pub(crate) fn enter_confined(&self, thread: usize, socket: u64) -> LentCall<'_> {
        self.enter_as((thread, None), socket)
    }

    fn enter_as(&self, (thread, id): (usize, Option<Pid>), socket: u64) -> LentCall<'_> {
        let mut all = self.0.lock();
        let is_its = |caller: &&Caller| caller.thread == thread;
        if all.iter().filter(is_its).count() >= NESTED_MAX
            && let Some(oldest) = all.iter().position(|caller| is_its(&caller))
        {
            all.remove(oldest);
        }
        all.push(Caller { thread, id, socket });
        LentCall {
            callers: self,
            thread,
        }
    }

    /// Notes that the last call that `thread` has begun is over.
    pub(crate) fn leave(&self, thread: usize) {
        let mut all = self.0.lock();
        if let Some(last) = all.iter().rposition(|caller| caller.thread == thread) {
            all.remove(last);
        }
    }

    /// Returns whether another thread than `thread` is in a call on `socket`.
    pub(crate) fn has_others(&self, thread: usize, socket: u64) -> bool {
        let mut all = self.0.lock();
        let is_other = |caller: &Caller| caller.socket == socket && caller.thread != thread;
        all.retain(|caller| !is_other(caller) || caller.id.is_none_or(is_alive));
        all.iter().any(is_other)
    }

    /// Forgets the threads of the parent in a forked child.
    pub(crate) fn forget(&self) {
        self.0.lock().clear();
    }

    pub(crate) fn hold(&self) {
        self.0.hold();
    }

    pub(crate) fn release(&self) {
        self.0.release();
    }
}

/// Whether there is a thread of that number, also where there is no /proc.
fn is_alive(id: Pid) -> bool {
    sched_getaffinity(Some(id)) != Err(Errno::SRCH)
}

impl LentCall<'_> {
    /// The program's call goes on in libc, if `divert` says so. The thread is in the call until
    /// [`Process::on_lent_call`](crate::Process::on_lent_call).
    pub(crate) fn go_on(self, divert: Divert) -> Divert {
        if matches!(divert, Divert::KernelLent | Divert::KernelRead) {
            std::mem::forget(self);
        }
        divert
    }
}

impl Drop for LentCall<'_> {
    fn drop(&mut self) {
        self.callers.leave(self.thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::Errno;

    #[test]
    fn a_thread_is_in_a_call_until_that_ends_in_libc() {
        let callers = Callers::default();
        let call = callers.enter(1, 7);
        assert!(callers.has_others(2, 7));
        assert!(!callers.has_others(1, 7), "its own call");
        assert!(!callers.has_others(2, 8), "another connection");
        call.go_on(Divert::KernelRead);
        assert!(callers.has_others(2, 7), "libc reads");
        callers.leave(1);
        assert!(!callers.has_others(2, 7));
        callers.enter(1, 7).go_on(Errno::ENOTCONN.into());
        assert!(!callers.has_others(2, 7), "libc is not called");
    }

    #[test]
    fn a_thread_that_has_ended_in_its_call_is_in_none() {
        let callers = Callers::default();
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| callers.enter(1, 7).go_on(Divert::KernelLent));
            caller.join().unwrap();
        });
        // A thread that is joined may be known for a moment more.
        let is_seen = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            !callers.has_others(2, 7)
        });
        assert!(is_seen);
        callers.enter(1, 7).go_on(Divert::KernelLent);
        assert!(callers.has_others(2, 7));
    }

    #[test]
    fn a_call_of_a_handler_leaves_the_interrupted_one_as_it_was() {
        let callers = Callers::default();
        callers.enter(1, 7).go_on(Divert::KernelLent);
        drop(callers.enter(1, 8));
        assert!(callers.has_others(2, 7) && !callers.has_others(2, 8));
    }

    #[test]
    fn calls_that_handlers_have_left_by_a_jump_are_few() {
        let callers = Callers::default();
        for socket in 0..1000 {
            callers.enter(1, socket).go_on(Divert::KernelRead);
        }
        assert_eq!(callers.0.lock().len(), NESTED_MAX);
        assert!(callers.has_others(2, 999) && !callers.has_others(2, 0));
    }
}
