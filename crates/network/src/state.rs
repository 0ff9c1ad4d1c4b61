//! The network of a stack as one immutable value.

use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::IpAddr;

use serde::{Deserialize, Serialize};
use slipstack_terms::{Learnt, LinkTags, RouteRefusal, VlanTag};
use slipstack_wire::LinkId;
use slipstack_wire::zone::{plain, zone_of};

use crate::rule::RuleEntry;
use crate::share::KernelShare;

/// Linux's table of routes that name no other.
pub const MAIN_TABLE: u32 = 254;
/// The tables that every stack has: default, main and local.
pub const STANDARD_TABLES: core::ops::RangeInclusive<u32> = 253..=255;

/// The network of all engines and programs of a device. The keeper publishes it; engines apply it
/// whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkState {
    /// Counts the changes.
    pub revision: u64,
    /// The first port's own first, then those of the other ports and VLANs.
    pub interfaces: Vec<Interface>,
    /// Beside the connected routes of addresses; default gateways are routes of the main table.
    pub routes: Vec<RouteEntry>,
    pub rules: Vec<RuleEntry>,
    /// Neighbours that are not resolved.
    pub neighbours: Vec<NeighbourEntry>,
    /// Counts deletions of neighbours. When it has changed a stack forgets the neighbours that it
    /// has learnt, also if it sees several changes as one.
    #[serde(default)]
    pub deletions: u64,
    /// Packets for others are passed on.
    pub is_forwarding: bool,
    /// Every table has the networks of own addresses, not the main one alone (FreeBSD's
    /// `net.add_addr_allfibs`).
    #[serde(default)]
    pub connects_all_tables: bool,
    /// The configuration learnt from routers of the link, if they are solicited.
    pub learnt: Option<Learnt>,
    /// Numbers of every stack that an operator has set, by name.
    #[serde(default)]
    pub tunables: Vec<(String, u32)>,
    /// Which ports the kernel keeps, if it has the stack's addresses too.
    #[serde(default)]
    pub share: Option<KernelShare>,
    /// First and last local port of the kernel's range, if that has been another one since the
    /// stack began.
    #[serde(default)]
    pub local_ports: Option<(u16, u16)>,
    /// The revision of the last change of the packet filter, whose rules are fetched separately; 0
    /// = there are none.
    #[serde(default)]
    pub filter: u64,
}

/// An interface of the stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    pub name: String,
    /// Number of the interface: the kernel's, of a VLAN one that the kernel has not given.
    pub index: u32,
    /// The number of its link ([`Interface::link`]): of a VLAN of the first port that of the VLAN,
    /// if no other link has it ([`NetworkState::free_link`]); 0 = the port's own link.
    pub link: u16,
    /// Link-layer address.
    pub mac: [u8; 6],
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Largest one that a port's device takes, where an operator has made the port's smaller; 0 =
    /// the port's.
    #[serde(default)]
    pub device_mtu: u16,
    /// With their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Addresses of the host at the other end of a device of our own.
    pub hosts: Vec<IpAddr>,
    /// An operator has put it down: it neither takes nor sends anything.
    #[serde(default)]
    pub is_down: bool,
    /// Tag of the VLAN, if the interface is one.
    #[serde(default)]
    pub tag: VlanTag,
    /// The link of the VLAN that it is within (802.1ad); `None`: it is a port's.
    #[serde(default)]
    pub within: Option<u16>,
}

impl Interface {
    /// Which port it is, or which VLAN of which port.
    pub fn link(&self) -> LinkId {
        LinkId(self.link)
    }

    /// The largest MTU that a port's device takes.
    pub fn device_mtu(&self) -> u16 {
        match self.device_mtu {
            0 => self.mtu,
            mtu => mtu,
        }
    }

    /// The device takes packets of another size from now on. One that is narrower by choice stays
    /// so while it fits.
    pub fn follow_device(&mut self, mtu: u16) {
        let is_narrower = self.device_mtu != 0 && self.mtu < mtu;
        if !is_narrower {
            self.mtu = mtu;
        }
        self.device_mtu = if is_narrower { mtu } else { 0 };
    }

