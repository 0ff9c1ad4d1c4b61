//! Holders of local ports: binds, listeners, and the choice of ephemeral ports (RFC 6056 3.3.3).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use hashbrown::HashTable;
use slipstack_wire::rss::QueueMap;

use super::free_ports::{Fitness, FreePorts};
use crate::bound::Bound;
use crate::options::PortHold;
use crate::rng::{Rng, SipKey};
use crate::scatter::Scatter;

/// Most holders of one port (a reuse-port group and its binds).
const HOLDERS_MAX: usize = 4096;
/// Ports looked at in search of one that leads to the engine's own queue, where every one has a
/// flow already.
const HOME_STEPS_MAX: u32 = 512;
/// Ports looked at in their order before the list of free ones is asked, which costs memory and is
/// made for the first search that needs it.
const ORDINARY_STEPS_MAX: u32 = 64;

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
    /// Every range there has been since the last [`Ports::set_range`].
    ranges: Vec<(u16, u16)>,
    /// Queues into which the card puts frames to a port; `None`: any port will do.
    map: Option<Box<QueueMap>>,
    /// Ports that no flow of IPv4, and of IPv6, has; made when the first one is chosen.
    free: [Option<FreePorts>; 2],
}

/// A wanted flow but for its local port.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub local: IpAddr,
    pub remote: SocketAddr,
    /// A number that others cannot guess.
    pub start: u64,
}

/// A chosen port, and whether the card puts its frames into the engine's own queue (or there is no
/// such card).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picked {
    pub port: u16,
    pub is_home: bool,
}

impl Ports {
    pub fn new(range: (u16, u16), scatter: Scatter, rng: &mut Rng) -> Ports {
        Ports {
            table: HashTable::new(),
            key: rng.sip_key(),
            range,
            scatter,
            next: 0,
            ranges: alloc::vec![range],
            map: None,
            free: [None, None],
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
            ranges: Vec::new(),
            map: None,
            free: [None, None],
        }
    }

    /// Chooses from these places alone.
    pub fn set_range(&mut self, lo: u16, hi: u16) {
        self.range = (lo.max(1).min(hi.max(1)), hi.max(1));
        self.ranges = alloc::vec![self.range];
        self.free = [None, None];
    }

    /// Chooses from these places first, and from the former ones.
    pub fn add_range(&mut self, lo: u16, hi: u16) {
        self.range = (lo.max(1).min(hi.max(1)), hi.max(1));
        if !self.ranges.contains(&self.range) {
            self.ranges.push(self.range);
            for (free, is_ipv6) in self.free.iter_mut().zip([false, true]) {
                if let Some(free) = free {
                    free.add(classed(
                        self.range,
                        is_ipv6,
                        &self.scatter,
                        self.map.as_deref(),
                    ));
                }
            }
        }
    }

    /// Has connections choose ports by which frames come to the engine's own queue.
    pub fn set_queue_map(&mut self, map: Option<QueueMap>) {
        self.map = map.map(Box::new);
        self.free = [None, None];
    }

    /// A flow of this port has ended.
    #[inline]
    pub fn release_flow(&mut self, port: u16) {
        for (free, is_ipv6) in self.free.iter_mut().zip([false, true]) {
            if let Some(free) = free {
                free.release(port, || class_of(self.map.as_deref(), is_ipv6, port));
            }
        }
    }

    /// Chooses the port of a flow: one that leads home and has no flow, or else has one to another
    /// remote end, or else any.
    pub fn choose(
        &mut self,
        wanted: &Wanted,
        fitness: impl Fn(&Ports, u16) -> Fitness,
    ) -> Option<Picked> {
        let is_free = |ports: &Ports, port| fitness(ports, port) == Fitness::Free;
        let ordinary = match &self.map {
            None => self.pick_within(wanted.start, ORDINARY_STEPS_MAX, is_free),
            Some(_) => None,
        };
        if let Some(port) = ordinary.or_else(|| self.take_free(wanted, &fitness)) {
            return Some(Picked {
                port,
                is_home: true,
            });
        }
        let home = |ports: &Ports, port| {
            let local = SocketAddr::new(wanted.local, port);
            ports.leads_home(local, wanted.remote) && is_free(ports, port)
        };
        if self.map.is_some()
            && let Some(port) = self.pick_within(wanted.start, HOME_STEPS_MAX, home)
        {
            return Some(Picked {
                port,
                is_home: true,
            });
        }
        let port = self.pick(wanted.start, is_free)?;
        let is_home = self.map.is_none();
        Some(Picked { port, is_home })
    }

