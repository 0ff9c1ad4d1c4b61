//! Route of a packet: to ourselves, over the link, or to a gateway. The lookup itself is in
//! [`crate::fib`].
//!
//! RFC 1122 3.3.1, RFC 1812 5.2.4: the longest prefix, then the gateway.

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::{IpAddr, Ipv4Addr};

use crate::fib::{self, Entry, Fib, Prefix, Query, Target};

/// The outcome of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// One of our own addresses.
    Local,
    /// Resolve this neighbour (the destination itself or the gateway).
    Neighbour(IpAddr),
    /// The limited or a directed broadcast address of our link.
    Broadcast,
    Multicast,
}

/// A route with the parameters of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub route: Route,
    pub source: Option<IpAddr>,
    pub mtu: Option<u16>,
    /// The link that it leads by; 0 = the device's own.
    pub link: u16,
}

impl Found {
    pub(crate) const MULTICAST: Found = Found {
        route: Route::Multicast,
        source: None,
        mtu: None,
        link: 0,
    };

    /// The limited broadcast.
    const BROADCAST: Found = Found {
        route: Route::Broadcast,
        ..Found::MULTICAST
    };

    /// Returns the route that the tables give.
    pub(crate) fn by(fib: &Fib, query: &Query) -> Option<Found> {
        let entry = fib.find(query)?;
        let route = match entry.target {
            Target::Local => Route::Local,
            Target::Broadcast => Route::Broadcast,
            Target::OnLink => Route::Neighbour(query.dst),
            Target::Via(gateway) => Route::Neighbour(gateway),
            Target::Unreachable | Target::Refused(_) | Target::Throw => return None,
        };
        Some(Found {
            route,
            source: entry.source,
            mtu: entry.mtu,
            link: entry.link,
        })
    }
}

/// Own addresses and routes.
#[derive(Clone, Debug)]
pub struct Routes {
    addrs: Vec<(Ipv4Addr, u8)>,
    /// The own addresses in order: looked up for every packet.
    own: Vec<Ipv4Addr>,
    /// Addresses of further links, each with its link. They are the last ones of `addrs`.
    links: Vec<(Ipv4Addr, u8, u16)>,
    pub(crate) fib: Fib,
    /// The limited broadcast, and for each network its directed broadcast and its all-zero form
    /// (RFC 1122 3.2.1.3), in order: looked up for every packet.
    broadcasts: Vec<Ipv4Addr>,
}

