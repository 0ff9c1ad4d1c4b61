//! Routes of IPv6 packets, and selection of their source address (RFC 6724).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use slipstack_wire::LinkId;
use slipstack_wire::ipv6::solicited_node;
use slipstack_wire::zone::{zone_of, zoned};

use crate::fib::{self, Entry, Fib, Prefix, Query, Target};
use crate::ip::LinkedGroup;
use crate::route::{Found, add_connected, connected};
use slipstack_terms::Learnt;

/// All nodes of the link, and of this host.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_HOST: Ipv6Addr = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 1);

/// RFC 4291 2.5.6.
const LINK_LOCAL: (Ipv6Addr, u8) = (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10);

/// Length of that prefix with the link that an address carries ([`slipstack_wire::zone`]).
const ZONED_LEN: u8 = 32;

/// Metric of routes learnt from routers: after a configured one (Linux: the same number).
const METRIC_LEARNT: u32 = 1024;

#[derive(Clone, Copy, Debug)]
struct Own {
    ip: Ipv6Addr,
    prefix: u8,
    is_deprecated: bool,
    link: u16,
}

/// Own IPv6 addresses and routes.
#[derive(Clone, Debug, Default)]
pub struct Routes6 {
    addrs: Vec<Own>,
    /// Networks whose addresses are neighbours.
    networks: Vec<(Ipv6Addr, u8)>,
    pub(crate) fib: Fib,
    /// RFC 4291 2.8: the groups that a host joins, with their links.
    groups: BTreeSet<(Ipv6Addr, u16)>,
    /// Whether links beside the first have addresses.
    has_links: bool,
    /// Our addresses in order: looked up for every packet.
    own: Vec<Ipv6Addr>,
}

impl Routes6 {
    /// The IPv6 part of a configuration.
    pub fn of(addrs: &[(IpAddr, u8)], gateways: &[IpAddr]) -> Self {
        let v6 = |ip: &IpAddr| match ip {
            IpAddr::V4(_) => None,
            IpAddr::V6(ip) => Some(*ip),
        };
        let networks: Vec<(Ipv6Addr, u8)> = addrs
            .iter()
            .filter_map(|(ip, prefix)| Some((v6(ip)?, *prefix)))
            .collect();
        let own = networks.iter().map(|&(own, prefix)| (own.into(), prefix));
        let gateway = gateways.iter().find_map(v6).map(IpAddr::V6);
        let mut fib = connected(own, gateway);
        let (net, len) = LINK_LOCAL;
        let link_local = Prefix::new(net.into(), len);
        let _ = fib.add(fib::MAIN, Entry::new(link_local, Target::OnLink));
        let addrs = networks.iter().map(|&(ip, prefix)| Own {
            ip,
            prefix,
            is_deprecated: false,
            link: 0,
        });
        let mut routes = Self {
            addrs: addrs.collect(),
            networks,
            fib,
            groups: BTreeSet::new(),
            has_links: false,
            own: Vec::new(),
        };
        routes.sort_own();
        let configured: Vec<Ipv6Addr> = routes.addrs.iter().map(|own| own.ip).collect();
        routes.hear(configured.into_iter().map(|ip| (ip, 0)));
        routes
    }

    /// Adds the configuration learnt from routers; `routers` are its default routers, the preferred
    /// one first. Configured routes come before it.
    pub(crate) fn add_learnt(&mut self, learnt: &Learnt, routers: &[Ipv6Addr]) {
        let new = learnt.addresses.iter().map(|known| Own {
            ip: known.ip,
            prefix: known.prefix_len,
            is_deprecated: known.is_deprecated,
            link: known.link,
        });
        for own in new.filter(|own| !self.is_own(own.ip)).collect::<Vec<_>>() {
            let host = Prefix::host(own.ip.into());
            let _ = self.fib.add(fib::LOCAL, Entry::new(host, Target::Local));
            self.add_scope(own.link);
            self.addrs.push(own);
        }
        self.sort_own();
        for net in &learnt.networks {
            let (ip, len) = (net.address, net.prefix_len);
            self.networks.push((ip, len));
            let prefix = Prefix::new(ip.into(), len);
            self.add_way(prefix, Target::OnLink, (0, net.link));
        }
        for (&router, metric) in routers.iter().zip(METRIC_LEARNT..) {
            let link = zone_of(router).0;
            self.add_way(Prefix::ALL, Target::Via(router.into()), (metric, link));
        }
        for redirect in &learnt.redirects {
            let target = match redirect.hop == redirect.destination {
                true => Target::OnLink,
                false => Target::Via(redirect.hop.into()),
            };
            let host = Prefix::host(redirect.destination.into());
            self.add_way(host, target, (0, redirect.link));
        }
        self.hear(learnt.addresses.iter().map(|known| (known.ip, known.link)));
        self.fib.build_index();
    }