    /// Returns whether the card puts the frames of this flow into the engine's own queue, or
    /// nothing is known of a card.
    pub fn leads_home(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let map = self.map.as_deref();
        map.is_none_or(|map| map.is_home(local, remote))
    }

    fn take_free(
        &mut self,
        wanted: &Wanted,
        fitness: impl Fn(&Ports, u16) -> Fitness,
    ) -> Option<u16> {
        let is_ipv6 = wanted.remote.is_ipv6();
        let place = usize::from(is_ipv6);
        // Out of the way while `fitness` looks at the rest.
        let mut free = self.free[place]
            .take()
            .unwrap_or_else(|| self.all_free(is_ipv6));
        self.next = self.next.wrapping_add(1);
        let random = mix(wanted.start.wrapping_add(u64::from(self.next)));
        let is_exact = self.map.as_ref().is_none_or(|map| map.is_exact());
        let fits = |port| match is_exact
            || self.leads_home(SocketAddr::new(wanted.local, port), wanted.remote)
        {
            true => fitness(self, port),
            false => Fitness::Unfit,
        };
        let port = match &self.map {
            Some(map) => {
                let home = map.home_classes(wanted.local, wanted.remote, random);
                free.take(home, random, fits)
            }
            None => free.take(core::iter::once(0), random, fits),
        };
        self.free[place] = Some(free);
        port
    }

