//! The keeper's care for queues whose engines take nothing.
//!
//! A peer rings no bell while an engine is at work, and only the engines of a queue sleep on its
//! bell. Frames of other slots would stay behind those of an engine that has stopped. So the keeper
//! looks at the queues of engines at intervals while frames come: where some wait and none has been
//! taken since its last look, it takes them itself.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::board::Board;
use super::ring::Connection;
use crate::steering::Steering;

/// Interval of the looks, in nanoseconds.
const LOOK_EVERY_NS: i64 = 5_000_000;

/// The part of a queue that the keeper has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// No engine has it: the keeper takes its frames.
    All,
    /// Frames wait, and its engines have taken none since the last look.
    Stalled,
    /// Engines take its frames.
    None,
}

#[derive(Debug)]
pub(super) struct Guard {
    timer: OwnedFd,
    /// The next look comes by the timer.
    is_running: bool,
    /// The timer has brought this look about.
    is_due: bool,
    /// An engine works at its queue, or frames wait there.
    is_needed: bool,
    /// Positions of the queues at the last look, where frames waited.
    positions: Vec<Option<u16>>,
}

impl Guard {
    pub(super) fn new() -> io::Result<Guard> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Guard {
            timer: slipstack_mem::raised(timer),
            is_running: false,
            is_due: false,
            is_needed: false,
            positions: Vec::new(),
        })
    }

    /// Readable when a look is due.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Begins a look, at each of so many queues.
    pub(super) fn begin(&mut self, lanes: usize) {
        self.positions.resize(lanes, None);
        self.is_due = self.is_running && rustix::io::read(&self.timer, &mut [0; 8]).is_ok();
        self.is_running &= !self.is_due;
        self.is_needed = false;
    }

    /// Returns which part of a queue the keeper has to do. An engine that has stopped does not keep
    /// the peer from ringing any more.
    pub(super) fn part(
        &mut self,
        lane: usize,
        link: &Connection,
        (board, steering): (&Board, &Steering),
    ) -> Part {
        if !board.has_engine(lane, steering) {
            return Part::All;
        }
        if self.is_running {
            return Part::None;
        }
        let position = link.has_rx(lane).then(|| link.rx_position(lane));
        let before = std::mem::replace(&mut self.positions[lane], position);
        self.is_needed |= position.is_some() || link.is_rx_masked(lane);
        if !self.is_due || position.is_none() || before != position {
            return Part::None;
        }
        link.set_rx_masked(lane, false);
        Part::Stalled
    }

    /// Ends a look: another one follows while engines are at work, and after a bell of theirs.
    pub(super) fn end(&mut self, link: &Connection, (board, steering): (&Board, &Steering)) {
        if self.is_running {
            return;
        }
        let mut engines = (0..link.lanes()).filter(|lane| board.has_engine(*lane, steering));
        let may_stop = self.is_due && !self.is_needed;
        if may_stop {
            board.set_guarded(false);
        }
        // An engine that masked its queue before it could see that has rung no bell.
        let is_needed = match may_stop {
            true => engines.any(|lane| link.is_rx_masked(lane)),
            false => engines.next().is_some(),
        };
        if is_needed {
            board.set_guarded(true);
            self.start();
        }
    }

    /// Returns whether the bells of engines' queues are to be heard: not while the timer runs.
    pub(super) fn is_listening(&self) -> bool {
        !self.is_running
    }

    fn start(&mut self) {
        let timing = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: 0,
                tv_nsec: LOOK_EVERY_NS,
            },
        };
        self.is_running = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timing).is_ok();
    }
}

/// Has the keeper sleep on the bells of queues without an engine, and with `is_listening` on those
/// of the others too, which their engines clear.
pub(super) fn hear(
    epoll: &OwnedFd,
    link: &Connection,
    (board, steering): (&Board, &Steering),
    is_listening: bool,
) {
    for lane in 0..link.lanes() {
        let flags = match is_listening || !board.has_engine(lane, steering) {
            true => epoll::EventFlags::IN,
            false => epoll::EventFlags::empty(),
        };
        let data = epoll::EventData::new_u64(0);
        let bell = link.rx_bell(lane);
        if epoll::modify(epoll, bell, data, flags).is_err() {
            let _ = epoll::add(epoll, bell, data, flags);
        }
    }
}
