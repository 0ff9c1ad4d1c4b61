//! The wire behind the queue: loss, duplication, damage, delay and reordering.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use slipstack_stack::Instant;
use slipstack_stack::rng::Rng;

use super::Delivery;
use super::counters::{DropReason, LinkCounters};
use super::loss::LossState;
use super::params::LinkParams;

#[derive(Debug)]
pub(super) struct Wire<T> {
    flying: BinaryHeap<Reverse<Flying<T>>>,
    sent: u64,
    loss: LossState,
    /// Time at which the last frame that keeps its place arrives.
    in_order_until: Instant,
}

/// A frame on its way; the earliest is the smallest.
#[derive(Debug)]
struct Flying<T> {
    /// Ties are broken in the order of sending.
    number: u64,
    delivery: Delivery<T>,
}

impl<T> Default for Wire<T> {
    fn default() -> Self {
        Self {
            flying: BinaryHeap::new(),
            sent: 0,
            loss: LossState::default(),
            in_order_until: Instant::ZERO,
        }
    }
}

impl<T: Copy> Wire<T> {
    pub fn len(&self) -> usize {
        self.flying.len()
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.flying.peek().map(|Reverse(flying)| flying.delivery.at)
    }

    pub fn pop(&mut self, now: Instant) -> Option<Delivery<T>> {
        if self.next_deadline()? > now {
            return None;
        }
        self.flying.pop().map(|Reverse(flying)| flying.delivery)
    }

    pub fn carry(
        &mut self,
        left_at: Instant,
        bytes: Vec<u8>,
        tag: T,
        params: &LinkParams,
        rng: &mut Rng,
        counters: &mut LinkCounters,
    ) -> Result<(), DropReason> {
        if self.loss.is_lost(params.loss, rng) {
            counters.on_drop(DropReason::Lost);
            return Err(DropReason::Lost);
        }
        if params.duplication.happens(rng) {
            counters.duplicated += 1;
            self.fly(left_at, bytes.clone(), tag, params, rng, counters);
        }
        self.fly(left_at, bytes, tag, params, rng, counters);
        Ok(())
    }

    fn fly(
        &mut self,
        left_at: Instant,
        mut bytes: Vec<u8>,
        tag: T,
        params: &LinkParams,
        rng: &mut Rng,
        counters: &mut LinkCounters,
    ) {
        if params.corruption.happens(rng) {
            counters.corrupted += 1;
            corrupt(&mut bytes, rng);
        }
        let mut at = left_at.plus_nanos(params.delay_ns);
        if params.jitter_ns != 0 {
            at = at.plus_nanos(rng.next_u64() % (params.jitter_ns + 1));
        }
        if params.reordering.happens(rng) {
            counters.reordered += 1;
            at = at.plus_nanos(rng.next_u64() % params.reorder_ns.max(1));
        } else {
            at = at.max(self.in_order_until);
            self.in_order_until = at;
        }
        self.sent += 1;
        self.flying.push(Reverse(Flying {
            number: self.sent,
            delivery: Delivery { at, bytes, tag },
        }));
    }
}

/// One bit, which every checksum notices, or a cut, which every length notices. ARP has only
/// Ethernet's checksum, which is not there: its frames are cut.
fn corrupt(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let is_arp = bytes.get(12..14) == Some(&[0x08, 0x06]);
    if rng.below(10) == 0 || is_arp {
        bytes.truncate(rng.below(bytes.len() as u32) as usize);
        return;
    }
    let bit = rng.below(bytes.len() as u32 * 8);
    if let Some(byte) = bytes.get_mut(bit as usize / 8) {
        *byte ^= 1 << (bit % 8);
    }
}

impl<T> Flying<T> {
    fn key(&self) -> (Instant, u64) {
        (self.delivery.at, self.number)
    }
}

impl<T> PartialEq for Flying<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Flying<T> {}

impl<T> PartialOrd for Flying<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Flying<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}