impl Routes {
    /// The IPv4 part of a configuration.
    pub fn of(addrs: &[(IpAddr, u8)], gateways: &[IpAddr]) -> Self {
        let v4 = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => Some(*ip),
            IpAddr::V6(_) => None,
        };
        let addrs = addrs
            .iter()
            .filter_map(|(ip, prefix)| Some((v4(ip)?, *prefix)));
        Self::new(addrs.collect(), gateways.iter().find_map(v4))
    }

    pub fn new(addrs: Vec<(Ipv4Addr, u8)>, gateway: Option<Ipv4Addr>) -> Self {
        let own = addrs.iter().map(|&(own, prefix)| (own.into(), prefix));
        let mut routes = Self {
            own: Vec::new(),
            links: Vec::new(),
            fib: connected(own, gateway.map(IpAddr::V4)),
            broadcasts: Vec::new(),
            addrs,
        };
        routes.add_broadcast(Ipv4Addr::BROADCAST, 0);
        for &(own, prefix) in &routes.addrs.clone() {
            routes.add_own(own, prefix, 0);
        }
        routes.own.sort_unstable();
        routes.broadcasts.sort_unstable();
        routes
    }

    /// Adds addresses that the stack has on a further link.
    pub fn add_link(&mut self, link: u16, addrs: &[(IpAddr, u8)]) {
        for &(ip, prefix) in addrs {
            let IpAddr::V4(own) = ip else { continue };
            add_connected(&mut self.fib, (ip, prefix), link);
            self.addrs.push((own, prefix));
            self.links.push((own, prefix, link));
            self.add_own(own, prefix, link);
        }
        self.own.sort_unstable();
        self.broadcasts.sort_unstable();
    }

    fn add_own(&mut self, own: Ipv4Addr, prefix: u8, link: u16) {
        self.own.push(own);
        if prefix < 31 {
            let network = own.to_bits() & mask(prefix);
            for bits in [network, network | !mask(prefix)] {
                self.add_broadcast(Ipv4Addr::from_bits(bits), link);
            }
        }
    }

    fn add_broadcast(&mut self, ip: Ipv4Addr, link: u16) {
        self.broadcasts.push(ip);
        let entry = Entry {
            link,
            ..Entry::new(Prefix::host(ip.into()), Target::Broadcast)
        };
        // An own address of the same form is there already.
        let _ = self.fib.add(fib::LOCAL, entry);
    }

    /// Returns the link on which a neighbour is, by our addresses there and by routes; 0 = the
    /// device's own link.
    pub fn link_of(&self, ip: Ipv4Addr) -> u16 {
        if self.links.is_empty() {
            return 0;
        }
        self.find(&Query::to(ip.into()))
            .map_or(0, |found| found.link)
    }

    /// Returns the link on which the stack has an address.
    pub fn link_of_own(&self, ip: Ipv4Addr) -> u16 {
        let mut links = self.links.iter();
        let found = links.find(|(own, ..)| *own == ip);
        found.map_or(0, |(_, _, link)| *link)
    }

    /// The first address of a link.
    pub(crate) fn first_of(&self, link: u16) -> Option<Ipv4Addr> {
        let mut links = self.links.iter();
        match link {
            // The own addresses of the first link come before those of further links.
            0 if self.addrs.len() == self.links.len() => None,
            0 => self.addrs.first().map(|&(own, _)| own),
            _ => links.find(|(.., of)| *of == link).map(|&(own, ..)| own),
        }
    }

    pub fn addrs(&self) -> &[(Ipv4Addr, u8)] {
        &self.addrs
    }

    #[inline]
    pub fn is_own(&self, ip: Ipv4Addr) -> bool {
        is_among(&self.own, ip)
    }

    /// The limited broadcast or that of one of our networks.
    #[inline]
    pub fn is_broadcast(&self, ip: Ipv4Addr) -> bool {
        is_among(&self.broadcasts, ip)
    }

    /// Returns whether it is a station of the link: in a network of ours, or in one with a route to
    /// the link.
    pub fn is_on_link(&self, ip: Ipv4Addr) -> bool {
        self.addrs
            .iter()
            .any(|&(own, prefix)| is_within(ip, own, prefix))
            || (!is_nowhere(ip) && !ip.is_multicast() && self.fib.is_neighbour(ip.into()))
    }

    /// `None`: there is no route.
    pub fn find(&self, query: &Query) -> Option<Found> {
        let IpAddr::V4(dst) = query.dst else {
            return None;
        };
        if is_nowhere(dst) && !self.is_own(dst) {
            return None;
        }
        if dst.is_multicast() || dst.is_broadcast() {
            let to_all = match dst.is_multicast() {
                true => Found::MULTICAST,
                false => Found::BROADCAST,
            };
            return Some(Found {
                link: self.link_to_all(query),
                ..to_all
            });
        }
        Found::by(&self.fib, query)
    }

    /// The link by which a packet to a group, or to all, leaves: the one that is chosen, else that
    /// of its source.
    fn link_to_all(&self, query: &Query) -> u16 {
        match (query.choice.chosen_link(), query.src) {
            (Some(link), _) => link,
            (None, Some(IpAddr::V4(src))) => self.link_of_own(src),
            (None, _) => 0,
        }
    }

    /// Returns our source address towards `dst`: the route's, else the one in the next hop's
    /// network (RFC 1122 3.3.4.3).
    pub fn find_source(&self, dst: Ipv4Addr) -> Option<Ipv4Addr> {
        self.find_source_by(dst, &Query::to(dst.into()))
    }

    /// Finds the source address for packets to `dst`, which is that of the query.
    pub fn find_source_by(&self, dst: Ipv4Addr, query: &Query) -> Option<Ipv4Addr> {
        let found = self.find(query)?;
        if let Some(IpAddr::V4(source)) = found.source {
            return Some(source);
        }
        let gateway = match found.route {
            Route::Local => return Some(dst),
            Route::Neighbour(IpAddr::V4(hop)) if hop != dst => Some(hop),
            Route::Neighbour(_) | Route::Broadcast | Route::Multicast => None,
        };
        let holds = |ip: Ipv4Addr| {
            let addrs = self.addrs.iter();
            addrs.filter(move |&&(own, prefix)| is_within(ip, own, prefix))
        };
        let near = match gateway {
            // As on Linux: of networks that overlap the first.
            Some(gateway) => holds(gateway).next(),
            // The smallest network, whose route it is; the first of several equal ones.
            None => holds(dst).min_by_key(|&&(_, prefix)| Reverse(prefix)),
        };
        let near = near.map(|&(own, _)| own);
        near.or_else(|| self.first_of(found.link))
            .or_else(|| self.addrs.first().map(|&(own, _)| own))
    }
}

