//! Segments that reached an engine which does not know their flow: who is tried next?
//!
//! The engine that the steering tables name comes first, then every other one. When all have said
//! no, the segment is for nobody and answered as for a closed port.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use slipstack_device::Flow;

/// How long it is remembered where a segment was sent: less than a peer waits before it sends the
/// same again.
const SEGMENT_NS: u64 = 150_000_000;
/// How long a flow is looked for in the directories of the engines.
const FLOW_NS: u64 = 1_000_000_000;
/// Segments and flows that are searched for at a time; beyond it strays are answered at once.
const SEARCHES_MAX: usize = 4096;
/// Slots that fit the set of those that were tried.
const SLOTS: u16 = 64;

#[derive(Debug, Default)]
pub(super) struct Strays {
    engines: Vec<u16>,
    hasher: RandomState,
    segments: HashMap<u64, Search>,
    /// When each flow was first seen astray.
    flows: HashMap<Flow, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Search {
    began: u64,
    /// A bit per slot.
    tried: u64,
}

impl Strays {
    pub(super) fn set_engines(&mut self, slots: Vec<u16>) {
        self.engines = slots
            .into_iter()
            .filter(|slot| *slot != 0 && *slot < SLOTS)
            .collect();
    }

    /// The slot to try next for a segment; `first` is the one that the tables name.
    pub(super) fn next_slot(
        &mut self,
        flow: Flow,
        segment: &[u8],
        first: u16,
        now: u64,
    ) -> Option<u16> {
        let key = self.hasher.hash_one(segment);
        if self.segments.len() >= SEARCHES_MAX || self.flows.len() >= SEARCHES_MAX {
            self.forget_old(now);
        }
        let is_full = self.segments.len() >= SEARCHES_MAX || self.flows.len() >= SEARCHES_MAX;
        if self.engines.is_empty() || (is_full && !self.segments.contains_key(&key)) {
            return None;
        }
        self.flows.entry(flow).or_insert(now);
        let fresh = Search {
            began: now,
            tried: 0,
        };
        let search = self.segments.entry(key).or_insert(fresh);
        if now.saturating_sub(search.began) >= SEGMENT_NS {
            *search = fresh;
        }
        let candidates = std::iter::once(first).chain(self.engines.iter().copied());
        let next = candidates
            .filter(|slot| self.engines.contains(slot))
            .find(|slot| search.tried & 1 << slot == 0)?;
        search.tried |= 1 << next;
        Some(next)
    }

    /// The flows that are searched for now.
    pub(super) fn flows(&mut self, now: u64) -> Vec<Flow> {
        self.forget_old(now);
        self.flows.keys().copied().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    fn forget_old(&mut self, now: u64) {
        self.segments
            .retain(|_, search| now.saturating_sub(search.began) < SEGMENT_NS);
        self.flows
            .retain(|_, began| now.saturating_sub(*began) < FLOW_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipstack_device::Proto;

    fn flow(port: u16) -> Flow {
        let address =
            |port| std::net::SocketAddr::new(std::net::Ipv4Addr::new(10, 0, 0, 5).into(), port);
        Flow {
            proto: Proto::Tcp,
            local: address(80),
            remote: address(port),
        }
    }

    #[test]
    fn the_slot_of_the_tables_is_tried_first_and_everyone_once() {
        let mut strays = Strays::default();
        strays.set_engines(vec![1, 2, 3]);
        let mut next = |segment: &[u8]| strays.next_slot(flow(1), segment, 2, 0);
        assert_eq!([next(b"a"), next(b"a")], [Some(2), Some(1)]);
        assert_eq!(
            next(b"b"),
            Some(2),
            "another segment of the flow is searched for by itself"
        );
        assert_eq!([next(b"a"), next(b"a")], [Some(3), None]);
    }

    #[test]
    fn a_search_is_forgotten_before_the_peer_sends_again() {
        let mut strays = Strays::default();
        strays.set_engines(vec![1]);
        assert_eq!(strays.next_slot(flow(1), b"a", 1, 0), Some(1));
        assert_eq!(strays.next_slot(flow(1), b"a", 1, SEGMENT_NS - 1), None);
        assert_eq!(strays.next_slot(flow(1), b"a", 1, SEGMENT_NS), Some(1));
        assert_eq!(strays.flows(0), [flow(1)]);
        assert!(strays.flows(3 * FLOW_NS).is_empty());
    }

    #[test]
    fn the_keeper_itself_is_never_asked() {
        let mut strays = Strays::default();
        strays.set_engines(vec![0, 4]);
        assert_eq!(strays.next_slot(flow(1), b"a", 0, 0), Some(4));
        assert_eq!(strays.next_slot(flow(1), b"a", 0, 0), None);
    }
}
