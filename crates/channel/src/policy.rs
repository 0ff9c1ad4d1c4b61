//! The network as a program sees it when it decides where a socket belongs.

use std::collections::HashSet;
use std::net::IpAddr;

use slipstack_netctl::zone::{zone_of_ip, zoned_ip};
use slipstack_netctl::{Interface, NetworkState, RuleEntry, RuleInput, RuleQuery};

use crate::nets::Nets;

/// Number of addresses that are looked through one by one.
const FEW: usize = 8;

/// Properties of a socket beside its peer by which its route is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// The address that it is bound to, if it is one of the stack's.
    pub own: Option<IpAddr>,
    /// SO_MARK.
    pub mark: u32,
    /// The table that it has chosen itself; 0 = none.
    pub table: u16,
}

/// The rules by which a socket belongs on the stack: they follow from the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    network: NetworkState,
    /// Groups and broadcasts that name no interface are the stack's: on an interface that was named
    /// for it, and where it has the way to everywhere.
    has_groups: bool,
    /// The stack's addresses with their prefix lengths, those of a link with its zone.
    addresses: Vec<(IpAddr, u8)>,
    own: HashSet<IpAddr>,
    links: Nets,
    gateways: Vec<IpAddr>,
    /// Networks that are reached beside those of the addresses.
    networks: Nets,
    /// Tables beside the main one with a route to everywhere, by their numbers and whether they are
    /// of IPv6.
    defaults: Vec<(u32, bool)>,
    /// The rules that name one of these to sockets that are bound to no address.
    rules: Vec<RuleEntry>,
}

impl Policy {
    /// Derives the policy from a network. `has_groups`: multicast and broadcasts that name no
    /// interface are the stack's, whatever its routes are.
    pub fn of(network: NetworkState, has_groups: bool) -> Policy {
        // The stack refuses destinations that a route makes unreachable.
        let routes = network.routes.iter().filter(|route| route.to.1 != 0);
        let routes = routes.map(|route| route.to);
        let learnt = network.learnt.iter().flat_map(|learnt| &learnt.networks);
        let learnt = learnt.map(|net| (net.address.into(), net.prefix_len));
        let networks = learnt.chain(routes).collect();
        let of_interface = |it: &Interface| {
            let link = it.link();
            let nets = it.addresses.clone().into_iter();
            nets.map(move |(ip, len)| (zoned_ip(ip, link), len))
        };
        let configured = network.interfaces.iter().flat_map(of_interface);
        let hosts = network.learnt.iter().flat_map(|learnt| &learnt.addresses);
        let hosts = hosts.map(|learnt_entry| (learnt_entry.ip.into(), 128));
        let addresses: Vec<(IpAddr, u8)> = configured.chain(hosts).collect();
        let defaults = default_tables(&network);
        let names_default = |rule: &&RuleEntry| {
            rule.from.is_none() && defaults.contains(&(rule.table, rule.is_v6()))
        };
        Policy {
            own: addresses.iter().map(|(own, _)| *own).collect(),
            links: addresses.iter().copied().collect(),
            addresses,
            gateways: network.gateways(),
            networks,
            rules: network
                .rules
                .iter()
                .filter(names_default)
                .cloned()
                .collect(),
            defaults,
            has_groups,
            network,
        }
    }

    /// Returns the network from which the policy follows.
    pub fn network(&self) -> &NetworkState {
        &self.network
    }

    /// Returns the stack's addresses with their prefix lengths, those of a link with its zone.
    pub fn addresses(&self) -> &[(IpAddr, u8)] {
        &self.addresses
    }

    /// Returns the number in the kernel of the stack's first interface; 0 = it has none there.
    pub fn interface(&self) -> u32 {
        self.network.own().index
    }

    /// Returns the interface that has one of the stack's addresses.
    pub fn interface_with(&self, own: IpAddr) -> Option<&Interface> {
        let learnt = self.network.learnt.iter().flat_map(|it| &it.addresses);
        let learnt = || learnt.clone().filter(|it| IpAddr::from(it.ip) == own);
        let has = |it: &&Interface| {
            let mut configured = it.addresses.iter();
            configured.any(|(ip, _)| zoned_ip(*ip, it.link()) == own)
                || learnt().any(|learnt_entry| learnt_entry.link == it.link)
        };
        self.network.interfaces.iter().find(has)
    }

    /// Returns whether the address is one of the stack's.
    pub fn is_own(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        match self.addresses.len() {
            0..=FEW => self.addresses.iter().any(|(own, _)| *own == ip),
            _ => self.own.contains(&ip),
        }
    }

