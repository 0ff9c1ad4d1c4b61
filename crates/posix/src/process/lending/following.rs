//! The order of what an owner writes to a connection and what others have written to it before.
//!
//! Bytes of other processes come by a pair, and the steward puts them into the send ring. A process
//! that knows that another one has written, because that has ended or has said so, expects its own
//! bytes behind them, and the end of the direction too.

use std::sync::Arc;
use std::time::Duration;

use crate::errno::Errno;
use crate::outcome::Outcome;
use crate::process::Process;
use crate::process::wait::Plan;
use crate::socket::Stream;
use crate::socket::description::Description;

/// Time in which a steward passes on what has come, unless the connection has no room.
const PROMPT_NS: u64 = 20_000_000;
/// Interval at which it is looked meanwhile.
const LOOK: Duration = Duration::from_micros(50);
/// Interval at which a call that waits for room looks.
const SLOW_LOOK_NS: u64 = 5_000_000;
/// Time for which a call that has room waits: messages of many other processes have no end.
const END_NS: u64 = 1_000_000_000;
/// Time for which a non-blocking call that has room waits.
const ROOM_NS: u64 = 200_000_000;

impl Process {
    /// Waits until what other processes have written to the connection is in its ring.
    ///
    /// # Errors
    /// EAGAIN: there is no room for it, as there is none for the caller's bytes. Those of a wait.
    #[inline]
    pub(crate) fn follow_users(
        &self,
        socket: &Arc<Description>,
        is_nonblocking: bool,
    ) -> Outcome<()> {
        match socket.lent.is_lent() && self.lending.post.has_unmoved(socket) {
            true => self.follow_slowly(socket, is_nonblocking),
            false => Ok(()),
        }
    }

    #[cold]
    fn follow_slowly(&self, socket: &Arc<Description>, is_nonblocking: bool) -> Outcome<()> {
        if self.follow_for(socket, PROMPT_NS) {
            return Ok(());
        }
        let has_room = || socket.readiness() & libc::EPOLLOUT as u32 != 0;
        if is_nonblocking {
            socket.lent.await_moved();
            // No event would follow while there is room.
            let is_done = || !self.lending.post.has_unmoved(socket);
            return match is_done() || has_room() && (self.follow_for(socket, ROOM_NS) || has_room())
            {
                true => Ok(()),
                false => Err(Errno::EAGAIN.into()),
            };
        }
        let patient_until = self.kernel.now_ns() + END_NS;
        let plan = Plan::of_call(&*self.kernel, socket, &socket.send_timeout_ns, &[]);
        let deadline = plan.deadline_ns.unwrap_or(u64::MAX);
        loop {
            let now = self.kernel.now_ns();
            let part = Plan {
                deadline_ns: Some((now + SLOW_LOOK_NS).min(deadline)),
                ..plan
            };
            let post = &self.lending.post;
            let is_done = self.wait(&part, |_| Ok((!post.has_unmoved(socket)).then_some(())));
            if is_done?.is_some() {
                return Ok(());
            }
            if deadline <= now {
                return Err(Errno::EAGAIN.into());
            }
            if patient_until <= now && has_room() {
                return Ok(());
            }
        }
    }

    /// Shuts the sending direction down, which ends behind what other processes have written.
    ///
    /// # Errors
    /// That of [`Stream::shutdown`].
    pub(crate) fn shut_behind_users(
        &self,
        socket: &Arc<Description>,
        stream: &Stream,
        read: bool,
    ) -> Result<(), Errno> {
        let is_settled = stream.has_shut_writing() || !socket.lent.is_lent();
        if is_settled || self.follow_for(socket, PROMPT_NS) {
            return stream.shutdown(read, true);
        }
        // A message that has not been read may bring a pair with bytes in it.
        self.look_for(END_NS, || self.lending.post.has_unread_messages());
        stream.shut_behind_others(read)?;
        // The steward looks after each pair that it reads from, and may have read from the last.
        if !self.lending.post.has_unmoved_bytes(socket) {
            stream.end_after_others();
        }
        Ok(())
    }

    /// Waits, after the end of the connection's direction, until writes of other processes fail.
    pub(crate) fn await_refusals(&self, socket: &Description) {
        self.look_for(PROMPT_NS, || socket.lent.has_writers());
    }

    /// Returns false if it takes longer than `ns`.
    fn follow_for(&self, socket: &Description, ns: u64) -> bool {
        self.look_for(ns, || self.lending.post.has_unmoved(socket))
    }

    /// Looks until it does not go on any more. Returns false if it takes longer than `ns`.
    fn look_for(&self, ns: u64, goes_on: impl Fn() -> bool) -> bool {
        let until = self.kernel.now_ns() + ns;
        while goes_on() {
            if self.kernel.now_ns() >= until {
                return false;
            }
            if !self.lending.post.run_inline() {
                std::thread::sleep(LOOK);
            }
        }
        true
    }
}
