//! Rare tasks of a turn, such as an operator's inquiry: one flag says whether any is due.

use slipstack_stack::Instant;

use crate::engine::Engine;

impl Engine {
    /// Returns whether there is something to do now: while there is a filter, each turn asks.
    #[inline]
    pub(crate) fn are_chores_due(&self, now: Instant) -> bool {
        self.pending_inquiry.is_some()
            || self.stack.has_filter_log()
            || self.filter_due.is_some_and(|due| due <= now)
    }

    /// Answers an operator, and looks after the packet filter.
    #[inline(never)]
    pub(crate) fn do_chores(&mut self, now: Instant) -> bool {
        let progress = self.run_inquiry(now);
        self.tend_filter(now);
        self.renew_chores();
        progress
    }

    /// Called where a rare task begins or ends.
    pub(crate) fn renew_chores(&mut self) {
        let has_filter = self.filter_due.is_some() || self.stack.has_filter();
        self.has_chores = self.pending_inquiry.is_some() || has_filter;
    }
}