    /// Returns whether the address is a broadcast on the stack's link (IPv4).
    pub fn is_broadcast(&self, ip: IpAddr) -> bool {
        let IpAddr::V4(ip) = ip.to_canonical() else {
            return false;
        };
        let is_directed = |&(own, prefix): &(IpAddr, u8)| match own {
            IpAddr::V4(own) if prefix < 31 => {
                let host = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
                ip.to_bits() == own.to_bits() | host || ip.to_bits() == own.to_bits() & !host
            }
            _ => false,
        };
        ip.is_broadcast() || self.addresses.iter().any(is_directed)
    }

    /// Returns whether a group that is named without an interface is the stack's.
    pub fn takes_group(&self, group: IpAddr) -> bool {
        let is_v4 = group.to_canonical().is_ipv4();
        let mut gateways = self.gateways.iter();
        (self.has_groups || gateways.any(|gateway| gateway.is_ipv4() == is_v4))
            && self.addresses.iter().any(|(own, _)| own.is_ipv4() == is_v4)
    }

    /// Returns whether the stack reaches the address for a socket: on a link of its own, or through
    /// the gateway or that of a table which a rule or the socket names (never the loopback network,
    /// which is the kernel's).
    pub fn is_reachable(&self, ip: IpAddr, asker: Asker) -> bool {
        let ip = ip.to_canonical();
        if ip.is_multicast() || matches!(ip, IpAddr::V4(ip) if ip.is_broadcast()) {
            return self.takes_group(ip);
        }
        if ip.is_loopback() || ip.is_unspecified() {
            return false;
        }
        // From another of our addresses no answer is possible (RFC 4007 9).
        if is_local(ip) {
            let is_there = |own: IpAddr| is_local(own) && zone_of_ip(own) == zone_of_ip(ip);
            return self.addresses.iter().any(|(own, _)| is_there(*own));
        }
        self.gateways
            .iter()
            .any(|gateway| gateway.is_ipv4() == ip.is_ipv4())
            || self.links.contains(ip)
            || self.networks.contains(ip)
            || self.is_behind_table(ip, asker)
    }

    /// Returns whether the way there is the default route of a table that is not the main one.
    fn is_behind_table(&self, ip: IpAddr, asker: Asker) -> bool {
        let is_v6 = ip.is_ipv6();
        let is_default = |table: u32| self.defaults.contains(&(table, is_v6));
        // The engine decides by the type of service, the ports and the link, which a call may
        // still set.
        let is_named = |rule: &RuleEntry| {
            let query = RuleQuery {
                from: None,
                to: ip,
                mark: asker.mark,
                tos: rule.tos.unwrap_or(0),
                carried: rule.carried.first(),
                input: RuleInput::Own,
                output: rule.output,
            };
            rule.applies(&query)
        };
        match asker {
            // The kernel has nothing for a socket with the stack's address.
            Asker { own: Some(own), .. } => own.is_ipv6() == is_v6 && !self.defaults.is_empty(),
            Asker { table: 0, .. } => self.rules.iter().any(is_named),
            Asker { table, .. } => is_default(table.into()) || self.rules.iter().any(is_named),
        }
    }

    /// Returns whether a station with this address would be on a link of the stack's.
    pub fn is_on_link(&self, ip: IpAddr) -> bool {
        self.links.contains(ip.to_canonical())
    }

    /// Returns the largest packet to an address that the link takes.
    pub fn mtu_to(&self, ip: IpAddr) -> u16 {
        self.mtu_by(self.network.own().mtu, ip)
    }

    /// As [`Policy::mtu_to`], by a link of `mtu` bytes.
    pub fn mtu_by(&self, mtu: u16, ip: IpAddr) -> u16 {
        let learnt_entry = self.network.learnt.as_ref().and_then(|learnt| learnt.mtu);
        match (ip.to_canonical(), learnt_entry) {
            (IpAddr::V6(_), Some(learnt_entry)) => learnt_entry.min(mtu),
            _ => mtu,
        }
    }
}

/// Tables with a route to everywhere, and whether they are of IPv6.
fn default_tables(network: &NetworkState) -> Vec<(u32, bool)> {
    let defaults = network.routes.iter().filter(|route| {
        route.to.1 == 0 && !route.is_default() && route.refusal.is_none() && route.via.is_some()
    });
    let mut tables: Vec<(u32, bool)> = defaults
        .map(|route| (route.table, route.to.0.is_ipv6()))
        .collect();
    tables.sort_unstable();
    tables.dedup();
    tables
}

