//! An engine's side of the dispatcher: passes datagrams on and takes the answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use slipstack_mem::Doorbell;

use super::worker::{EngineLane, EnginePost, Worker};
use super::{Dispatch, Head, Kept, Shape};
use crate::connections::DatagramSocketId;
use crate::counts::Counts;
use crate::received::Datagram;

/// Datagrams in a row for one worker, so that each gets bursts.
const RUN: usize = 8;
/// Answers of a worker that the engine sends in one turn.
const ANSWERS_AT_ONCE: usize = 256;

/// See the [module documentation](self).
pub(crate) struct Dispatcher {
    shape: Shape,
    lanes: Vec<EngineLane>,
    engine: Arc<EnginePost>,
    /// Workers that run at the end of the engine's turn.
    inline: Vec<Worker>,
    /// The lane of the next datagram, and how many it got in a row.
    next: usize,
    run: usize,
    /// The lane whose answers are sent first.
    first: usize,
    /// Hundredths of a datagram that the engine has not kept yet.
    owed: u8,
}

impl Dispatcher {
    pub(crate) fn new(dispatch: &Dispatch, bell: Option<Doorbell>) -> Dispatcher {
        let engine = Arc::new(EnginePost::new(bell));
        let (lanes, inline) = dispatch.workers.join(&engine);
        Dispatcher {
            shape: match lanes.is_empty() {
                true => Shape::Run,
                false => dispatch.shape,
            },
            lanes,
            engine,
            inline,
            next: 0,
            run: 0,
            first: 0,
            owed: 0,
        }
    }

    /// Returns whether the next datagram is the workers' before its handler has seen it.
    pub(crate) fn is_for_workers(&mut self) -> bool {
        match self.shape {
            Shape::Run | Shape::Mixed(Kept::Quick) => false,
            Shape::Pipeline => true,
            Shape::Mixed(Kept::Percent(percent)) => {
                self.owed += percent.min(100);
                let is_own = self.owed >= 100;
                if is_own {
                    self.owed -= 100;
                }
                !is_own
            }
        }
    }

    /// Returns whether a handler may pass its datagram on.
    pub(crate) fn may_pass(&self) -> bool {
        self.shape == Shape::Mixed(Kept::Quick)
    }

    /// Hands a datagram to a worker; it is dropped and counted if all rings are full.
    pub(crate) fn pass(
        &mut self,
        socket: DatagramSocketId,
        datagram: &Datagram<'_>,
        counts: &Counts,
    ) {
        let head = Head {
            socket,
            peer: datagram.from,
            local: datagram.to,
        };
        let pieces = datagram.payload.pieces();
        for _ in 0..self.lanes.len() {
            let lane = &mut self.lanes[self.next];
            if lane.questions.push(head, &pieces) {
                lane.is_fresh = true;
                counts.passed.add(1);
                self.run += 1;
                if self.run >= RUN {
                    self.turn_to_next();
                }
                return;
            }
            self.turn_to_next();
        }
        counts.ring_full.add(1);
    }

    fn turn_to_next(&mut self) {
        self.run = 0;
        self.next = (self.next + 1) % self.lanes.len();
    }

    /// Wakes each worker that has got something in this turn.
    pub(crate) fn flush(&mut self) {
        let mut is_any = false;
        for lane in &mut self.lanes {
            if std::mem::take(&mut lane.is_fresh) {
                is_any = true;
                lane.worker.sleeper.wake();
            }
        }
        if is_any && self.run > 0 {
            self.turn_to_next();
        }
        for worker in &mut self.inline {
            while worker.turn() {}
        }
    }

    #[inline]
    pub(crate) fn has_answers(&self) -> bool {
        self.engine.has_answers()
    }

    /// Hands answers to `send`, as long as it takes them. Returns whether it has refused one,
    /// which stays.
    pub(crate) fn take_answers(
        &mut self,
        mut send: impl FnMut(DatagramSocketId, SocketAddr, SocketAddr, &[u8]) -> bool,
    ) -> bool {
        self.engine.clear();
        let (mut is_refused, mut are_left) = (false, false);
        self.first = (self.first + 1) % self.lanes.len();
        let (later, earlier) = self.lanes.split_at_mut(self.first);
        for lane in earlier.iter_mut().chain(later) {
            for _ in 0..ANSWERS_AT_ONCE {
                let taken = lane.answers.take(|head, answer| {
                    let is_sent = send(head.socket, head.peer, head.local, answer);
                    is_refused = !is_sent;
                    is_sent
                });
                if !taken {
                    break;
                }
            }
            are_left |= lane.answers.waiting() > 0;
            fence(Ordering::SeqCst);
            if lane.is_stalled.load(Ordering::Relaxed)
                && lane.is_stalled.swap(false, Ordering::SeqCst)
            {
                lane.worker.sleeper.wake();
            }
            if is_refused {
                return true;
            }
        }
        if are_left {
            self.engine.keep();
        }
        false
    }
}