    /// Adds addresses that the stack has on a further link.
    pub fn add_link(&mut self, link: u16, addrs: &[(IpAddr, u8)]) {
        let mut new = Vec::new();
        for &(ip, prefix) in addrs {
            let IpAddr::V6(own) = ip else { continue };
            let own = zoned(own, LinkId(link));
            add_connected(&mut self.fib, (own.into(), prefix), link);
            self.add_scope(link);
            self.networks.push((own, prefix));
            self.addrs.push(Own {
                ip: own,
                prefix,
                is_deprecated: false,
                link,
            });
            new.push(own);
        }
        self.sort_own();
        self.hear(new.into_iter().map(|ip| (ip, link)));
    }

    /// Link-local addresses of another link are neighbours there.
    fn add_scope(&mut self, link: u16) {
        if link == 0 {
            return;
        }
        self.has_links = true;
        let (net, _) = LINK_LOCAL;
        let prefix = Prefix::new(zoned(net, LinkId(link)).into(), ZONED_LEN);
        self.add_way(prefix, Target::OnLink, (0, link));
    }

    /// The link-local address that we have on a link.
    pub(crate) fn link_local_of(&self, link: u16) -> Option<Ipv6Addr> {
        let is_it = |own: &&Own| own.link == link && own.ip.is_unicast_link_local();
        self.addrs.iter().find(is_it).map(|own| own.ip)
    }

    /// Returns the link of one of our link-local addresses, given as in frames.
    pub(crate) fn zone_of_own(&self, plain: Ipv6Addr) -> Option<Ipv6Addr> {
        let mut own = self.own();
        own.find(|own| zoned(*own, LinkId(0)) == plain)
    }

    fn sort_own(&mut self) {
        self.own = self.addrs.iter().map(|own| own.ip).collect();
        self.own.sort_unstable();
    }

    /// The VLAN in which a station of the link is; 0 = the device's own link.
    pub fn link_of(&self, ip: Ipv6Addr) -> u16 {
        if !self.has_links {
            return 0;
        }
        self.find(&Query::to(ip.into()))
            .map_or(0, |found| found.link)
    }

    /// The VLAN in which the stack has an address.
    pub fn link_of_own(&self, ip: Ipv6Addr) -> u16 {
        if !self.has_links {
            return 0;
        }
        let mut addrs = self.addrs.iter();
        let found = addrs.find(|own| own.ip == ip);
        found.map_or(0, |own| own.link)
    }

    fn add_way(&mut self, prefix: Prefix, target: Target, (metric, link): (u32, u16)) {
        let entry = Entry {
            metric,
            link,
            ..Entry::new(prefix, target)
        };
        // A configured one of the same prefix stays.
        let _ = self.fib.add(fib::MAIN, entry);
    }

    /// The groups of addresses that are, or may become, ours.
    pub(crate) fn hear(&mut self, addrs: impl Iterator<Item = (Ipv6Addr, u16)>) {
        for (ip, link) in addrs {
            for group in [ALL_NODES, ALL_NODES_HOST, solicited_node(ip)] {
                self.groups.insert((group, link));
            }
        }
    }

    /// Joins the groups of the other.
    pub(crate) fn hear_as(&mut self, other: Routes6) {
        self.groups = other.groups;
    }

    #[inline]
    pub fn is_own(&self, ip: Ipv6Addr) -> bool {
        self.own.binary_search(&ip).is_ok()
    }

