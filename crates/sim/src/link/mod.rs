//! A model of one direction of a link: frames and the time go in, frames and deadlines come out.
//!
//! A frame passes, in this order, an entrance that may be cut or too narrow (MTU), a policer, a
//! queue that is served at a rate and marks or drops (ECN, drop-tail), and a wire that loses,
//! duplicates, damages, delays and reorders. All random decisions come from one generator: the same
//! frames at the same times have the same outcome. The simulator and `slipstack-link` share it; it
//! contains neither a clock nor a device.

mod counters;
mod ecn;
mod loss;
mod params;
mod policer;
mod queue;
pub mod spec;
pub mod too_big;
mod wire;

pub use counters::{DropReason, LinkCounters};
pub use ecn::Codepoint;
pub use loss::Loss;
pub use params::{LinkParams, ParamsError, Policer, QueueParams, Share};

use std::collections::VecDeque;

use slipstack_stack::Instant;
use slipstack_stack::rng::Rng;
use slipstack_wire::ethernet;

use crate::vlan;

use policer::Bucket;
use queue::Queue;
use wire::Wire;

/// A frame that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<T> {
    /// Time at which it was due; polled later, it is late by the difference.
    pub at: Instant,
    pub bytes: Vec<u8>,
    pub tag: T,
}

/// One direction of a link. `T` is the caller's data for each frame.
#[derive(Debug)]
pub struct Link<T> {
    params: LinkParams,
    /// Changes to come, in order of their time.
    changes: VecDeque<(Instant, LinkParams)>,
    rng: Rng,
    policer: Bucket,
    queue: Queue,
    wire: Wire<T>,
    counters: LinkCounters,
}

impl<T: Copy> Link<T> {
    pub fn new(params: LinkParams, rng: Rng) -> Self {
        Self {
            params,
            changes: VecDeque::new(),
            rng,
            policer: Bucket::default(),
            queue: Queue::default(),
            wire: Wire::default(),
            counters: LinkCounters::default(),
        }
    }

    pub fn params(&self) -> &LinkParams {
        &self.params
    }

    pub fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// From now on. Frames that have passed the queue keep the time of their arrival.
    pub fn change(&mut self, params: LinkParams) {
        self.params = params;
    }

    /// A change to come; changes take place in the order of their time.
    pub fn change_at(&mut self, at: Instant, params: LinkParams) {
        let place = self.changes.partition_point(|(other, _)| *other <= at);
        self.changes.insert(place, (at, params));
    }

    /// Frames on their way.
    pub fn len(&self) -> usize {
        self.wire.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether each frame is in transit, delivered, or dropped for a counted reason.
    pub fn balance(&self) -> Result<(), String> {
        let counters = &self.counters;
        let came = counters.offered + counters.duplicated;
        let went = counters.delivered + counters.dropped() + self.len() as u64;
        match came == went {
            true => Ok(()),
            false => Err(format!("of {came} frames {went} are known")),
        }
    }

    /// Time at which the next frame arrives.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.wire.next_deadline()
    }

    /// The next frame that has arrived by `now`.
    pub fn poll(&mut self, now: Instant) -> Option<Delivery<T>> {
        let delivery = self.wire.pop(now)?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += delivery.bytes.len() as u64;
        Some(delivery)
    }

    /// A frame enters. It arrives later, unless the reason is here why it does not.
    pub fn offer(&mut self, now: Instant, mut bytes: Vec<u8>, tag: T) -> Result<(), DropReason> {
        self.apply_changes(now);
        self.counters.offered += 1;
        self.counters.offered_bytes += bytes.len() as u64;
        let left_at = match self.enter(now, &mut bytes) {
            Ok(left_at) => left_at,
            Err(reason) => {
                self.counters.on_drop(reason);
                return Err(reason);
            }
        };
        self.wire.carry(
            left_at,
            bytes,
            tag,
            &self.params,
            &mut self.rng,
            &mut self.counters,
        )
    }

    /// Up to the end of the queue; when the last bit of the frame has left it.
    fn enter(&mut self, now: Instant, bytes: &mut [u8]) -> Result<Instant, DropReason> {
        if self.params.is_cut {
            return Err(DropReason::Cut);
        }
        if self.is_too_big(bytes) {
            return Err(DropReason::TooBig);
        }
        if let Some(policer) = &self.params.policer
            && !self.policer.admit(now, bytes.len() as u64, policer)
        {
            return Err(DropReason::Policed);
        }
        let passage = self.queue.pass(now, bytes.len() as u64, &self.params)?;
        self.counters.queue_bytes_max = self.counters.queue_bytes_max.max(passage.backlog_bytes);
        if passage.is_congested && ecn::mark(bytes) {
            self.counters.marked += 1;
        }
        Ok(passage.left_at)
    }

    /// Returns whether this frame is longer than the MTU.
    pub fn is_too_big(&self, bytes: &[u8]) -> bool {
        let mtu = self.params.mtu as usize;
        let tag_len = vlan::tag_of(bytes).map_or(0, |_| vlan::TAG_LEN);
        mtu != 0 && bytes.len() > mtu + ethernet::HEADER_LEN + tag_len
    }

    fn apply_changes(&mut self, now: Instant) {
        while self.changes.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, params)) = self.changes.pop_front() {
                self.params = params;
            }
        }
    }
}

#[cfg(test)]
mod tests;
