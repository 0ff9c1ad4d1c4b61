//! The part of a memif slot that slot 0 alone has: the connections, and queues without an engine.

use slipstack_mem::now_ns;

use super::sleep::{await_readable, clear, leave_bells};
use super::{MemifSlot, Source};
use crate::device::Sink;
use crate::memif::guard::Part;
use crate::memif::ring::Connection;
use std::os::fd::AsFd;

/// Time for which a server that has been reached is waited for.
const LINK_WAIT_NS: u64 = 300_000_000;

impl MemifSlot {
    /// Gives a server that is there the time to agree, so that the first frames are not lost.
    #[cold]
    fn wait_for_link(&mut self) {
        let end = now_ns() + LINK_WAIT_NS;
        while self.link.is_none() && self.is_connecting() && now_ns() < end {
            await_readable(self.epoll.as_fd());
            self.control();
        }
    }

    fn is_connecting(&self) -> bool {
        matches!(&self.setup.source, Source::Control(control, _) if control.is_connecting())
    }

    /// Lets slot 0 do due work for the connections. The first call waits for a server: a user that
    /// only queries the device makes no connection.
    pub(super) fn control(&mut self) {
        if !std::mem::replace(&mut self.is_awaited, true) {
            self.wait_for_link();
        }
        let Source::Control(control, guard) = &mut self.setup.source else {
            return;
        };
        let outcome = control.turn(&self.setup.board, &mut self.link);
        control.wake(self.setup.board.take_wanted());
        if let Some(former) = outcome.former {
            leave_bells(&self.epoll, &former);
            self.former = Some(former);
        }
        if outcome.has_changed {
            guard.reset(&self.setup.board);
            self.generation = self.setup.board.generation();
            self.begin();
        }
        self.notice = outcome.notice.or_else(|| self.notice.take());
    }

    /// Handles the frames of the queues that are the keeper's for now.
    pub(super) fn rx_as_keeper(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let lanes = self.link.as_ref().map_or(0, Connection::lanes);
        if let Source::Control(_, guard) = &mut self.setup.source {
            guard.begin(lanes);
        }
        let mut done = 0;
        for lane in 0..lanes {
            let tables = (&self.setup.board, &self.setup.steering);
            let part = match (&mut self.setup.source, &self.link) {
                (Source::Control(_, guard), Some(link)) => guard.part(lane, link, tables),
                _ => Part::None,
            };
            if part == Part::None {
                continue;
            }
            let before = self.link.as_ref().map(|link| {
                // As in `rouse`.
                clear(link.rx_bell(lane));
                link.rx_position(lane)
            });
            let has_room = budget > done;
            done += self.rx_lane(lane, budget - done, sink);
            if part == Part::Stalled
                && let (Source::Control(_, guard), Some(link)) =
                    (&mut self.setup.source, &self.link)
            {
                let position = link.rx_position(lane);
                let is_stuck = before == Some(position) && has_room && link.has_rx(lane);
                guard.note_taken(lane, position, is_stuck);
            }
        }
        if let (Source::Control(_, guard), Some(link)) = (&mut self.setup.source, &self.link) {
            let tables = (&self.setup.board, &self.setup.steering);
            guard.end(link, tables);
            guard.hear(&self.epoll, link, tables);
        }
        done
    }
}