    fn all_free(&self, is_ipv6: bool) -> FreePorts {
        let map = self.map.as_deref();
        let mut free = FreePorts::new(map.map_or(1, QueueMap::classes));
        for range in &self.ranges {
            free.add(classed(*range, is_ipv6, &self.scatter, map));
        }
        free
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
    pub fn pick(&mut self, start: u64, is_free: impl FnMut(&Ports, u16) -> bool) -> Option<u16> {
        self.pick_within(start, u32::MAX, is_free)
    }

    /// As [`Ports::pick`], with so many steps at most.
    fn pick_within(
        &mut self,
        start: u64,
        steps: u32,
        mut is_free: impl FnMut(&Ports, u16) -> bool,
    ) -> Option<u16> {
        let (lo, hi) = self.range;
        let count = u32::from(hi.saturating_sub(lo)) + 1;
        for i in 0..count.min(steps) {
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

/// The ports at these places with their classes.
fn classed(
    (lo, hi): (u16, u16),
    is_ipv6: bool,
    scatter: &Scatter,
    map: Option<&QueueMap>,
) -> impl Iterator<Item = (u16, u16)> {
    let ports = (lo..=hi).map(|place| scatter.port(place));
    ports.map(move |port| (port, class_of(map, is_ipv6, port)))
}

fn class_of(map: Option<&QueueMap>, is_ipv6: bool, port: u16) -> u16 {
    map.map_or(0, |map| map.class_of(is_ipv6, port))
}

/// SplitMix64's finalizer: what went in cannot be seen from the ports that come out.
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

fn hash(key: &SipKey, port: u16) -> u64 {
    key.hash_words([u64::from(port)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use slipstack_wire::rss::Input;

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

    fn wanted(remote_port: u16) -> Wanted {
        Wanted {
            local: IpAddr::from([10, 0, 0, 1]),
            remote: SocketAddr::from(([10, 0, 0, 2], remote_port)),
            start: 77,
        }
    }

    #[test]
    fn a_port_of_the_own_queue_is_found_quickly_for_any_table_length() {
        let table: Vec<u16> = (0..192).map(|entry| entry % 3).collect();
        let key = core::array::from_fn(|at| (at * 37 + 11) as u8);
        let map = QueueMap::new((&key, Input::Symmetric), &table, 2).expect("it is sound");
        let mut ports = Ports::new((10_000, 49_999), Scatter::NONE, &mut Rng::new(&[0; 32]));
        ports.set_queue_map(Some(map.clone()));
        let taken = core::cell::RefCell::new(alloc::collections::BTreeSet::new());
        let fitness = |_: &Ports, port| match taken.borrow().contains(&port) {
            true => Fitness::Taken,
            false => Fitness::Free,
        };
        let mut away = 0;
        for _ in 0..10_000 {
            let picked = ports.choose(&wanted(80), fitness).expect("a port is left");
            let local = SocketAddr::new(wanted(80).local, picked.port);
            assert_eq!(picked.is_home, map.is_home(local, wanted(80).remote));
            away += u32::from(!picked.is_home);
            assert!(taken.borrow_mut().insert(picked.port));
        }
        assert!(away < 10, "{away} of 10,000 do not lead home");
    }

    #[test]
    fn a_port_of_the_own_queue_is_found_at_once_with_99_of_100_taken() {
        let table: Vec<u16> = (0..128).map(|entry| entry % 4).collect();
        let key = core::array::from_fn(|at| (at * 37 + 11) as u8);
        let map = QueueMap::new((&key, Input::Plain), &table, 2);
        let mut ports = Ports::new((10_000, 49_999), Scatter::NONE, &mut Rng::new(&[0; 32]));
        ports.set_queue_map(map.clone());
        let taken = core::cell::RefCell::new(alloc::collections::BTreeSet::new());
        let steps = core::cell::Cell::new(0);
        let fitness = |_: &Ports, port| {
            steps.set(steps.get() + 1);
            match taken.borrow().contains(&port) {
                true => Fitness::Taken,
                false => Fitness::Free,
            }
        };
        let at_home = |port| {
            let local = SocketAddr::new(wanted(80).local, port);
            map.as_ref()
                .is_some_and(|map| map.is_home(local, wanted(80).remote))
        };
        let home = (10_000..50_000u16).filter(|port| at_home(*port)).count();
        for count in 0..home {
            steps.set(0);
            let picked = ports.choose(&wanted(80), fitness).expect("a port is left");
            assert!(picked.is_home && at_home(picked.port));
            assert_eq!(steps.get(), 1, "after {count} of {home}");
            assert!(taken.borrow_mut().insert(picked.port));
        }
        // No port is left that leads home: any will do.
        let picked = ports.choose(&wanted(80), fitness).expect("others are left");
        assert!(!picked.is_home && !at_home(picked.port));
        let ended = *taken.borrow().iter().next().expect("many are taken");
        taken.borrow_mut().remove(&ended);
        ports.release_flow(ended);
        assert_eq!(
            ports.choose(&wanted(80), fitness).map(|it| it.port),
            Some(ended)
        );
    }

    #[test]
    fn without_a_card_too_the_search_is_bounded_when_most_ports_are_taken() {
        let mut ports = Ports::new((10_000, 49_999), Scatter::NONE, &mut Rng::new(&[0; 32]));
        // All but every hundredth, and long runs of them.
        let taken = core::cell::RefCell::new([true; 65_536]);
        for port in (10_000..50_000).step_by(100) {
            taken.borrow_mut()[port] = false;
        }
        let steps = core::cell::Cell::new(0);
        let fitness = |_: &Ports, port: u16| {
            steps.set(steps.get() + 1);
            match taken.borrow()[usize::from(port)] {
                true => Fitness::Taken,
                false => Fitness::Free,
            }
        };
        for _ in 0..400 {
            let picked = ports.choose(&wanted(80), fitness).expect("a port is left");
            taken.borrow_mut()[usize::from(picked.port)] = true;
        }
        // Each taken port is looked at once by the list.
        assert!(steps.get() < 40_000 + 400 * 66, "{} steps", steps.get());
        assert_eq!(ports.choose(&wanted(80), fitness), None);
        let ended = 23_456;
        taken.borrow_mut()[usize::from(ended)] = false;
        ports.release_flow(ended);
        steps.set(0);
        let picked = ports.choose(&wanted(80), fitness).map(|it| it.port);
        assert_eq!(picked, Some(ended));
        assert!(steps.get() <= ORDINARY_STEPS_MAX + 1);
    }

    #[test]
    fn ranges_that_are_added_are_chosen_from_beside_the_former_ones() {
        let mut ports = ports();
        let mut taken = Vec::new();
        ports.add_range(200, 203);
        while let Some(picked) = ports.choose(&wanted(80), |_, port| match taken.contains(&port) {
            true => Fitness::Taken,
            false => Fitness::Free,
        }) {
            taken.push(picked.port);
        }
        taken.sort_unstable();
        assert!(taken.into_iter().eq((100..=103).chain(200..=203)));
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
