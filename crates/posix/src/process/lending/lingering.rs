//! The end of a process whose connections others use.
//!
//! On the kernel a connection lives as long as any process has it. Here its bytes go through the
//! process that made it, so that process stays until the others have closed it: with only those
//! connections open, so that other processes see its files and listeners closed.

use std::sync::atomic::Ordering;

use crate::lending::post::Until;
use crate::outcome::Divert;
use crate::process::Process;
use crate::process::wait::Plan;
use crate::ready::Look;

/// Interval at which the wait of a program without a steward's thread moves bytes.
const LOOK_NS: u64 = 2_000_000;

impl Process {
    /// Whether others may use sockets of this process. The steward's thread, if there is one, is
    /// known as one of ours when this returns.
    pub fn has_borrowers(&self) -> bool {
        let post = &self.lending.post;
        let has_any = post.has_pumps() || post.has_steward() || post.has_inline_users();
        if has_any {
            self.lending.post.await_steward();
        }
        has_any
    }

    /// Called when the program ends: options and ends that a stopped owner has not taken are not
    /// lost.
    pub fn send_kept(&self) {
        self.lending.send_kept();
    }

    /// Serves the users of this process's connections after the program has ended. Returns when
    /// there are none. Not for a process with other threads, which would go on too.
    pub fn outlast_borrowers(&'static self) {
        if !self.has_borrowers() {
            return;
        }
        self.lending.post.await_steward();
        self.close_sockets(0, u32::MAX);
        let Some(until) = self.lending.post.begin_to_end() else {
            return;
        };
        match until {
            Until::Thread(steward) => steward.join(),
            Until::Here(steward) => steward.run_here(),
        }
        self.lending.post.is_ending.store(false, Ordering::Relaxed);
    }
    /// As [`Process::wait`], doing a steward's work between short sleeps.
    #[cold]
    pub(crate) fn wait_and_lend<T>(
        &self,
        plan: &Plan<'_>,
        check: &mut impl FnMut(Look) -> Result<Option<T>, Divert>,
    ) -> Result<Option<T>, Divert> {
        loop {
            let has_more = self.lending.post.run_inline();
            let now = self.kernel.now_ns();
            let until = now + if has_more { 0 } else { LOOK_NS };
            let deadline = plan.deadline_ns.unwrap_or(u64::MAX);
            let part = Plan {
                deadline_ns: Some(until.min(deadline)),
                ..*plan
            };
            let found = self.wait_here(&part, &mut *check)?;
            if found.is_some() || deadline <= now {
                return Ok(found);
            }
        }
    }
}
