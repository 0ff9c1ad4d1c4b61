//! Changes of a network, applied whole or not at all.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use serde::{Deserialize, Serialize};
use slipstack_terms::VlanTag;
use slipstack_wire::LinkId;

use crate::refused::Refused;
use crate::rule::{RuleAction, RuleEntry, RuleInput};
use crate::share::KernelShare;
use crate::state::{
    Interface, MAIN_TABLE, NeighbourEntry, NetworkState, RouteEntry, contains, network_of,
};

/// Interfaces of a port: as many VLANs as F-Stack takes, and the port's own.
const INTERFACES_MAX: usize = 129;
/// Addresses of one interface.
const ADDRESSES_MAX: usize = 256;
/// Routes, rules, neighbours and tunables, each.
const ENTRIES_MAX: usize = 16_384;
/// Every IPv4 link takes packets of this size (RFC 791).
const MTU_MIN: u16 = 68;
/// Longest name of an interface.
const NAME_MAX: usize = 31;
/// Numbers of interfaces that the kernel does not have.
const INDEX_BASE: u32 = 0x4000_0000;
const LOCAL_TABLE: u32 = 255;

/// The treatment of an entry that exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Entry that must not be there.
    Add,
    /// Entry that is replaced, or added.
    Replace,
    /// Entry that must be there.
    Change,
    /// Route that is added behind those that are like it but for the gateway, and holds when they
    /// are gone; of anything but a route, as `Add`.
    Append,
}

/// The routes that a removal selects; fields that are `None` do not matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteKey {
    pub to: (IpAddr, u8),
    pub table: u32,
    pub via: Option<IpAddr>,
    pub metric: Option<u32>,
    pub link: Option<u16>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A VLAN of the device becomes an interface.
    AddVlan {
        name: String,
        /// The number of its link ([`NetworkState::free_link`]).
        link: u16,
        /// Number of the VLAN.
        id: u16,
        /// Tags of the VLAN are a provider's (802.1ad).
        #[serde(default)]
        is_provider: bool,
        /// The link of the VLAN that it is within; `None`: it is the port's.
        #[serde(default)]
        within: Option<u16>,
    },
    /// Sets the priorities in a VLAN's tags ([`VlanTag::priorities`]).
    SetPriorities {
        name: String,
        priorities: [u8; 8],
    },
    DelInterface {
        name: String,
    },
    SetMtu {
        name: String,
        mtu: u16,
    },
    /// Puts an interface up or down.
    SetUp {
        name: String,
        is_up: bool,
    },
    AddAddress {
        interface: String,
        address: (IpAddr, u8),
        mode: Mode,
        /// Whether it is added without probing the link for another station that has it.
        #[serde(default)]
        is_certain: bool,
    },
    /// Removes an address, of any prefix length if none is given.
    DelAddress {
        interface: String,
        ip: IpAddr,
        prefix_len: Option<u8>,
    },
    AddRoute {
        route: RouteEntry,
        mode: Mode,
    },
    DelRoute(RouteKey),
    AddRule(RuleEntry),
    /// The first that is like it; a priority of 0 does not matter.
    DelRule(RuleEntry),
    AddNeighbour {
        entry: NeighbourEntry,
        mode: Mode,
    },
    DelNeighbour {
        link: u16,
        ip: IpAddr,
    },
    SetForwarding(bool),
    /// Whether every table has the networks of own addresses.
    ConnectAllTables(bool),
    /// Changes the sharing of addresses that were shared with the kernel from the start.
    SetShare(KernelShare),
    /// A number of every stack of the device, by name.
    Tune {
        name: String,
        value: u32,
    },
}

/// A refusal with the place of its change in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeError {
    pub at: usize,
    pub refused: Refused,
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.refused.sentence())
    }
}

impl core::error::Error for ChangeError {}

impl NetworkState {
    /// The network after all of the changes, with the next revision.
    ///
    /// # Errors
    /// The first change that cannot be made; nothing has changed.
    pub fn changed(&self, changes: &[Change]) -> Result<NetworkState, ChangeError> {
        let mut next = self.clone();
        next.revision += 1;
        for (at, change) in changes.iter().enumerate() {
            next.apply(change)
                .map_err(|refused| ChangeError { at, refused })?;
        }
        Ok(next)
    }