    /// The largest MTU that it may have on an interface which takes packets of this size.
    pub fn mtu_max(&self, below: u16) -> u16 {
        // The kernel lets packet sockets send frames that are longer by an 802.1Q tag only.
        const TAG_LEN: u16 = 4;
        match self.tag.is_provider || self.within.is_some() {
            true => below.saturating_sub(TAG_LEN),
            false => below,
        }
    }

    /// Returns whether it is a port's own, and not a VLAN.
    pub fn is_port(&self) -> bool {
        self.link().vlan() == 0
    }
}

/// A configured route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteEntry {
    pub to: (IpAddr, u8),
    /// `None`: the destination is a neighbour.
    pub via: Option<IpAddr>,
    /// The link that it leads by; `None`: the one of the gateway's network.
    pub link: Option<u16>,
    pub table: u32,
    pub metric: u32,
    pub source: Option<IpAddr>,
    pub mtu: Option<u16>,
    /// Refusal with which the route answers; `None`: it leads somewhere.
    pub refusal: Option<RouteRefusal>,
}

impl RouteEntry {
    /// A default gateway of the main table.
    pub fn default_by(gateway: IpAddr) -> RouteEntry {
        RouteEntry {
            to: (unspecified(gateway.is_ipv4()), 0),
            via: Some(gateway),
            link: None,
            table: MAIN_TABLE,
            metric: 0,
            source: None,
            mtu: None,
            refusal: None,
        }
    }

    /// Returns the route with the host bits of its destination cleared.
    #[must_use]
    pub fn normalized(&self) -> RouteEntry {
        let (ip, len) = self.to;
        RouteEntry {
            to: (network_of((ip, len)), len),
            ..self.clone()
        }
    }

    /// Returns whether it is a default route of the main table.
    pub fn is_default(&self) -> bool {
        self.to.1 == 0 && self.table == MAIN_TABLE && self.refusal.is_none()
    }
}

fn unspecified(is_v4: bool) -> IpAddr {
    match is_v4 {
        true => IpAddr::from([0; 4]),
        false => IpAddr::from([0; 16]),
    }
}

/// A neighbour whose link-layer address is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourEntry {
    pub link: u16,
    pub ip: IpAddr,
    pub mac: [u8; 6],
}

impl NetworkState {
    /// A network of one interface without a name, and a default gateway for each of these.
    #[must_use]
    pub fn of(mtu: u16, addresses: Vec<(IpAddr, u8)>, gateways: &[IpAddr]) -> NetworkState {
        NetworkState {
            interfaces: Vec::from([Interface {
                mtu,
                addresses,
                ..Interface::default()
            }]),
            routes: gateways
                .iter()
                .map(|ip| RouteEntry::default_by(*ip))
                .collect(),
            ..NetworkState::default()
        }
    }

    /// The device's own interface, which is made if there is none.
    pub fn own_mut(&mut self) -> &mut Interface {
        if self.interfaces.is_empty() {
            self.interfaces.push(Interface::default());
        }
        &mut self.interfaces[0]
    }

    /// Returns whether packets take the same routes by `other`: the two differ at most in parts
    /// that do not concern a stack's tables.
    pub fn has_same_ways(&self, other: &NetworkState) -> bool {
        let NetworkState {
            revision: _,
            interfaces,
            routes,
            rules,
            neighbours,
            deletions,
            is_forwarding,
            connects_all_tables,
            learnt: _,
            tunables: _,
            share: _,
            local_ports: _,
            filter: _,
        } = self;
        *interfaces == other.interfaces
            && *routes == other.routes
            && *rules == other.rules
            && *neighbours == other.neighbours
            && *deletions == other.deletions
            && *is_forwarding == other.is_forwarding
            && *connects_all_tables == other.connects_all_tables
    }

    /// Returns whether a table has the networks of own addresses.
    pub fn is_connected_in(&self, table: u32) -> bool {
        let is_standard = STANDARD_TABLES.contains(&table);
        table == MAIN_TABLE || (self.connects_all_tables && !is_standard)
    }

    /// The link that a route leads by; `None`: it leads nowhere.
    pub fn link_of(&self, route: &RouteEntry) -> Option<u16> {
        if route.refusal.is_some() {
            return None;
        }
        let towards = |via| self.interface_towards(via).map_or(0, |it| it.link);
        Some(route.link.unwrap_or_else(|| route.via.map_or(0, towards)))
    }

