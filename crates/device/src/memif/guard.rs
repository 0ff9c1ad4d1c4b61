//! The keeper's care for queues whose engines take nothing.
//!
//! A peer rings no bell while an engine is at work, and only the engines of a queue sleep on its
//! bell. Frames of other slots would stay behind those of an engine that has stopped. So the keeper
//! looks at the queues of engines at intervals while frames come: where some wait and none has been
//! taken since its last look, it takes them itself, and goes on with the queue until an engine is
//! at work there again.
//!
//! A peer should order its store of a ring's head before its load of the flags by a full fence.
//! Those without one (DPDK's driver, libmemif) may read the flags first, and then do not ring for a
//! frame that they publish just as an engine falls asleep. The next look finds that frame too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use slipstack_mem::PrivateFd;

use super::board::Board;
use super::ring::Connection;
use super::slot::ring;
use crate::steering::Steering;

/// Interval of the looks, in nanoseconds.
const LOOK_EVERY_NS: i64 = 5_000_000;

/// The part of a queue that the keeper has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// No engine has it: the keeper takes its frames.
    All,
    /// The queue's engines have stopped: frames waited, and none was taken between two looks.
    Stalled,
    /// Engines take its frames.
    None,
}

/// A queue at the last look.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The queue's position, where frames waited.
    position: Option<u16>,
    /// The position to which the keeper has come in the place of engines that have stopped.
    taken: Option<u16>,
}

#[derive(Debug)]
pub(super) struct Guard {
    timer: PrivateFd,
    /// The next look comes by the timer.
    is_running: bool,
    /// The timer has brought this look about.
    is_due: bool,
    /// An engine works at its queue, or frames wait there.
    is_needed: bool,
    queues: Vec<Seen>,
}

impl Guard {
    pub(super) fn new() -> io::Result<Guard> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Guard {
            timer: timer.into(),
            is_running: false,
            is_due: false,
            is_needed: false,
            queues: Vec::new(),
        })
    }

    /// Readable when a look is due.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Begins a look, at each of so many queues.
    pub(super) fn begin(&mut self, lanes: usize) {
        self.queues.resize(lanes, Seen::default());
        self.is_due = self.is_running && rustix::io::read(&self.timer, &mut [0; 8]).is_ok();
        self.is_running &= !self.is_due;
        self.is_needed = false;
    }

    /// Starts again with another link.
    pub(super) fn reset(&mut self, board: &Board) {
        self.queues.clear();
        self.set_timer(0);
        board.set_guarded(false);
    }

    /// Returns whether the keeper does the work of engines that have stopped.
    pub(super) fn is_stalled(&self, lane: usize) -> bool {
        self.queues.get(lane).is_some_and(|it| it.taken.is_some())
    }

    /// Records the position to which the keeper has come at a queue that is [`Part::Stalled`].
    /// `is_stuck`: it could take nothing of what waits, as where an engine has stopped while it had
    /// the ring; the next look tries again.
    pub(super) fn note_taken(&mut self, lane: usize, position: u16, is_stuck: bool) {
        self.queues[lane] = match is_stuck {
            true => Seen {
                position: Some(position),
                taken: None,
            },
            false => Seen {
                position: None,
                taken: Some(position),
            },
        };
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
            self.queues[lane] = Seen::default();
            return Part::All;
        }
        if let Some(taken) = self.queues[lane].taken {
            if taken == link.rx_position(lane) && !link.is_rx_masked(lane) {
                return Part::Stalled;
            }
            // An engine works again. The keeper may have cleared a bell that was for it.
            self.queues[lane] = Seen::default();
            ring(link.rx_bell(lane));
        }
        if self.is_running {
            return Part::None;
        }
        let position = link.has_rx(lane).then(|| link.rx_position(lane));
        let before = std::mem::replace(&mut self.queues[lane].position, position);
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
        let has_engine = |lane: &usize| board.has_engine(*lane, steering);
        let mut engines = (0..link.lanes()).filter(has_engine);
        let may_stop =
            self.is_due && !self.is_needed || engines.clone().all(|lane| self.is_stalled(lane));
        if may_stop && board.is_guarded() {
            board.set_guarded(false);
        }
        // An engine that masked its queue before it could see that has rung no bell.
        let is_needed = !may_stop || engines.any(|lane| link.is_rx_masked(lane));
        if is_needed {
            self.is_running = self.set_timer(LOOK_EVERY_NS);
            board.set_guarded(self.is_running);
        }
    }

    /// Returns whether the bell of an engine's queue is to be heard: while the timer runs, only if
    /// the engine has stopped.
    fn is_listening(&self, lane: usize) -> bool {
        !self.is_running || self.is_stalled(lane)
    }

    /// Has the timer run out once after so many nanoseconds; 0 stops it. Returns whether it runs.
    fn set_timer(&mut self, ns: i64) -> bool {
        self.is_running = false;
        let timing = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: 0,
                tv_nsec: ns,
            },
        };
        let is_set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timing).is_ok();
        is_set && ns > 0
    }

    /// Has the keeper sleep on the bells of queues without an engine at work, and while no timer
    /// runs on those of the others too, which their engines clear.
    pub(super) fn hear(
        &self,
        epoll: &OwnedFd,
        link: &Connection,
        (board, steering): (&Board, &Steering),
    ) {
        for lane in 0..link.lanes() {
            let flags = match self.is_listening(lane) || !board.has_engine(lane, steering) {
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
}