/// The tables of an interface with these addresses: as Linux fills them when it comes up.
pub(crate) fn connected(addrs: impl Iterator<Item = (IpAddr, u8)>, gateway: Option<IpAddr>) -> Fib {
    let mut fib = Fib::default();
    // Two addresses in one network need one route, that of the first.
    for net in addrs {
        add_connected(&mut fib, net, 0);
    }
    if let Some(gateway) = gateway {
        // The gateway is a neighbour even if no network of ours holds it.
        let _ = fib.add(fib::MAIN, Entry::new(Prefix::host(gateway), Target::OnLink));
        let _ = fib.add(fib::MAIN, Entry::new(Prefix::ALL, Target::Via(gateway)));
    }
    fib
}

/// Adds the routes of an address.
pub(crate) fn add_connected(fib: &mut Fib, (own, prefix): (IpAddr, u8), link: u16) {
    let _ = fib.add(fib::LOCAL, Entry::new(Prefix::host(own), Target::Local));
    let network = Entry {
        link,
        ..Entry::new(Prefix::new(own, prefix), Target::OnLink)
    };
    let _ = fib.add(fib::MAIN, network);
}

/// RFC 1122 3.2.1.3: this network, and this host.
fn is_nowhere(ip: Ipv4Addr) -> bool {
    ip.is_loopback() || ip.octets()[0] == 0
}

fn mask(prefix: u8) -> u32 {
    u32::MAX
        .checked_shl(32 - u32::from(prefix.min(32)))
        .unwrap_or(0)
}

fn is_within(ip: Ipv4Addr, net: Ipv4Addr, prefix: u8) -> bool {
    (ip.to_bits() ^ net.to_bits()) & mask(prefix) == 0
}

/// Addresses up to which a list is looked through from its beginning.
const FEW: usize = 4;