    /// The device's own interface.
    pub fn own(&self) -> &Interface {
        const NONE: &Interface = &Interface {
            name: String::new(),
            index: 0,
            link: 0,
            mac: [0; 6],
            mtu: 0,
            device_mtu: 0,
            addresses: Vec::new(),
            hosts: Vec::new(),
            is_down: false,
            tag: VlanTag::NONE,
            within: None,
        };
        self.interfaces.first().unwrap_or(NONE)
    }

    pub fn find(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|it| it.name == name)
    }

    pub fn find_link(&self, link: u16) -> Option<&Interface> {
        self.interfaces.iter().find(|it| it.link == link)
    }

    /// The ports of the device, which VLANs are of.
    pub fn ports(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter().filter(|it| it.is_port())
    }

    /// Returns whether an interface is down, or the VLAN or the port that it is of.
    pub fn is_down(&self, interface: &Interface) -> bool {
        let of = self.parent_of(interface);
        interface.is_down || of.is_down || self.port_of(of).is_down
    }

    /// Returns the network that engines and programs use: without the addresses and routes of
    /// interfaces that are down. They return with the interface.
    #[must_use]
    pub fn in_force(&self) -> NetworkState {
        let is_down = |link: u16| self.find_link(link).is_some_and(|it| self.is_down(it));
        let mut state = self.clone();
        if self.interfaces.iter().all(|it| !it.is_down) {
            return state;
        }
        let is_gone = |ip: IpAddr| {
            let mut all = self.interfaces.iter();
            all.any(|it| self.is_down(it) && it.addresses.iter().any(|(own, _)| *own == ip))
        };
        state.routes.retain(|route| {
            !self.link_of(route).is_some_and(is_down) && !route.source.is_some_and(is_gone)
        });
        state.neighbours.retain(|entry| !is_down(entry.link));
        state
            .interfaces
            .retain(|it| it.is_port() || !self.is_down(it));
        for port in state.interfaces.iter_mut().filter(|it| it.is_down) {
            port.addresses.clear();
        }
        let is_up = |link| !is_down(link);
        let of = |ip| zone_of(ip).0;
        state.learnt = self.learnt.as_ref().map(|it| it.on_links(is_up, of));
        state
    }

    /// The port that an interface is, or that its VLAN is of.
    pub fn port_of(&self, interface: &Interface) -> &Interface {
        self.find_link(interface.link().own().0)
            .unwrap_or_else(|| self.own())
    }

    /// The interface that a VLAN is of: a port, or the VLAN that it is within. That of a port is
    /// itself.
    pub fn parent_of<'a>(&'a self, interface: &'a Interface) -> &'a Interface {
        let outer = interface.within.and_then(|link| self.find_link(link));
        outer.unwrap_or_else(|| self.port_of(interface))
    }

    /// The VLAN of an interface that has such a tag.
    pub fn find_vlan(&self, parent: &Interface, id: u16, is_provider: bool) -> Option<&Interface> {
        let is_meant = |it: &&Interface| {
            let tag = (it.tag.id, it.tag.is_provider);
            !it.is_port() && tag == (id, is_provider) && self.parent_of(it).link == parent.link
        };
        self.interfaces.iter().find(is_meant)
    }

    /// Returns the number for the link of a new VLAN of an interface: the VLAN's own, if no link
    /// has it; otherwise, and for a VLAN within a VLAN, the highest that is free.
    pub fn free_link(&self, parent: &Interface, id: u16) -> u16 {
        let port = parent.link().port();
        let numbers = (1..=LinkId::VLAN_MAX)
            .rev()
            .map(|number| LinkId::new(port, number));
        let own = parent.is_port().then_some(LinkId::new(port, id));
        let mut all = own.into_iter().chain(numbers);
        let free = all.find(|link| self.find_link(link.0).is_none());
        // There are never so many interfaces.
        free.unwrap_or(LinkId::new(port, id)).0
    }

    /// Links of the device beside the first port's own that are up, with their tags.
    pub fn further_links(&self) -> Vec<LinkTags> {
        let up = self.interfaces.iter().filter(|it| !self.is_down(it));
        let tags = |it: &Interface| match it.within {
            None => LinkTags::single(it.link, it.tag),
            Some(_) => LinkTags {
                link: it.link,
                outer: self.parent_of(it).tag,
                inner: Some(it.tag),
            },
        };
        up.filter(|it| it.link != 0).map(tags).collect()
    }

    /// Configured addresses of all interfaces.
    pub fn configured(&self) -> impl Iterator<Item = (IpAddr, u8)> + '_ {
        self.interfaces
            .iter()
            .flat_map(|it| it.addresses.iter().copied())
    }

    /// Configured and learnt addresses.
    pub fn addresses(&self) -> Vec<(IpAddr, u8)> {
        let learnt = self.learnt.iter().flat_map(|learnt| &learnt.addresses);
        let learnt = learnt.map(|entry| (IpAddr::V6(plain(entry.ip)), entry.prefix_len));
        self.configured().chain(learnt).collect()
    }

    /// Default gateways of the main table, learnt ones last.
    pub fn gateways(&self) -> Vec<IpAddr> {
        let configured = self.routes.iter().filter(|route| route.is_default());
        let learnt = self.learnt.iter().flat_map(|learnt| &learnt.routers);
        let learnt = learnt.copied().map(IpAddr::V6);
        configured
            .filter_map(|route| route.via)
            .chain(learnt)
            .collect()
    }

    /// Returns the gateway to an address by the main table; `None` if the address is a neighbour or
    /// there is no route.
    pub fn gateway_towards(&self, ip: IpAddr) -> Option<IpAddr> {
        let connected = self.configured().filter(|net| contains(*net, ip));
        let connected = connected.map(|(_, len)| (len, Reverse(0), None));
        let routes = self.routes.iter().filter(|route| {
            route.table == MAIN_TABLE && route.refusal.is_none() && contains(route.to, ip)
        });
        let routes = routes.map(|route| (route.to.1, Reverse(route.metric), route.via));
        let learnt = self.learnt.iter().flat_map(|learnt| &learnt.routers);
        let learnt = learnt.filter(|_| ip.is_ipv6());
        let learnt = learnt.map(|router| (0, Reverse(u32::MAX), Some(IpAddr::V6(*router))));
        let ways = connected.chain(routes).chain(learnt);
        ways.max_by_key(|(len, metric, _)| (*len, *metric))
            .and_then(|(.., gateway)| gateway)
    }

    /// Returns the interface whose network contains an address: the one with the longest prefix.
    pub fn interface_towards(&self, ip: IpAddr) -> Option<&Interface> {
        let lens = self.interfaces.iter().flat_map(|it| {
            let nets = it.addresses.iter().filter(|net| contains(**net, ip));
            nets.map(move |(_, len)| (*len, it))
        });
        lens.max_by_key(|(len, it)| (*len, Reverse(it.link)))
            .map(|(_, it)| it)
    }
}