    fn apply(&mut self, change: &Change) -> Result<(), Refused> {
        match change {
            Change::AddVlan {
                name,
                link,
                id,
                is_provider,
                within,
            } => {
                let tag = VlanTag {
                    is_provider: *is_provider,
                    ..VlanTag::plain(*id)
                };
                self.add_vlan(name, *link, tag, *within)
            }
            Change::SetPriorities { name, priorities } => self.set_priorities(name, *priorities),
            Change::DelInterface { name } => self.del_interface(name),
            Change::SetMtu { name, mtu } => self.set_mtu(name, *mtu),
            Change::SetUp { name, is_up } => {
                self.interface(name)?.is_down = !is_up;
                Ok(())
            }
            Change::AddAddress {
                interface,
                address,
                mode,
                is_certain: _,
            } => self.add_address(interface, *address, *mode),
            Change::DelAddress {
                interface,
                ip,
                prefix_len,
            } => self.del_address(interface, *ip, *prefix_len),
            Change::AddRoute { route, mode } => self.add_route(route, *mode),
            Change::DelRoute(key) => self.del_route(key),
            Change::AddRule(rule) => self.add_rule(rule),
            Change::DelRule(rule) => self.del_rule(rule),
            Change::AddNeighbour { entry, mode } => self.add_neighbour(*entry, *mode),
            Change::DelNeighbour { link, ip } => self.del_neighbour(*link, *ip),
            Change::SetForwarding(is_on) => {
                self.is_forwarding = *is_on;
                Ok(())
            }
            Change::ConnectAllTables(is_on) => {
                self.connects_all_tables = *is_on;
                Ok(())
            }
            Change::SetShare(share) => self.set_share(share),
            Change::Tune { name, value } => self.tune(name, *value),
        }
    }

    fn set_share(&mut self, share: &KernelShare) -> Result<(), Refused> {
        match &mut self.share {
            None => Err(Refused::NotShared),
            Some(_) if !share.is_sound() => Err(Refused::InvalidPorts),
            Some(now) => {
                now.clone_from(share);
                Ok(())
            }
        }
    }

    fn tune(&mut self, name: &str, value: u32) -> Result<(), Refused> {
        if name.is_empty() || name.len() > NAME_MAX * 2 {
            return Err(Refused::InvalidName);
        }
        let found = self.tunables.iter().position(|(known, _)| known == name);
        match found {
            Some(at) => self.tunables[at].1 = value,
            None if self.tunables.len() >= ENTRIES_MAX => return Err(Refused::TooMany),
            None => self.tunables.push((name.to_owned(), value)),
        }
        Ok(())
    }

    fn interface(&mut self, name: &str) -> Result<&mut Interface, Refused> {
        let found = self.interfaces.iter_mut().find(|it| it.name == name);
        found.ok_or(Refused::NoSuchInterface)
    }

