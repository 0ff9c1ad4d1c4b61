//! Connections that wait at a listener until its program accepts them, and the time since when none
//! has been accepted.
//!
//! The engine sees the connections that a program accepts, but not whether it waits for them. If
//! nothing is accepted from a listener for a while, its program is taken to be away: it computes,
//! waits for a lock, or is busy with something else.

use slipstack_stack::Instant;

/// Time for which connections wait for a program that accepts none. Most are only busy, and to part
/// with connections has its price.
const PATIENCE_NS: u64 = 2_000_000;
/// A program that was away itself, and its engine with it, has this time more from the first turn
/// after that.
const GRACE_NS: u64 = 2_000_000;
/// Interval of checks while there is no other listener.
const AGAIN_NS: u64 = 10_000_000;

/// Connections of a listener; counts since it was made.
#[derive(Debug)]
pub(crate) struct AcceptQueue {
    /// Given to the program, by the stack or by other listeners.
    offered: u64,
    /// Connections of the stack that no program could take.
    refused: u64,
    /// Connections that came from other listeners.
    passed_in: u64,
    /// Offered connections that were taken back.
    withdrawn: u64,
    /// Offered connections that the program has accepted, by its own count.
    accepted: u64,
    /// The number of connections that have left the queue, as last reported to the stack.
    reported: u64,
    /// Until when the program is waited for, if something waits.
    due_at: Instant,
    /// The deadline is the additional time.
    is_grace: bool,
}

impl Default for AcceptQueue {
    fn default() -> AcceptQueue {
        AcceptQueue {
            offered: 0,
            refused: 0,
            passed_in: 0,
            withdrawn: 0,
            accepted: 0,
            reported: 0,
            due_at: Instant::FAR_FUTURE,
            is_grace: false,
        }
    }
}

impl AcceptQueue {
    /// Gives when the next look is due.
    pub(crate) fn on_offered(&mut self, now: Instant) -> Instant {
        self.offered += 1;
        if self.due_at == Instant::FAR_FUTURE {
            self.wait_for(now, PATIENCE_NS, false);
        }
        self.due_at
    }

    fn wait_for(&mut self, now: Instant, ns: u64, is_grace: bool) {
        self.due_at = Instant(now.0 + ns);
        self.is_grace = is_grace;
    }

    pub(crate) fn on_refused(&mut self) {
        self.refused += 1;
    }

    /// Counts a connection that came from another listener.
    pub(crate) fn on_passed_in(&mut self) {
        self.passed_in += 1;
    }

    pub(crate) fn on_withdrawn(&mut self) {
        self.withdrawn += 1;
    }

    /// Number of connections that wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.offered - self.withdrawn - self.accepted
    }

    /// Notes how many connections the program has accepted. Returns how many connections have left
    /// the stack's accept queue in total (wrapping) if that has changed.
    pub(crate) fn look(&mut self, accepted: u64, now: Instant) -> Option<u32> {
        let accepted = accepted.clamp(self.accepted, self.offered - self.withdrawn);
        if accepted != self.accepted {
            self.accepted = accepted;
            self.wait_for(now, PATIENCE_NS, false);
        }
        if self.waiting() == 0 {
            self.due_at = Instant::FAR_FUTURE;
        }
        let total = (self.accepted + self.refused + self.withdrawn).wrapping_sub(self.passed_in);
        if total == self.reported {
            return None;
        }
        self.reported = total;
        Some(total as u32)
    }

    /// Returns when [`AcceptQueue::is_left`] is due; `FAR_FUTURE` if no connection waits.
    pub(crate) fn due_at(&self) -> Instant {
        self.due_at
    }

    /// Returns whether the waiting connections should go to other listeners. If none takes them, it
    /// is called again later.
    pub(crate) fn is_left(&mut self, now: Instant) -> bool {
        if now < self.due_at {
            return false;
        }
        let is_left = self.is_grace;
        self.wait_for(now, if is_left { AGAIN_NS } else { GRACE_NS }, true);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn is_left_at(queue: &mut AcceptQueue, ms: u64) -> bool {
        queue.is_left(Instant(ms * MS))
    }

    #[test]
    fn unaccepted_connections_are_given_up_after_a_time() {
        let mut queue = AcceptQueue::default();
        queue.on_offered(Instant(0));
        assert!(!is_left_at(&mut queue, 2));
        assert!(is_left_at(&mut queue, 4));
        assert!(!is_left_at(&mut queue, 5));
        assert!(is_left_at(&mut queue, 14), "nobody took it");
        queue.on_withdrawn();
        assert_eq!(queue.look(0, Instant(14 * MS)), Some(1));
        assert_eq!((queue.waiting(), queue.due_at()), (0, Instant::FAR_FUTURE));
    }

    #[test]
    fn a_program_that_comes_back_late_has_time_to_accept() {
        let mut queue = AcceptQueue::default();
        queue.on_offered(Instant(0));
        queue.on_offered(Instant(0));
        assert!(!is_left_at(&mut queue, 500));
        assert_eq!(queue.look(1, Instant(501 * MS)), Some(1));
        assert!(!is_left_at(&mut queue, 503));
        assert_eq!(queue.waiting(), 1);
    }

    #[test]
    fn a_connection_from_another_listener_takes_no_room_in_the_backlog() {
        let mut queue = AcceptQueue::default();
        queue.on_offered(Instant(0));
        queue.on_passed_in();
        assert_eq!(queue.look(0, Instant(0)), Some(u32::MAX));
        assert_eq!(queue.look(1, Instant(0)), Some(0));
    }

    #[test]
    fn false_counts_of_accepted_connections_do_no_harm() {
        let mut queue = AcceptQueue::default();
        queue.on_offered(Instant(0));
        assert_eq!(queue.look(u64::MAX, Instant(0)), Some(1));
        assert_eq!(queue.look(0, Instant(0)), None);
        assert_eq!(queue.waiting(), 0);
    }
}
