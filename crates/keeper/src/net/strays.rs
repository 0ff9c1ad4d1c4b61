//! Segments that reached an engine which does not know their flow: who is tried next?
//!
//! The engine that the steering tables name comes first, then every other one. When all have said
//! no, the segment is for nobody and answered as for a closed port.

use std::collections::HashMap;

use slipstack_device::Flow;

/// How long the search for one flow's engine is remembered.
const MEMORY_NS: u64 = 1_000_000_000;
/// Flows that are searched for at a time; beyond it strays are answered at once.
const FLOWS_MAX: usize = 4096;
/// Slots that fit the set of those that were tried.
const SLOTS: u16 = 64;

#[derive(Debug, Default)]
pub(super) struct Strays {
    engines: Vec<u16>,
    searches: HashMap<Flow, Search>,
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

    /// The slot to try next; `first` is the one that the tables name.
    pub(super) fn next_slot(&mut self, flow: Flow, first: u16, now: u64) -> Option<u16> {
        if self.searches.len() >= FLOWS_MAX {
            self.forget_old(now);
        }
        let is_known = self.searches.contains_key(&flow);
        if self.engines.is_empty() || (!is_known && self.searches.len() >= FLOWS_MAX) {
            return None;
        }
        let search = self.searches.entry(flow).or_insert(Search {
            began: now,
            tried: 0,
        });
        if now.saturating_sub(search.began) >= MEMORY_NS {
            *search = Search {
                began: now,
                tried: 0,
            };
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
        self.searches.keys().copied().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.searches.is_empty()
    }

    fn forget_old(&mut self, now: u64) {
        self.searches
            .retain(|_, search| now.saturating_sub(search.began) < MEMORY_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipstack_device::Proto;

    fn flow(port: u16) -> Flow {
        let address =
            |port| std::net::SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 5), port);
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
        let tried: Vec<Option<u16>> = (0..4).map(|_| strays.next_slot(flow(1), 2, 0)).collect();
        assert_eq!(tried, [Some(2), Some(1), Some(3), None]);
        assert_eq!(strays.next_slot(flow(2), 3, 0), Some(3));
    }

    #[test]
    fn a_search_is_forgotten_after_a_while() {
        let mut strays = Strays::default();
        strays.set_engines(vec![1]);
        assert_eq!(strays.next_slot(flow(1), 1, 0), Some(1));
        assert_eq!(strays.next_slot(flow(1), 1, MEMORY_NS - 1), None);
        assert_eq!(strays.next_slot(flow(1), 1, MEMORY_NS), Some(1));
        assert!(strays.flows(3 * MEMORY_NS).is_empty());
    }

    #[test]
    fn the_keeper_itself_is_never_asked() {
        let mut strays = Strays::default();
        strays.set_engines(vec![0, 4]);
        assert_eq!(strays.next_slot(flow(1), 0, 0), Some(4));
        assert_eq!(strays.next_slot(flow(1), 0, 0), None);
    }
}
