//! Holders of local ports: binds, listeners, and the choice of ephemeral ports (RFC 6056 3.3.3).

use alloc::vec::Vec;

use hashbrown::HashTable;

use crate::bound::Bound;
use crate::options::PortHold;
use crate::rng::{Rng, SipKey};
use crate::scatter::Scatter;

/// Most holders of one port (a reuse-port group and its binds).
const HOLDERS_MAX: usize = 4096;

/// One bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    bound: Bound,
    /// [`crate::fib::Choice::link`]: sockets of two links do not meet.
    link: u16,
    reuse_port: bool,
}

impl Holder {
    fn clashes(&self, other: &Holder) -> bool {
        let is_apart = self.link != 0 && other.link != 0 && self.link != other.link;
        let is_shared = self.reuse_port && other.reuse_port;
        !is_apart && !is_shared && self.bound.overlaps(other.bound)
    }
}

#[derive(Debug)]
struct Port {
    number: u16,
    holders: Vec<Holder>,
}

#[derive(Debug)]
pub struct Ports {
    table: HashTable<Port>,
    key: SipKey,
    range: (u16, u16),
    scatter: Scatter,
    /// RFC 6056 algorithm 3: grows by one for every port given out.
    next: u32,
}

impl Ports {
    pub fn new(range: (u16, u16), scatter: Scatter, rng: &mut Rng) -> Ports {
        Ports {
            table: HashTable::new(),
            key: rng.sip_key(),
            range,
            scatter,
            next: 0,
        }
    }

    /// Stands in while the real table is borrowed.
    pub fn placeholder() -> Ports {
        Ports {
            table: HashTable::new(),
            key: SipKey { k0: 0, k1: 0 },
            range: (1, 1),
            scatter: Scatter::NONE,
            next: 0,
        }
    }

    pub fn set_range(&mut self, lo: u16, hi: u16) {
        self.range = (lo.max(1).min(hi.max(1)), hi.max(1));
    }

    pub fn is_held(&self, port: u16) -> bool {
        self.find(port).is_some()
    }

    /// Holds a port. Returns `false` if it is in use.
    pub fn hold(&mut self, hold: &PortHold, port: u16, reuse_port: bool) -> bool {
        let holder = Holder {
            bound: hold.bound(),
            link: hold.link,
            reuse_port,
        };
        if let Some(entry) = self.find_mut(port) {
            let clashes = entry.holders.iter().any(|h| h.clashes(&holder));
            if clashes || entry.holders.len() >= HOLDERS_MAX {
                return false;
            }
            entry.holders.push(holder);
            return true;
        }
        let key = self.key;
        let entry = Port {
            number: port,
            holders: alloc::vec![holder],
        };
        self.table
            .insert_unique(hash(&key, port), entry, |p| hash(&key, p.number));
        true
    }

    pub fn release(&mut self, hold: &PortHold, port: u16) {
        let (bound, link) = (hold.bound(), hold.link);
        let Ok(mut entry) = self
            .table
            .find_entry(hash(&self.key, port), |p| p.number == port)
        else {
            return;
        };
        let holders = &mut entry.get_mut().holders;
        if let Some(at) = holders
            .iter()
            .position(|h| (h.bound, h.link) == (bound, link))
        {
            holders.swap_remove(at);
        }
        if holders.is_empty() {
            entry.remove();
        }
    }

    /// The first port of the range, from a keyed start, that `is_free` accepts.
    pub fn pick(
        &mut self,
        start: u64,
        mut is_free: impl FnMut(&Ports, u16) -> bool,
    ) -> Option<u16> {
        let (lo, hi) = self.range;
        let count = u32::from(hi.saturating_sub(lo)) + 1;
        for i in 0..count {
            let step = (start as u32).wrapping_add(self.next).wrapping_add(i) % count;
            let port = self.scatter.port(lo + step as u16);
            if is_free(self, port) {
                self.next = self.next.wrapping_add(i).wrapping_add(1);
                return Some(port);
            }
        }
        None
    }

    fn find(&self, port: u16) -> Option<&Port> {
        self.table.find(hash(&self.key, port), |p| p.number == port)
    }

    fn find_mut(&mut self, port: u16) -> Option<&mut Port> {
        self.table
            .find_mut(hash(&self.key, port), |p| p.number == port)
    }
}

fn hash(key: &SipKey, port: u16) -> u64 {
    key.hash_words([u64::from(port)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;

    fn ip(last: u8) -> PortHold {
        PortHold::of(IpAddr::from([10, 0, 0, last]))
    }

    fn ports() -> Ports {
        Ports::new((100, 103), Scatter::NONE, &mut Rng::new(&[0; 32]))
    }

    #[test]
    fn binds_clash_when_their_addresses_overlap() {
        let mut ports = ports();
        let all = PortHold::of(IpAddr::from([0; 4]));
        assert!(ports.hold(&ip(1), 80, false));
        assert!(ports.hold(&ip(2), 80, false));
        assert!(!ports.hold(&ip(1), 80, true));
        assert!(!ports.hold(&all, 80, false));
        ports.release(&ip(1), 80);
        ports.release(&ip(2), 80);
        assert!(!ports.is_held(80));
        assert!(ports.hold(&ip(1), 80, true) && ports.hold(&ip(1), 80, true));
    }

    #[test]
    fn binds_of_two_links_do_not_clash_and_one_of_none_does_with_both() {
        let mut ports = ports();
        let on = |link| PortHold {
            link,
            ..PortHold::of(IpAddr::from([0; 4]))
        };
        assert!(ports.hold(&on(11), 80, false));
        assert!(ports.hold(&on(21), 80, false));
        assert!(!ports.hold(&on(11), 80, false) && !ports.hold(&on(0), 80, false));
        ports.release(&on(11), 80);
        assert!(!ports.hold(&on(21), 80, false) && ports.hold(&on(11), 80, false));
    }

    #[test]
    fn every_port_of_the_range_is_tried_once() {
        // RFC 6056 3.3.3.
        let mut ports = Ports::new((100, 103), Scatter::NONE, &mut Rng::new(&[0; 32]));
        let mut taken = Vec::new();
        while let Some(port) = ports.pick(77, |_, p| !taken.contains(&p)) {
            assert!((100..=103).contains(&port));
            taken.push(port);
        }
        assert_eq!(taken.len(), 4);
    }
}
