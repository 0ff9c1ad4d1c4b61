//! The sleeps of a memif slot, and the bells that end them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use super::{KEEPER_SLOT, MemifSlot, Source};
use crate::memif::ring::Connection;

/// Time for which slot 0 is waited for.
const ANSWER_WAIT_NS: i64 = 20_000_000;

impl MemifSlot {
    /// After a sleep: clears the bells that end one. An engine has the peer ring no more until the
    /// next.
    pub(super) fn rouse(&mut self) {
        if !self.is_armed.replace(false) {
            return;
        }
        // Cleared before the rings are looked at, so that no later frame is slept through.
        clear(self.setup.bell.as_fd());
        if let Some(link) = &self.link
            && self.setup.slot != KEEPER_SLOT
        {
            // Another engine of this queue may sleep.
            if !self.setup.board.has_others(self.lane) {
                link.set_rx_masked(self.lane, true);
            }
            clear(link.rx_bell(self.lane));
            if !self.setup.board.is_guarded() {
                ring(&self.setup.keeper_bell);
            }
        }
    }

    /// Returns whether there is something to do, as far as this slot has to do it.
    pub(super) fn has_due(&self) -> bool {
        let setup = &self.setup;
        let is_own = |link: &Connection, lane: usize| match setup.slot {
            KEEPER_SLOT => self.is_stalled(lane) || !setup.board.has_engine(lane, &setup.steering),
            _ => lane == self.lane && link.lanes() > lane,
        };
        let has_frames = |link: &Connection| {
            (0..link.lanes()).any(|lane| is_own(link, lane) && link.has_rx(lane))
        };
        let is_old = setup.board.generation() != self.seen;
        is_old
            || self.former.is_some()
            || !self.inbox.is_empty()
            || self.link.as_ref().is_some_and(has_frames)
    }

    /// Returns whether the keeper does the work of a queue's engines.
    fn is_stalled(&self, lane: usize) -> bool {
        matches!(&self.setup.source, Source::Control(_, guard) if guard.is_stalled(lane))
    }

    /// Has the peer ring again for the queues of this slot.
    pub(super) fn arm(&self) {
        self.is_armed.set(true);
        let Some(link) = &self.link else { return };
        let setup = &self.setup;
        if setup.slot != KEEPER_SLOT {
            link.set_rx_masked(self.lane, false);
            return;
        }
        for lane in 0..link.lanes() {
            // An engine that was killed may have left it so.
            if link.is_rx_masked(lane) && !setup.board.has_engine(lane, &setup.steering) {
                link.set_rx_masked(lane, false);
            }
        }
    }
}

pub(in crate::memif) fn ring(bell: impl AsFd) {
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

pub(super) fn clear(bell: BorrowedFd<'_>) {
    let _ = rustix::io::read(bell, &mut [0; 8]);
}

pub(super) fn await_readable(fd: BorrowedFd<'_>) {
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: ANSWER_WAIT_NS,
    };
    let _ = poll(
        &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
        Some(&timeout),
    );
}

/// Adds a descriptor to those that end a sleep.
pub(super) fn watch(epoll: &OwnedFd, fd: BorrowedFd<'_>) -> Result<(), rustix::io::Errno> {
    let data = epoll::EventData::new_u64(0);
    match epoll::add(epoll, fd, data, epoll::EventFlags::IN) {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        result => result,
    }
}

/// Bells of a link that has ended wake nobody: other processes may have their descriptors still.
pub(super) fn leave_bells(epoll: &OwnedFd, link: &Connection) {
    for lane in 0..link.lanes() {
        let _ = epoll::delete(epoll, link.rx_bell(lane));
    }
}
