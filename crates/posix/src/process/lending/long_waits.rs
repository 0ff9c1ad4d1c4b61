//! Calls that wait for longer than a connection of another process stays there: it comes here while
//! the call waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::wait::Plan;
use crate::ready::Look;
use crate::socket::borrowed::Borrowed;
use crate::socket::description::{Decided, Description, Kind};

impl Process {
    /// Returns the time at which a wait of the calling thread is to be interrupted for
    /// [`Process::take_due`].
    #[inline]
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        let due = self.lending.in_use.due_ns(|| self.kernel.thread());
        due.filter(|_| !self.lending.keeps_out.load(Ordering::Relaxed))
    }

    /// As [`Process::wait`], until a connection of another process is to come here, which it does
    /// then.
    #[cold]
    pub(crate) fn wait_and_take<T>(
        &self,
        plan: &Plan<'_>,
        due_ns: u64,
        check: &mut impl FnMut(Look) -> Result<Option<T>, Divert>,
    ) -> Result<Option<T>, Divert> {
        let part = Plan {
            deadline_ns: Some(plan.deadline_ns.map_or(due_ns, |it| it.min(due_ns))),
            ..*plan
        };
        let found = self.wait_here(&part, check)?;
        if found.is_none() && due_ns <= self.kernel.now_ns() {
            self.take_due();
        }
        Ok(found)
    }

    /// Takes over the connections of other processes that this thread has used for long enough.
    #[cold]
    pub(crate) fn take_due(&self) {
        let now_ns = self.kernel.now_ns();
        for (socket, due_ns) in self.lending.in_use.all_of(self.kernel.thread()) {
            if let Some(Decided::Foreign(it)) = socket.decided()
                && due_ns <= now_ns
            {
                match socket.kind {
                    Kind::Stream => self.take_idle(&socket, it),
                    Kind::Dgram => self.use_datagrams(&socket, it),
                }
            }
        }
    }

    /// Takes over a connection on which a call waits. Data in transit is not waited for: the call
    /// may be ended by something else.
    pub(super) fn take_idle(&self, socket: &Arc<Description>, it: &Borrowed) {
        let before = it.due_ns();
        self.take_over(socket, it, Duration::ZERO);
        // Something unread kept the socket from being requested: it is tried again later.
        if it.due_ns() == before {
            it.turns.note_asked();
        }
    }

    /// A poll of connections that all live elsewhere, which the kernel can answer: `lent`. `None`:
    /// one may have come here. `is_begun`: the caller has waited before, and `deadline_ns` counts.
    pub(crate) fn poll_elsewhere(
        &self,
        (fds, lent): (&mut [libc::pollfd], &[Arc<Description>]),
        (deadline_ns, is_begun): (Option<u64>, bool),
        mask: Option<&libc::sigset_t>,
    ) -> Outcome<Option<usize>> {
        let due_ns = self.next_due_ns();
        let is_before = |due: u64| deadline_ns.is_none_or(|deadline| due < deadline);
        let due_ns = due_ns.filter(|due| is_before(*due));
        // A confined process (seccomp) makes the call that it has chosen.
        if due_ns.is_none() && !is_begun && self.lending.keeps_out.load(Ordering::Relaxed) {
            return Err(Divert::Kernel);
        }
        let until_ns = due_ns.or(deadline_ns);
        let now_ns = self.kernel.now_ns();
        let left = until_ns.map(|until| Duration::from_nanos(until.saturating_sub(now_ns)));
        let mut all = vec![NO_DOORBELL];
        all.extend_from_slice(fds);
        // Where the kernel waits on the ends of pairs, no other thread brings the connections.
        let mut calls = Vec::with_capacity(lent.len());
        for socket in lent {
            match socket.decided() {
                Some(Decided::Foreign(it)) => match self.enter_call(socket, it) {
                    Some(call) => calls.push(call),
                    None => return Ok(None),
                },
                _ => return Ok(None),
            }
        }
        let count = self.kernel.ppoll(&mut all, left, mask)?;
        drop(calls);
        fds.copy_from_slice(&all[1..]);
        match (count, due_ns) {
            (0, Some(_)) => {
                self.take_due();
                Ok(None)
            }
            (count, _) => Ok(Some(count)),
        }
    }
}

/// The first descriptor of a `ppoll` that no other thread ends.
pub(super) const NO_DOORBELL: libc::pollfd = libc::pollfd {
    fd: -1,
    events: 0,
    revents: 0,
};