    pub(crate) fn own(&self) -> impl Iterator<Item = Ipv6Addr> + '_ {
        self.addrs.iter().map(|own| own.ip)
    }

    /// Returns whether we have joined this group.
    pub fn is_joined(&self, group: Ipv6Addr) -> bool {
        let on_any = (group, 0)..=(group, u16::MAX);
        self.groups.range(on_any).next().is_some()
    }

    /// Returns the groups that are reported to routers and switches (RFC 3810 6: not the all-nodes
    /// group).
    pub fn reported_groups(&self) -> impl Iterator<Item = LinkedGroup> + '_ {
        let is_reported = |it: &&(Ipv6Addr, u16)| !matches!(it.0, ALL_NODES | ALL_NODES_HOST);
        let reported = self.groups.iter().filter(is_reported);
        reported.map(|&(group, link)| LinkedGroup {
            group: group.into(),
            link,
        })
    }

    pub fn is_on_link(&self, ip: Ipv6Addr) -> bool {
        ip.is_unicast_link_local()
            || self
                .networks
                .iter()
                .any(|&(net, prefix)| common_prefix_len(ip, net) >= prefix)
            || self.fib.is_neighbour(ip.into())
    }

    /// `None`: there is no route.
    pub fn find(&self, query: &Query) -> Option<Found> {
        let IpAddr::V6(dst) = query.dst else {
            return None;
        };
        // A host joins groups before it has its first address (RFC 4862 5.4.2).
        if self.groups.is_empty() {
            return None;
        }
        // A link-local address of a link that there is not.
        if zone_of(dst).0 != 0 && !self.has_links {
            return None;
        }
        let is_nowhere =
            dst.is_loopback() || dst.is_unspecified() || dst.to_ipv4_mapped().is_some();
        if is_nowhere && !self.is_own(dst) {
            return None;
        }
        if dst.is_multicast() {
            let link = match (query.choice.chosen_link(), query.src) {
                (Some(link), _) => link,
                (None, Some(IpAddr::V6(src))) => self.link_of_own(src),
                (None, _) => 0,
            };
            return Some(Found {
                link,
                ..Found::MULTICAST
            });
        }
        Found::by(&self.fib, query)
    }

    /// Returns our source address towards `dst`: RFC 6724 5, the rules that apply. None of our
    /// addresses is mobile (4) or temporary (7).
    pub fn find_source(&self, dst: Ipv6Addr) -> Option<Ipv6Addr> {
        self.find_source_by(dst, &Query::to(dst.into()))
    }

    /// Finds the source address for packets to `dst`, which is that of the query.
    pub fn find_source_by(&self, dst: Ipv6Addr, query: &Query) -> Option<Ipv6Addr> {
        let found = self.find(query)?;
        if let Some(IpAddr::V6(source)) = found.source {
            return Some(source);
        }
        let preference = |own: &Own| {
            (
                // Rule 1: the same address.
                own.ip == dst,
                // Rule 2: a scope that suffices, and of those the smallest.
                match (scope(own.ip), scope(dst)) {
                    (own, dst) if own >= dst => 16 + (15 - own),
                    (own, _) => own,
                },
                // Rule 3: one that is preferred.
                !own.is_deprecated,
                // Rule 5: one of the interface that it leaves by.
                own.link == found.link,
                // Rule 6: the same label.
                label(own.ip) == label(dst),
                // Rule 8: the longest common prefix, which ends with the network's.
                common_prefix_len(own.ip, dst).min(own.prefix),
            )
        };
        // RFC 6724 4: a link-local address is useless on another link.
        let is_near = |own: &&Own| own.ip == dst || !is_of_another(own.ip, found.link);
        let best = self.addrs.iter().filter(is_near).map(preference).max()?;
        let mut addrs = self.addrs.iter().filter(is_near);
        let found = addrs.find(|own| preference(own) == best);
        found.map(|own| own.ip)
    }
}

fn is_of_another(ip: Ipv6Addr, link: u16) -> bool {
    ip.is_unicast_link_local() && zone_of(ip).0 != link
}

/// RFC 6724 3.1: link-local 2, everything else that is unicast 14 (unique local addresses are
/// global in scope); of a group its own.
fn scope(ip: Ipv6Addr) -> u8 {
    if ip.is_multicast() {
        ip.octets()[1] & 0x0f
    } else if ip.is_unicast_link_local() || ip.is_loopback() {
        2
    } else {
        14
    }
}