/// Returns whether the address is valid on its link alone.
fn is_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use slipstack_netctl::RouteEntry;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn policy(addresses: &[(&str, u8)], gateways: &[&str], has_groups: bool) -> Policy {
        let addresses = addresses.iter().map(|(text, len)| (ip(text), *len));
        let gateways: Vec<IpAddr> = gateways.iter().map(|text| ip(text)).collect();
        let network = NetworkState::of(1500, addresses.collect(), &gateways);
        Policy::of(network, has_groups)
    }

    #[test]
    fn policy_tells_own_and_reachable_addresses() {
        let alone = policy(&[("10.0.0.5", 24)], &[], false);
        assert!(alone.is_own(ip("10.0.0.5")) && alone.is_own(ip("::ffff:10.0.0.5")));
        assert!(alone.is_reachable(ip("10.0.0.77"), Asker::default()));
        assert!(!alone.is_reachable(ip("10.0.1.77"), Asker::default()));
        let policy = policy(&[("10.0.0.5", 24)], &["10.0.0.1"], false);
        assert!(policy.is_reachable(ip("1.1.1.1"), Asker::default()));
        assert!(
            !policy.is_reachable(ip("127.0.0.1"), Asker::default())
                && !policy.is_reachable(ip("::1"), Asker::default())
        );
    }

    #[test]
    fn a_family_is_reached_through_its_own_network_and_gateway() {
        let own = [("10.0.0.5", 24), ("fd00::5", 64)];
        let one = policy(&own, &["10.0.0.1"], false);
        assert!(one.is_own(ip("fd00::5")) && one.is_reachable(ip("fd00::77"), Asker::default()));
        assert!(
            !one.is_reachable(ip("fd01::1"), Asker::default())
                && one.is_reachable(ip("1.1.1.1"), Asker::default())
        );
        // RFC 4007 9: from an address of wider scope no answer would come back.
        assert!(
            !one.is_reachable(ip("fe80::1"), Asker::default())
                && !one.is_reachable(ip("ff02::1"), Asker::default())
        );
        assert!(one.is_broadcast(ip("10.0.0.255")) && !one.is_broadcast(ip("10.0.0.254")));
        assert!(one.takes_group(ip("239.1.2.3")) && !one.takes_group(ip("ff0e::7")));
        assert!(policy(&own, &[], true).is_reachable(ip("ff0e::7"), Asker::default()));
        assert!(policy(&own, &["fe80::1"], false).is_reachable(ip("fd01::1"), Asker::default()));
    }

    #[test]
    fn a_default_route_of_another_table_needs_a_rule_or_a_bound_table() {
        let mut network = NetworkState::of(1500, vec![(ip("10.0.0.5"), 24)], &[]);
        network.routes.push(RouteEntry {
            table: 7,
            ..RouteEntry::default_by(ip("10.0.0.1"))
        });
        let rule = |from: Option<&str>, to: Option<&str>, mark| RuleEntry {
            priority: 100,
            from: from.map(|text| (ip(text), 32)),
            to: to.map(|text| (ip(text), 16)),
            mark,
            table: 7,
            ..RuleEntry::default()
        };
        network.rules = vec![
            rule(Some("10.0.0.5"), None, None),
            rule(None, Some("10.8.0.0"), None),
            rule(None, None, Some((0x10, 0xf0))),
        ];
        let policy = Policy::of(network, false);
        let plain = Asker::default();
        let own = Some(ip("10.0.0.5"));
        for (to, asker, wanted) in [
            ("1.1.1.1", plain, false),
            ("10.8.1.1", plain, true),
            (
                "1.1.1.1",
                Asker {
                    mark: 0x12,
                    ..plain
                },
                true,
            ),
            (
                "1.1.1.1",
                Asker {
                    mark: 0x22,
                    ..plain
                },
                false,
            ),
            ("1.1.1.1", Asker { table: 7, ..plain }, true),
            ("1.1.1.1", Asker { table: 8, ..plain }, false),
            ("1.1.1.1", Asker { own, ..plain }, true),
            ("fd01::1", Asker { own, ..plain }, false),
            ("127.0.0.1", Asker { own, ..plain }, false),
        ] {
            assert_eq!(policy.is_reachable(ip(to), asker), wanted, "{to} {asker:?}");
        }
    }

    #[test]
    fn the_interface_of_an_address_is_that_of_its_link() {
        let link = |vlan, own| Interface {
            link: vlan,
            addresses: vec![(ip(own), 64)],
            ..Interface::default()
        };
        let network = NetworkState {
            interfaces: vec![link(0, "fe80::5"), link(7, "fe80::5"), link(8, "10.8.0.5")],
            ..NetworkState::default()
        };
        let policy = Policy::of(network, false);
        let links: Vec<Option<u16>> = policy
            .addresses()
            .iter()
            .map(|(own, _)| policy.interface_with(*own).map(|it| it.link))
            .collect();
        assert_eq!(links, [Some(0), Some(7), Some(8)]);
        assert!(policy.interface_with(ip("10.8.0.6")).is_none());
    }
}