    fn add_vlan(
        &mut self,
        name: &str,
        number: u16,
        tag: VlanTag,
        within: Option<u16>,
    ) -> Result<(), Refused> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_plain) {
            return Err(Refused::InvalidName);
        }
        let link = LinkId(number);
        let is_valid = |id| (1..=LinkId::VLAN_MAX).contains(&id);
        if !is_valid(link.vlan()) || !is_valid(tag.id) {
            return Err(Refused::InvalidVlan);
        }
        let parent = self.find_link(within.unwrap_or(link.own().0));
        let parent = parent.ok_or(Refused::NoSuchInterface)?.clone();
        if parent.within.is_some() || parent.link().own() != link.own() {
            return Err(Refused::TooManyTags);
        }
        let is_there = self.find_vlan(&parent, tag.id, tag.is_provider).is_some();
        if is_there || self.find(name).is_some() || self.find_link(number).is_some() {
            return Err(Refused::Exists);
        }
        let is_of_port = |it: &&Interface| it.link().own() == link.own();
        if self.interfaces.iter().filter(is_of_port).count() >= INTERFACES_MAX {
            return Err(Refused::TooMany);
        }
        let mut interface = Interface {
            name: name.to_owned(),
            index: INDEX_BASE | self.port_of(&parent).index << 12 | u32::from(link.vlan()),
            link: number,
            mac: parent.mac,
            mtu: 0,
            device_mtu: 0,
            addresses: Vec::new(),
            hosts: Vec::new(),
            is_down: false,
            tag,
            within,
        };
        interface.mtu = interface.mtu_max(parent.mtu);
        self.interfaces.push(interface);
        Ok(())
    }

    fn set_priorities(&mut self, name: &str, priorities: [u8; 8]) -> Result<(), Refused> {
        let interface = self.interface(name)?;
        // IEEE 802.1Q 9.6: a priority has three bits.
        if interface.is_port() || priorities.iter().any(|it| *it > 7) {
            return Err(Refused::InvalidPriority);
        }
        interface.tag.priorities = priorities;
        Ok(())
    }

    fn del_interface(&mut self, name: &str) -> Result<(), Refused> {
        let gone = self.find(name).ok_or(Refused::NoSuchInterface)?.clone();
        let link = gone.link;
        if gone.is_port() {
            return Err(Refused::OwnInterface);
        }
        let of_it = self.interfaces.iter();
        let of_it = of_it.filter(|it| it.within == Some(link));
        let of_it: Vec<String> = of_it.map(|it| it.name.clone()).collect();
        for inner in of_it {
            self.del_interface(&inner)?;
        }
        let own: Vec<IpAddr> = gone.addresses.iter().map(|(ip, _)| *ip).collect();
        let leads_there = |state: &NetworkState, route: &RouteEntry| {
            state.link_of(route) == Some(link) || route.source.is_some_and(|ip| own.contains(&ip))
        };
        let before = self.clone();
        self.routes.retain(|route| !leads_there(&before, route));
        self.neighbours.retain(|entry| entry.link != link);
        self.interfaces.retain(|it| it.link != link);
        Ok(())
    }

    fn set_mtu(&mut self, name: &str, mtu: u16) -> Result<(), Refused> {
        let found = self.find(name).ok_or(Refused::NoSuchInterface)?;
        let mtu_max = match found.is_port() {
            true => found.device_mtu(),
            false => found.mtu_max(self.parent_of(found).mtu),
        };
        let interface = self.interface(name)?;
        if !(MTU_MIN..=mtu_max).contains(&mtu) {
            return Err(Refused::InvalidMtu);
        }
        if interface.is_port() {
            interface.device_mtu = if mtu == mtu_max { 0 } else { mtu_max };
        }
        interface.mtu = mtu;
        let of = (interface.link(), interface.is_port());
        self.narrow_within(of, mtu);
        Ok(())
    }

    /// As on Linux, an interface is not wider than the one below it.
    fn narrow_within(&mut self, (of, is_port): (LinkId, bool), mtu: u16) {
        let is_above = |it: &Interface| match is_port {
            true => it.within.is_none() && !it.is_port() && it.link().own() == of.own(),
            false => it.within == Some(of.0),
        };
        let mut narrowed = Vec::new();
        for inner in self.interfaces.iter_mut().filter(|it| is_above(it)) {
            let fits = inner.mtu_max(mtu);
            if inner.mtu > fits {
                inner.mtu = fits;
                narrowed.push((inner.link(), fits));
            }
        }
        for (link, mtu) in narrowed {
            self.narrow_within((link, false), mtu);
        }
    }

    fn add_address(
        &mut self,
        interface: &str,
        (ip, len): (IpAddr, u8),
        mode: Mode,
    ) -> Result<(), Refused> {
        let len_max = if ip.is_ipv4() { 32 } else { 128 };
        let is_host = !ip.is_unspecified() && !ip.is_multicast() && !ip.is_loopback();
        self.find(interface).ok_or(Refused::NoSuchInterface)?;
        if len == 0 || len > len_max || !is_host {
            return Err(Refused::InvalidAddress);
        }
        let mut others = self.interfaces.iter().filter(|it| it.name != interface);
        let is_elsewhere = others.any(|it| it.addresses.iter().any(|(own, _)| *own == ip));
        if is_elsewhere && !is_link_local(ip) {
            return Err(Refused::AddressElsewhere);
        }
        // The network's prefix decides which interface a neighbour belongs to.
        let is_network = len < len_max - 1;
        let others = self.interfaces.iter().filter(|it| it.name != interface);
        let mut others = others.flat_map(|it| &it.addresses);
        let overlaps = |net: &(IpAddr, u8)| {
            net.1 < len_max - 1 && (contains(*net, ip) || contains((ip, len), net.0))
        };
        if is_network && !is_link_local(ip) && others.any(overlaps) {
            return Err(Refused::Overlaps);
        }
        let interface = self.interface(interface)?;
        let found = interface.addresses.iter().position(|(own, _)| *own == ip);
        match (found, mode) {
            (Some(_), Mode::Add | Mode::Append) => return Err(Refused::Exists),
            (Some(at), _) => interface.addresses[at].1 = len,
            (None, Mode::Change) => return Err(Refused::NoSuchAddress),
            (None, _) if interface.addresses.len() >= ADDRESSES_MAX => {
                return Err(Refused::TooMany);
            }
            (None, _) => interface.addresses.push((ip, len)),
        }
        Ok(())
    }

    fn del_address(
        &mut self,
        interface: &str,
        ip: IpAddr,
        prefix_len: Option<u8>,
    ) -> Result<(), Refused> {
        let before = self.clone();
        let interface = self.interface(interface)?;
        let is_meant = |(own, len): &(IpAddr, u8)| {
            *own == ip && prefix_len.is_none_or(|wanted| wanted == *len)
        };
        let at = interface.addresses.iter().position(is_meant);
        interface
            .addresses
            .remove(at.ok_or(Refused::NoSuchAddress)?);
        let link = interface.link;
        let mut left = interface.addresses.iter();
        let is_last = !left.any(|(own, _)| own.is_ipv4() == ip.is_ipv4());
        // As on Linux: routes with that source go, and with the last address all routes of the
        // family.
        self.routes.retain(|route| {
            let is_orphaned = is_last
                && route.to.0.is_ipv4() == ip.is_ipv4()
                && before.link_of(route) == Some(link);
            route.source != Some(ip) && !is_orphaned
        });
        Ok(())
    }

    /// Refuses a route that could never work.
    pub fn check_route(&self, route: &RouteEntry) -> Result<(), Refused> {
        if [0, LOCAL_TABLE].contains(&route.table) {
            return Err(Refused::InvalidTable);
        }
        if let Some(link) = route.link
            && self.find_link(link).is_none()
        {
            return Err(Refused::NoSuchInterface);
        }
        let is_own = |ip: IpAddr| self.addresses().iter().any(|(own, _)| *own == ip);
        if route
            .via
            .is_some_and(|via| !self.is_neighbour(via, route.link) || is_own(via))
        {
            return Err(Refused::InvalidGateway);
        }
        if route.source.is_some_and(|source| !is_own(source)) {
            return Err(Refused::InvalidSource);
        }
        Ok(())
    }

    fn is_neighbour(&self, ip: IpAddr, link: Option<u16>) -> bool {
        let direct = self.routes.iter().filter(|route| route.via.is_none());
        let mut direct = direct.filter(|route| link.is_none() || route.link == link);
        let interfaces = self.interfaces.iter();
        let mut interfaces = interfaces.filter(|it| link.is_none_or(|link| it.link == link));
        is_link_local(ip)
            || interfaces.any(|it| it.addresses.iter().any(|net| contains(*net, ip)))
            || direct.any(|route| contains(route.to, ip))
    }

    fn add_route(&mut self, route: &RouteEntry, mode: Mode) -> Result<(), Refused> {
        let mut route = route.clone();
        route.to.0 = network_of(route.to);
        self.check_route(&route)?;
        let is_same = |other: &RouteEntry| {
            let way = |it: &RouteEntry| (it.via, it.link);
            (other.to, other.table, other.metric) == (route.to, route.table, route.metric)
                && (mode != Mode::Append || way(other) == way(&route))
        };
        let found = self.routes.iter().position(is_same);
        match (found, mode) {
            (Some(_), Mode::Add | Mode::Append) => return Err(Refused::Exists),
            (Some(at), _) => self.routes[at] = route,
            (None, Mode::Change) => return Err(Refused::NoSuchRoute),
            (None, _) if self.routes.len() >= ENTRIES_MAX => return Err(Refused::TooMany),
            (None, _) => self.routes.push(route),
        }
        Ok(())
    }

    fn del_route(&mut self, key: &RouteKey) -> Result<(), Refused> {
        let to = (network_of(key.to), key.to.1);
        let is_meant = |route: &RouteEntry| {
            (route.to, route.table) == (to, key.table)
                && key.via.is_none_or(|via| route.via == Some(via))
                && key.metric.is_none_or(|metric| route.metric == metric)
                && key
                    .link
                    .is_none_or(|link| self.link_of(route) == Some(link))
        };
        let at = self.routes.iter().position(is_meant);
        self.routes.remove(at.ok_or(Refused::NoSuchRoute)?);
        Ok(())
    }

    fn add_rule(&mut self, rule: &RuleEntry) -> Result<(), Refused> {
        let is_lookup = rule.action == RuleAction::Lookup;
        if is_lookup == (rule.table == 0) || rule.table == LOCAL_TABLE {
            return Err(Refused::InvalidTable);
        }
        if self.rules.contains(rule) {
            return Err(Refused::Exists);
        }
        if self.rules.len() >= ENTRIES_MAX {
            return Err(Refused::TooMany);
        }
        self.rules.push(rule.clone());
        self.rules.sort_by_key(|rule| rule.priority);
        Ok(())
    }

    fn del_rule(&mut self, wanted: &RuleEntry) -> Result<(), Refused> {
        let exact = self.rules.iter().position(|rule| rule == wanted);
        let at = exact.or_else(|| self.rules.iter().position(|rule| rule.is_meant_by(wanted)));
        self.rules.remove(at.ok_or(Refused::NoSuchRule)?);
        Ok(())
    }

    fn add_neighbour(&mut self, entry: NeighbourEntry, mode: Mode) -> Result<(), Refused> {
        if self.find_link(entry.link).is_none() {
            return Err(Refused::NoSuchInterface);
        }
        let is_same = |other: &NeighbourEntry| (other.link, other.ip) == (entry.link, entry.ip);
        let found = self.neighbours.iter().position(is_same);
        match (found, mode) {
            (Some(_), Mode::Add | Mode::Append) => return Err(Refused::Exists),
            (Some(at), _) => self.neighbours[at] = entry,
            (None, Mode::Change) => return Err(Refused::NoSuchNeighbour),
            (None, _) if self.neighbours.len() >= ENTRIES_MAX => return Err(Refused::TooMany),
            (None, _) => self.neighbours.push(entry),
        }
        Ok(())
    }

    fn del_neighbour(&mut self, link: u16, ip: IpAddr) -> Result<(), Refused> {
        let is_meant = |entry: &NeighbourEntry| (entry.link, entry.ip) == (link, ip);
        let at = self.neighbours.iter().position(is_meant);
        self.neighbours.remove(at.ok_or(Refused::NoSuchNeighbour)?);
        self.deletions += 1;
        Ok(())
    }

    /// Returns a rule that names an interface which is not there.
    pub fn rule_without_link(&self) -> Option<&RuleEntry> {
        let is_gone = |link: &u16| self.find_link(*link).is_none();
        self.rules.iter().find(|rule| {
            let input = match rule.input {
                Some(RuleInput::Link(link)) => Some(link),
                Some(RuleInput::Own) | None => None,
            };
            input.iter().chain(&rule.output).any(is_gone)
        })
    }

    /// Refuses what a start is given and could never work: as [`NetworkState::changed`] from
    /// nothing.
    ///
    /// # Errors
    /// The route with the reason.
    pub fn check_all(&self) -> Result<(), (RouteEntry, Refused)> {
        for (at, route) in self.routes.iter().enumerate() {
            self.check_route(route)
                .map_err(|why| (route.clone(), why))?;
            let key = |it: &RouteEntry| ((network_of(it.to), it.to.1), it.table, it.metric);
            if self.routes[..at]
                .iter()
                .any(|other| key(other) == key(route))
            {
                return Err((route.clone(), Refused::Exists));
            }
        }
        Ok(())
    }
}

pub(crate) fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

impl RouteKey {
    /// All routes to a network in the main table.
    pub fn to(to: (IpAddr, u8)) -> RouteKey {
        RouteKey {
            to,
            table: MAIN_TABLE,
            via: None,
            metric: None,
            link: None,
        }
    }
}

#[cfg(test)]
mod tests;