/// Returns whether a sorted list has an address; most stacks have a few.
#[inline]
fn is_among(sorted: &[Ipv4Addr], ip: Ipv4Addr) -> bool {
    match sorted.len() {
        ..=FEW => sorted.contains(&ip),
        _ => sorted.binary_search(&ip).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> Routes {
        Routes::new(
            alloc::vec![
                (Ipv4Addr::new(10, 0, 0, 5), 24),
                (Ipv4Addr::new(192, 168, 7, 1), 30)
            ],
            Some(Ipv4Addr::new(10, 0, 0, 1)),
        )
    }

    #[test]
    fn destinations_find_their_next_hop() {
        // RFC 1122 3.3.1.
        let table = [
            ([10, 0, 0, 5], Some(Route::Local)),
            ([192, 168, 7, 1], Some(Route::Local)),
            (
                [10, 0, 0, 9],
                Some(Route::Neighbour(IpAddr::from([10, 0, 0, 9]))),
            ),
            (
                [192, 168, 7, 2],
                Some(Route::Neighbour(IpAddr::from([192, 168, 7, 2]))),
            ),
            (
                [8, 8, 8, 8],
                Some(Route::Neighbour(IpAddr::from([10, 0, 0, 1]))),
            ),
            ([10, 0, 0, 255], Some(Route::Broadcast)),
            ([192, 168, 7, 3], Some(Route::Broadcast)),
            ([255, 255, 255, 255], Some(Route::Broadcast)),
            ([224, 0, 0, 251], Some(Route::Multicast)),
            ([127, 0, 0, 1], None),
            ([0, 0, 0, 0], None),
        ];
        for (dst, want) in table {
            let found = routes().find(&Query::to(IpAddr::from(dst)));
            assert_eq!(found.map(|found| found.route), want, "{dst:?}");
        }
    }

    #[test]
    fn without_gateway_a_foreign_network_has_no_route() {
        let routes = Routes::new(alloc::vec![(Ipv4Addr::new(10, 0, 0, 5), 24)], None);
        assert_eq!(routes.find(&Query::to([8, 8, 8, 8].into())), None);
        assert_eq!(routes.find_source(Ipv4Addr::new(8, 8, 8, 8)), None);
    }

    #[test]
    fn the_source_is_the_address_in_the_next_hops_network() {
        // RFC 1122 3.3.4.
        let source = |dst: [u8; 4]| routes().find_source(Ipv4Addr::from(dst));
        assert_eq!(source([8, 8, 8, 8]), Some(Ipv4Addr::new(10, 0, 0, 5)));
        assert_eq!(
            source([192, 168, 7, 2]),
            Some(Ipv4Addr::new(192, 168, 7, 1))
        );
        assert_eq!(
            source([192, 168, 7, 1]),
            Some(Ipv4Addr::new(192, 168, 7, 1))
        );
    }

    /// As `ip route get` shows for these addresses.
    #[test]
    fn the_smallest_of_overlapping_networks_gives_the_source() {
        let wide = (Ipv4Addr::new(10, 0, 0, 5), 24);
        let narrow = (Ipv4Addr::new(10, 0, 0, 77), 28);
        let gateway = Ipv4Addr::new(10, 0, 0, 70);
        for (addrs, by_gateway) in [([wide, narrow], wide), ([narrow, wide], narrow)] {
            let routes = Routes::new(addrs.to_vec(), Some(gateway));
            let source = |dst: [u8; 4]| routes.find_source(Ipv4Addr::from(dst));
            assert_eq!(source([10, 0, 0, 71]), Some(narrow.0));
            assert_eq!(source([10, 0, 0, 9]), Some(wide.0));
            assert_eq!(source([10, 0, 0, 79]), Some(narrow.0), "a broadcast");
            assert_eq!(source([10, 0, 0, 255]), Some(wide.0), "a broadcast");
            assert_eq!(source([8, 8, 8, 8]), Some(by_gateway.0));
        }
    }

    #[test]
    fn a_prefix_of_zero_or_32_does_not_overflow() {
        let routes = Routes::new(
            alloc::vec![(Ipv4Addr::new(10, 0, 0, 5), 32)],
            Some(Ipv4Addr::new(10, 0, 0, 1)),
        );
        assert!(!routes.is_broadcast(Ipv4Addr::new(10, 0, 0, 5)));
        assert!(routes.is_on_link(Ipv4Addr::new(10, 0, 0, 1)));
        assert!(is_within(
            Ipv4Addr::new(1, 2, 3, 4),
            Ipv4Addr::new(9, 9, 9, 9),
            0
        ));
    }
}