/// RFC 6724 2.1, the default policy table.
fn label(ip: Ipv6Addr) -> u8 {
    let [a, b, ..] = ip.segments();
    match (a, b) {
        _ if ip.is_loopback() => 0,
        (0x2002, _) => 2,
        (0x2001, 0) => 5,
        (0xfc00..=0xfdff, _) => 13,
        (0xfec0..=0xfeff, _) => 11,
        (0x3ffe, _) => 12,
        _ => 1,
    }
}

fn common_prefix_len(a: Ipv6Addr, b: Ipv6Addr) -> u8 {
    (a.to_bits() ^ b.to_bits()).leading_zeros() as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Route;

    fn ip(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn routes() -> Routes6 {
        let addr = |text: &str, prefix| (IpAddr::V6(ip(text)), prefix);
        Routes6::of(
            &[
                addr("fd00:1::5", 64),
                addr("2001:db8:2::5", 64),
                addr("fe80::5", 64),
                (IpAddr::from([10, 0, 0, 5]), 24),
            ],
            &[IpAddr::from([10, 0, 0, 1]), IpAddr::V6(ip("fe80::1"))],
        )
    }

    #[test]
    fn destinations_find_their_next_hop() {
        let table = [
            ("fd00:1::5", Some(Route::Local)),
            ("fd00:1::9", Some(Route::Neighbour(ip("fd00:1::9").into()))),
            ("fd00:2::9", Some(Route::Neighbour(ip("fe80::1").into()))),
            ("fe80::77", Some(Route::Neighbour(ip("fe80::77").into()))),
            (
                "2001:db8:9::1",
                Some(Route::Neighbour(ip("fe80::1").into())),
            ),
            ("ff02::1", Some(Route::Multicast)),
            ("::1", None),
            ("::", None),
            ("::ffff:10.0.0.9", None),
        ];
        for (dst, want) in table {
            let found = routes().find(&Query::to(ip(dst).into()));
            assert_eq!(found.map(|found| found.route), want, "{dst}");
        }
    }

    #[test]
    fn a_stack_without_ipv6_addresses_has_no_route() {
        let routes = Routes6::of(&[(IpAddr::from([10, 0, 0, 5]), 24)], &[]);
        assert_eq!(routes.find(&Query::to(ip("fe80::1").into())), None);
        assert!(!routes.is_joined(ALL_NODES));
    }

    #[test]
    fn the_source_is_chosen_by_scope_and_longest_match() {
        // RFC 6724 2.1, 3.1 and 5.
        let table = [
            ("fd00:1::9", "fd00:1::5"),
            ("fd00:9::9", "fd00:1::5"),
            ("2001:db8:2::9", "2001:db8:2::5"),
            ("2a00::1", "2001:db8:2::5"),
            ("fe80::9", "fe80::5"),
            ("ff02::1", "fe80::5"),
            ("ff0e::1", "2001:db8:2::5"),
            ("fd00:1::5", "fd00:1::5"),
        ];
        for (dst, want) in table {
            assert_eq!(routes().find_source(ip(dst)), Some(ip(want)), "{dst}");
        }
    }

    /// RFC 6724 5, rule 8, in either order.
    #[test]
    fn the_smallest_of_overlapping_networks_gives_the_source() {
        let wide = (IpAddr::V6(ip("fd00::5")), 48);
        let narrow = (IpAddr::V6(ip("fd00:0:0:1::5")), 64);
        for addrs in [[wide, narrow], [narrow, wide]] {
            let routes = Routes6::of(&addrs, &[]);
            let source = |dst: &str| routes.find_source(ip(dst)).map(IpAddr::V6);
            assert_eq!(source("fd00:0:0:1::9"), Some(narrow.0));
            assert_eq!(source("fd00:0:0:2::9"), Some(narrow.0));
            assert_eq!(source("fd00::9"), Some(narrow.0));
        }
    }

    #[test]
    fn addresses_with_the_same_last_bytes_share_a_solicited_node_group() {
        // RFC 4291 2.8, RFC 3810 6.
        let groups: Vec<_> = routes().reported_groups().collect();
        let of_both = LinkedGroup {
            group: ip("ff02::1:ff00:5").into(),
            link: 0,
        };
        assert_eq!(groups, [of_both]);
        assert!(routes().is_joined(ALL_NODES) && routes().is_joined(ip("ff02::1:ff00:5")));
        assert!(!routes().is_joined(ip("ff02::1:ff00:6")));
    }
}
