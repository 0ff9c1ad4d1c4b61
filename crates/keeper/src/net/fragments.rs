//! Distribution of fragments to engines. Only the first fragment of a packet has the ports, so the
//! others are matched by the packet's identification.
//!
//! Steering sends every fragment to slot 0. The engine that serves the flow gets the fragments
//! unchanged and reassembles the packet itself.

use std::collections::{HashMap, VecDeque};

use slipstack_device::{RxMeta, SlotSet};
use slipstack_wire::frame_fragment::PacketId;

/// Packets whose slots are known or awaited; the oldest is dropped first.
const PACKETS_MAX: usize = 4096;
/// Frames that wait for the first of their packet, in all; the oldest packet's go first.
const HELD_MAX: usize = 1024;
/// Time for which the slots of a packet are kept: as long as a packet may take (RFC 8200 4.5).
const PATIENCE_NS: u64 = 60_000_000_000;

pub(super) type Frame = (Vec<u8>, RxMeta);

#[derive(Debug)]
enum FragmentTarget {
    /// The slots of the first, as bits: several for a datagram to a group.
    To(SlotSet),
    Unknown(Vec<Frame>),
}

#[derive(Debug)]
struct FragmentRoute {
    until: u64,
    way: FragmentTarget,
}

#[derive(Debug, Default)]
pub(super) struct FragmentRoutes {
    fragment_routes: HashMap<PacketId, FragmentRoute>,
    /// Packets in the order in which they began; some have ended.
    order: VecDeque<(u64, PacketId)>,
    held: usize,
    /// Frames that waited without success.
    pub lost: u64,
}

impl FragmentRoutes {
    /// Records that the first fragment goes to `slots`: fragments that waited for it go before it,
    /// in the order of arrival.
    pub fn begin(&mut self, id: PacketId, slots: SlotSet, now: u64) -> Vec<Frame> {
        let held = self.forget(&id);
        self.insert(id, FragmentTarget::To(slots), now);
        held
    }

    /// Destination of a later fragment. `None`: it waits here for the first.
    pub fn follow(
        &mut self,
        id: PacketId,
        frame: &[u8],
        meta: RxMeta,
        now: u64,
    ) -> Option<SlotSet> {
        match self
            .fragment_routes
            .get_mut(&id)
            .filter(|fragment_route| now < fragment_route.until)
        {
            Some(FragmentRoute {
                way: FragmentTarget::To(slots),
                ..
            }) => return Some(*slots),
            Some(FragmentRoute {
                way: FragmentTarget::Unknown(frames),
                ..
            }) => frames.push((frame.to_vec(), meta)),
            None => {
                let expired = self.forget(&id);
                self.lost += expired.len() as u64;
                self.insert(
                    id,
                    FragmentTarget::Unknown(vec![(frame.to_vec(), meta)]),
                    now,
                );
            }
        }
        self.held += 1;
        while self.held > HELD_MAX && self.drop_oldest() {}
        None
    }

    fn insert(&mut self, id: PacketId, way: FragmentTarget, now: u64) {
        while self.order.len() >= PACKETS_MAX && self.drop_oldest() {}
        let until = now + PATIENCE_NS;
        self.order.push_back((until, id));
        self.fragment_routes
            .insert(id, FragmentRoute { until, way });
    }

    fn forget(&mut self, id: &PacketId) -> Vec<Frame> {
        match self
            .fragment_routes
            .remove(id)
            .map(|fragment_route| fragment_route.way)
        {
            Some(FragmentTarget::Unknown(frames)) => {
                self.held -= frames.len();
                frames
            }
            _ => Vec::new(),
        }
    }

    /// False: there is none.
    fn drop_oldest(&mut self) -> bool {
        let Some((until, id)) = self.order.pop_front() else {
            return false;
        };
        if self
            .fragment_routes
            .get(&id)
            .is_some_and(|fragment_route| fragment_route.until == until)
        {
            self.lost += self.forget(&id).len() as u64;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(identification: u32) -> PacketId {
        PacketId {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            protocol: 17,
            identification,
        }
    }

    #[test]
    fn later_fragments_follow_the_first_and_wait_for_it() {
        let mut fragment_routes = FragmentRoutes::default();
        let meta = RxMeta::VERIFIED;
        assert_eq!(fragment_routes.follow(id(1), b"second", meta, 0), None);
        assert_eq!(fragment_routes.follow(id(1), b"third", meta, 0), None);
        assert_eq!(fragment_routes.follow(id(2), b"another's", meta, 0), None);
        let held = fragment_routes.begin(id(1), 3, 5);
        assert_eq!(
            held,
            [(b"second".to_vec(), meta), (b"third".to_vec(), meta)]
        );
        assert_eq!(fragment_routes.follow(id(1), b"fourth", meta, 6), Some(3));
        assert_eq!(fragment_routes.held, 1);
        // Identifications are reused: an old packet's slots are ignored.
        let later = 5 + PATIENCE_NS;
        assert_eq!(fragment_routes.follow(id(1), b"second", meta, later), None);
    }

    #[test]
    fn waiting_fragments_and_routes_are_bounded() {
        let mut fragment_routes = FragmentRoutes::default();
        for n in 0..3 * PACKETS_MAX as u32 {
            fragment_routes.follow(id(n), b"later", RxMeta::UNKNOWN, 0);
            assert!(fragment_routes.held <= HELD_MAX);
        }
        for n in 0..3 * PACKETS_MAX as u32 {
            fragment_routes.begin(id(n), 1, 0);
            assert!(
                fragment_routes.order.len() <= PACKETS_MAX
                    && fragment_routes.fragment_routes.len() <= PACKETS_MAX
            );
        }
        assert_eq!(fragment_routes.held, 0);
        assert!(fragment_routes.lost >= 2 * PACKETS_MAX as u64);
    }
}
