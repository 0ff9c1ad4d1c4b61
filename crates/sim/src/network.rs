//! The emulated link: one broadcast domain that loses, duplicates, reorders, corrupts, delays and
//! queues, all from one seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use slipstack_stack::rng::Rng;
use slipstack_stack::{Instant, RxChecksum, RxMeta};

/// Shares are in hundredths of a percent: 500 = 5 %.
#[derive(Clone, Copy, Debug, Default)]
pub struct Impairments {
    pub loss: u32,
    pub duplication: u32,
    pub reordering: u32,
    pub corruption: u32,
    /// One way, in nanoseconds.
    pub delay_ns: u64,
    /// A reordered frame is late by up to this.
    pub reorder_ns: u64,
    /// Bits per second of each sender; 0 = no limit.
    pub rate: u64,
    /// Bytes that wait for the rate; more are lost. 0 = no limit.
    pub queue_len_max: u64,
}

impl Impairments {
    /// 5 % lost, 5 % doubled, 10 % reordered, 1 % corrupted.
    pub const ROUGH: Self = Self {
        loss: 500,
        duplication: 500,
        reordering: 1000,
        corruption: 100,
        delay_ns: 5_000_000,
        reorder_ns: 20_000_000,
        rate: 0,
        queue_len_max: 0,
    };
}

/// A frame on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flying {
    at: Instant,
    /// Breaks ties in the order of sending.
    number: u64,
    to: usize,
    bytes: Vec<u8>,
    has_partial_checksum: bool,
    is_super_frame: bool,
}

/// What arrived where.
#[derive(Debug)]
pub struct Arrival {
    pub to: usize,
    pub bytes: Vec<u8>,
    pub meta: RxMeta,
}

#[derive(Debug)]
pub struct Network {
    impairments: Impairments,
    rng: Rng,
    flying: BinaryHeap<Reverse<Flying>>,
    sent: u64,
    macs: Vec<[u8; 6]>,
    /// When each sender's port has sent everything it was given.
    busy_until: Vec<Instant>,
    /// Set while the link is cut.
    pub is_cut: bool,
}

impl Network {
    pub fn new(impairments: Impairments, rng: Rng, macs: Vec<[u8; 6]>) -> Self {
        let busy_until = vec![Instant::ZERO; macs.len()];
        Self {
            impairments,
            rng,
            flying: BinaryHeap::new(),
            sent: 0,
            macs,
            busy_until,
            is_cut: false,
        }
    }

    pub fn set_impairments(&mut self, impairments: Impairments) {
        self.impairments = impairments;
    }

    /// Frames on their way.
    pub fn flying_len(&self) -> usize {
        self.flying.len()
    }

    pub fn next_arrival(&self) -> Option<Instant> {
        self.flying.peek().map(|Reverse(frame)| frame.at)
    }

    /// Takes the next frame that has arrived by `now`.
    pub fn pop_arrival(&mut self, now: Instant) -> Option<Arrival> {
        if self.next_arrival()? > now {
            return None;
        }
        let Reverse(frame) = self.flying.pop()?;
        let checksum = match frame.has_partial_checksum {
            true => RxChecksum::Partial,
            false => RxChecksum::Unknown,
        };
        let meta = RxMeta {
            checksum,
            gso: frame.is_super_frame,
            local: false,
        };
        Some(Arrival {
            to: frame.to,
            bytes: frame.bytes,
            meta,
        })
    }

    /// A frame leaves a host.
    pub fn send(&mut self, now: Instant, from: usize, bytes: &[u8], meta: RxMeta) {
        let Some(left_at) = self.pass_queue(now, from, bytes.len() as u64) else {
            return;
        };
        let dst = bytes.get(..6).unwrap_or(&[0; 6]).to_vec();
        let is_group = dst[0] & 1 == 1;
        for to in 0..self.macs.len() {
            if to != from && (is_group || self.macs[to][..] == dst[..]) {
                self.fly(left_at, to, bytes, meta);
            }
        }
    }

    /// The sender's queue and rate; `None` = the queue is full.
    fn pass_queue(&mut self, now: Instant, from: usize, len: u64) -> Option<Instant> {
        let Impairments {
            rate,
            queue_len_max,
            ..
        } = self.impairments;
        if rate == 0 {
            return Some(now);
        }
        let waiting_ns = self.busy_until[from].nanos_since(now);
        let waiting = (u128::from(waiting_ns) * u128::from(rate) / 8_000_000_000) as u64;
        if queue_len_max != 0 && waiting + len > queue_len_max {
            return None;
        }
        let start = self.busy_until[from].max(now);
        self.busy_until[from] = start.plus_nanos(len * 8_000_000_000 / rate);
        Some(self.busy_until[from])
    }

