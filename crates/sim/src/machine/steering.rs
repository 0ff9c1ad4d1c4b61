//! Choice of the slot for a received frame: exceptions by flow, then port to slot or to a listener
//! group, whose buckets name the slot for each flow hash (`slipstack_device::steering` has the same
//! in memory that eBPF programs read).

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::flow::{Flow, KEEPER};

pub const BUCKETS: usize = 4096;
/// Buckets that are tried for a living slot, and their distance.
const PROBES: usize = 16;
const PROBE_STEP: usize = 1361;

/// The receiver of a port's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    Slot(u16),
    /// The slot that the buckets name.
    Group(usize),
}

#[derive(Debug, Default)]
pub struct Steering {
    key: u64,
    ports: BTreeMap<u16, Port>,
    groups: Vec<Vec<u16>>,
    is_dead: BTreeMap<u16, bool>,
    exceptions: BTreeMap<Flow, u16>,
}

impl Steering {
    pub fn new(key: u64) -> Self {
        Self {
            key,
            ..Self::default()
        }
    }

    pub fn bucket(&self, flow: &Flow) -> usize {
        let mut hasher = DefaultHasher::new();
        (self.key, flow).hash(&mut hasher);
        hasher.finish() as usize % BUCKETS
    }

    /// Returns the slot for frames of a flow.
    pub fn find_slot(&self, flow: &Flow) -> u16 {
        match self.exceptions.get(flow) {
            Some(slot) => *slot,
            None => self.find_route(flow),
        }
    }

    /// The slot that gets new connections of a flow; [`KEEPER`] = none.
    pub fn find_route(&self, flow: &Flow) -> u16 {
        match self.ports.get(&flow.local.port()) {
            None => KEEPER,
            Some(Port::Slot(slot)) => *slot,
            Some(Port::Group(group)) => self.group_slot(*group, self.bucket(flow)),
        }
    }

    /// Slots that are not alive are passed over.
    fn group_slot(&self, group: usize, bucket: usize) -> u16 {
        let chain = (0..PROBES).map(|n| (bucket + n * PROBE_STEP) % BUCKETS);
        chain
            .map(|bucket| self.groups[group][bucket])
            .find(|slot| !self.is_dead.get(slot).copied().unwrap_or(false))
            .unwrap_or(KEEPER)
    }

    pub fn set_port(&mut self, port: u16, slot: u16) {
        self.ports.insert(port, Port::Slot(slot));
    }

    pub fn set_dead(&mut self, slot: u16, is_dead: bool) {
        self.is_dead.insert(slot, is_dead);
    }

    /// Spreads a port over these slots, none = the keeper. `flows` stay where they are: those whose
    /// bucket moves become exceptions first.
    pub fn share(&mut self, port: u16, slots: &[u16], flows: &[(Flow, u16)]) {
        let slots = if slots.is_empty() { &[KEEPER] } else { slots };
        let group = match self.ports.get(&port) {
            Some(Port::Group(group)) => *group,
            _ => {
                self.groups.push(vec![u16::MAX; BUCKETS]);
                self.groups.len() - 1
            }
        };
        for (bucket, slot) in self.groups[group].iter_mut().enumerate() {
            let is_wanted = slots.contains(slot);
            // A share of each moves, as to a slot that has come.
            if !is_wanted || bucket % slots.len() == 0 {
                *slot = slots[(bucket / slots.len()) % slots.len()];
            }
        }
        self.ports.insert(port, Port::Group(group));
        for (flow, owner) in flows {
            if self.find_slot(flow) != *owner {
                self.except(*flow, *owner);
            }
        }
    }

    /// Directs a flow to a slot whatever the tables say.
    pub fn except(&mut self, flow: Flow, slot: u16) {
        self.exceptions.insert(flow, slot);
    }

    /// Removes the exceptions of flows that are no more.
    pub fn sweep(&mut self, is_living: impl Fn(&Flow, u16) -> bool) {
        self.exceptions.retain(|flow, slot| is_living(flow, *slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16) -> Flow {
        Flow {
            local: ([10, 0, 0, 2], 80).into(),
            remote: ([10, 0, 0, 1], port).into(),
        }
    }

    fn steering(slots: &[u16]) -> Steering {
        let mut steering = Steering::new(7);
        steering.share(80, slots, &[]);
        steering
    }

    #[test]
    fn a_group_spreads_over_its_slots_and_passes_over_the_dead() {
        let mut steering = steering(&[1, 2, 3]);
        let all: Vec<u16> = (1..3000).map(|p| steering.find_slot(&flow(p))).collect();
        let count = |slot| all.iter().filter(|of| **of == slot).count();
        assert!([1, 2, 3].iter().all(|slot| count(*slot) > 500));
        steering.set_dead(2, true);
        assert!((1..3000).all(|p| [1, 3].contains(&steering.find_slot(&flow(p)))));
    }

    #[test]
    fn flows_stay_when_their_bucket_moves_and_new_ones_follow_it() {
        let mut steering = steering(&[1]);
        let flows: Vec<_> = (1..3000).map(|p| (flow(p), 1)).collect();
        steering.share(80, &[1, 2], &flows);
        assert!(flows.iter().all(|(flow, _)| steering.find_slot(flow) == 1));
        assert!(flows.iter().any(|(flow, _)| steering.find_route(flow) == 2));
        steering.sweep(|_, _| false);
        assert!(flows.iter().any(|(flow, _)| steering.find_slot(flow) == 2));
    }

    #[test]
    fn an_unused_port_is_the_keepers() {
        let mut steering = steering(&[1]);
        let other = Flow {
            local: ([10, 0, 0, 2], 81).into(),
            ..flow(5)
        };
        assert_eq!(steering.find_slot(&other), KEEPER);
        steering.set_port(81, 4);
        assert_eq!(steering.find_slot(&other), 4);
        steering.share(80, &[], &[]);
        assert_eq!(steering.find_slot(&flow(5)), KEEPER);
    }
}