/// Returns whether `ip` is of the network.
pub fn contains((net, len): (IpAddr, u8), ip: IpAddr) -> bool {
    let common = match (net, ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => return false,
    };
    common >= u32::from(len)
}

/// The first address of a network.
pub(crate) fn network_of((ip, len): (IpAddr, u8)) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX
                .checked_shl(32 - u32::from(len.min(32)))
                .unwrap_or(0);
            IpAddr::from((ip.to_bits() & mask).to_be_bytes())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX
                .checked_shl(128 - u32::from(len.min(128)))
                .unwrap_or(0);
            IpAddr::from((ip.to_bits() & mask).to_be_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_gateway_is_that_of_the_longest_prefix_and_then_of_the_lowest_metric() {
        let by = |to: &str, len, via: &str, metric| RouteEntry {
            to: (ip(to), len),
            metric,
            ..RouteEntry::default_by(ip(via))
        };
        let mut network = NetworkState::of(1500, vec![(ip("10.0.0.5"), 24)], &[ip("10.0.0.1")]);
        network.routes.push(by("10.1.0.0", 16, "10.0.0.2", 9));
        network.routes.push(by("10.1.0.0", 16, "10.0.0.3", 8));
        network.routes.push(RouteEntry {
            table: 7,
            ..by("10.1.1.0", 24, "10.0.0.4", 0)
        });
        for (to, gateway) in [
            ("10.0.0.9", None),
            ("10.1.1.1", Some("10.0.0.3")),
            ("1.1.1.1", Some("10.0.0.1")),
            ("fd00::1", None),
        ] {
            assert_eq!(network.gateway_towards(ip(to)), gateway.map(ip), "{to}");
        }
    }
}