    fn fly(&mut self, left_at: Instant, to: usize, bytes: &[u8], meta: RxMeta) {
        if self.is_cut || self.chance(self.impairments.loss) {
            return;
        }
        let copies = if self.chance(self.impairments.duplication) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let mut bytes = bytes.to_vec();
            if self.chance(self.impairments.corruption) {
                self.corrupt(&mut bytes);
            }
            let mut at = left_at.plus_nanos(self.impairments.delay_ns);
            if self.chance(self.impairments.reordering) {
                let late = self.rng.next_u64() % self.impairments.reorder_ns.max(1);
                at = at.plus_nanos(late);
            }
            self.sent += 1;
            self.flying.push(Reverse(Flying {
                at,
                number: self.sent,
                to,
                bytes,
                has_partial_checksum: meta.checksum == RxChecksum::Partial,
                is_super_frame: meta.gso,
            }));
        }
    }

    /// One bit, which every checksum notices, or a cut, which every length notices.
    fn corrupt(&mut self, bytes: &mut Vec<u8>) {
        if self.rng.below(10) == 0 {
            bytes.truncate(self.rng.below(bytes.len() as u32) as usize);
            return;
        }
        let bit = self.rng.below(bytes.len() as u32 * 8);
        bytes[bit as usize / 8] ^= 1 << (bit % 8);
    }

    fn chance(&mut self, share: u32) -> bool {
        share != 0 && self.rng.below(10_000) < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]];

    fn network(impairments: Impairments) -> Network {
        Network::new(impairments, Rng::new(&[3; 32]), MACS.to_vec())
    }

    fn frame_to(dst: [u8; 6], len: usize) -> Vec<u8> {
        let mut frame = vec![0; len];
        frame[..6].copy_from_slice(&dst);
        frame
    }

    #[test]
    fn unicast_reaches_one_and_broadcast_all_others() {
        let mut network = network(Impairments {
            delay_ns: 100,
            ..Impairments::default()
        });
        network.send(Instant::ZERO, 0, &frame_to(MACS[2], 60), RxMeta::UNKNOWN);
        network.send(Instant::ZERO, 0, &frame_to([0xff; 6], 60), RxMeta::UNKNOWN);
        assert!(network.pop_arrival(Instant(99)).is_none());
        let to: Vec<_> = std::iter::from_fn(|| network.pop_arrival(Instant(100)))
            .map(|a| a.to)
            .collect();
        assert_eq!(to, [2, 1, 2]);
    }

    #[test]
    fn the_rate_spaces_frames_and_the_queue_is_bounded() {
        let impairments = Impairments {
            rate: 8_000_000,
            queue_len_max: 5000,
            ..Impairments::default()
        };
        let mut network = network(impairments);
        for _ in 0..10 {
            network.send(Instant::ZERO, 0, &frame_to(MACS[1], 1000), RxMeta::UNKNOWN);
        }
        assert_eq!(network.flying_len(), 5);
        assert_eq!(
            network.next_arrival(),
            Some(Instant(1_000_000)),
            "1000 bytes at 1 MB/s"
        );
    }

    #[test]
    fn impairments_have_their_shares() {
        let mut network = network(Impairments {
            delay_ns: 0,
            ..Impairments::ROUGH
        });
        let sent = 20_000;
        for _ in 0..sent {
            network.send(Instant::ZERO, 0, &frame_to(MACS[1], 100), RxMeta::UNKNOWN);
        }
        let arrived: Vec<_> =
            std::iter::from_fn(|| network.pop_arrival(Instant::FAR_FUTURE)).collect();
        // 95 % arrive, 5 % of them twice.
        let share = arrived.len() as f64 / f64::from(sent);
        assert!((0.98..1.01).contains(&share), "{share}");
        let damaged = arrived
            .iter()
            .filter(|a| a.bytes != frame_to(MACS[1], 100))
            .count();
        let share = damaged as f64 / f64::from(sent);
        assert!((0.007..0.013).contains(&share), "{share}");
    }
}
