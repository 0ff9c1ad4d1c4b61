//! The changes that lead from one network to another.

use alloc::borrow::ToOwned;
use alloc::vec::Vec;
use core::net::IpAddr;

use slipstack_terms::VlanTag;

use crate::change::{Change, ChangeError, Mode, RouteKey, is_link_local};
use crate::rule::RuleEntry;
use crate::state::{Interface, NetworkState, RouteEntry};

/// Changes, with the network that they make.
struct Steps {
    state: NetworkState,
    changes: Vec<Change>,
}

impl Steps {
    fn add(&mut self, change: Change) -> Result<(), ChangeError> {
        let next = self.state.changed(core::slice::from_ref(&change));
        self.state = next.map_err(|error| ChangeError {
            at: self.changes.len(),
            ..error
        })?;
        self.changes.push(change);
        Ok(())
    }
}

impl Interface {
    /// The change that makes it, of a VLAN.
    fn as_added(&self) -> Change {
        Change::AddVlan {
            name: self.name.clone(),
            link: self.link,
            id: self.tag.id,
            is_provider: self.tag.is_provider,
            within: self.within,
        }
    }

    /// Returns the changes that give an opened device this interface: a port its addresses, a VLAN
    /// all that it has. An MTU of 0 is that of the port.
    pub fn changes_from_port(&self) -> Vec<Change> {
        let name = || self.name.clone();
        let mut changes = Vec::new();
        if !self.is_port() {
            changes.push(self.as_added());
            if self.tag.priorities != VlanTag::NONE.priorities {
                changes.push(Change::SetPriorities {
                    name: name(),
                    priorities: self.tag.priorities,
                });
            }
            if self.mtu != 0 {
                changes.push(Change::SetMtu {
                    name: name(),
                    mtu: self.mtu,
                });
            }
        }
        changes.extend(self.addresses.iter().map(|address| Change::AddAddress {
            interface: name(),
            address: *address,
            mode: Mode::Add,
            is_certain: true,
        }));
        changes
    }
}

impl NetworkState {
    /// Returns the changes after which this network has the addresses, VLANs, routes and rules of
    /// `wanted`, forwards and shares as it does, in an order in which they can be made. A VLAN
    /// keeps the name that it has here; link-local addresses, neighbours, tunables and what routers
    /// tell stay.
    ///
    /// # Errors
    /// The change that cannot be made.
    pub fn changes_to(&self, wanted: &NetworkState) -> Result<Vec<Change>, ChangeError> {
        let wanted = &wanted.numbered_as(self);
        let mut steps = Steps {
            state: self.clone(),
            changes: Vec::new(),
        };
        for rule in self.rules.iter().filter(|it| !wanted.rules.contains(it)) {
            steps.add(Change::DelRule(rule.clone()))?;
        }
        for route in self.routes.iter().filter(|it| !wanted.has_route(it)) {
            steps.add(Change::DelRoute(key_of(route)))?;
        }
        for interface in &self.interfaces {
            if steps.state.find(&interface.name).is_none() {
                // The interface went with the VLAN that it was within.
                continue;
            }
            let is_same = |it: &&Interface| {
                let tag = |it: &Interface| (it.tag.is_provider, it.tag.id, it.within);
                tag(it) == tag(interface)
            };
            match wanted.find_link(interface.link).filter(is_same) {
                None => steps.add(Change::DelInterface {
                    name: interface.name.clone(),
                })?,
                Some(other) => {
                    let name = &interface.name;
                    remove_addresses(&mut steps, name, &interface.addresses, &other.addresses)?;
                }
            }
        }
        add_interfaces(&mut steps, wanted)?;
        // The routes of an address may have been removed with it.
        for route in &wanted.routes {
            if !steps.state.has_route(route) {
                steps.add(Change::AddRoute {
                    route: route.clone(),
                    mode: Mode::Replace,
                })?;
            }
        }
        for rule in &wanted.rules {
            if !steps.state.rules.contains(rule) {
                steps.add(Change::AddRule(RuleEntry::clone(rule)))?;
            }
        }
        if self.is_forwarding != wanted.is_forwarding {
            steps.add(Change::SetForwarding(wanted.is_forwarding))?;
        }
        if self.connects_all_tables != wanted.connects_all_tables {
            steps.add(Change::ConnectAllTables(wanted.connects_all_tables))?;
        }
        if let Some(share) = wanted.share.as_ref().filter(|_| self.share != wanted.share) {
            steps.add(Change::SetShare(share.clone()))?;
        }
        Ok(steps.changes)
    }

    fn has_route(&self, route: &RouteEntry) -> bool {
        self.routes.contains(route)
    }
}

fn key_of(route: &RouteEntry) -> RouteKey {
    RouteKey {
        to: route.to,
        table: route.table,
        via: route.via,
        metric: Some(route.metric),
        link: route.link,
    }
}

type Address = (IpAddr, u8);

fn remove_addresses(
    steps: &mut Steps,
    interface: &str,
    now: &[Address],
    wanted: &[Address],
) -> Result<(), ChangeError> {
    for &(ip, len) in now {
        if !is_link_local(ip) && !wanted.contains(&(ip, len)) {
            steps.add(Change::DelAddress {
                interface: interface.to_owned(),
                ip,
                prefix_len: Some(len),
            })?;
        }
    }
    Ok(())
}

fn add_interfaces(steps: &mut Steps, wanted: &NetworkState) -> Result<(), ChangeError> {
    for other in &wanted.interfaces {
        if steps.state.find_link(other.link).is_none() {
            steps.add(other.as_added())?;
        }
        let Some(interface) = steps.state.find_link(other.link).cloned() else {
            continue;
        };
        if interface.mtu != other.mtu && !other.is_port() {
            steps.add(Change::SetMtu {
                name: interface.name.clone(),
                mtu: other.mtu,
            })?;
        }
        if interface.tag.priorities != other.tag.priorities {
            steps.add(Change::SetPriorities {
                name: interface.name.clone(),
                priorities: other.tag.priorities,
            })?;
        }
        if interface.is_down != other.is_down {
            steps.add(Change::SetUp {
                name: interface.name.clone(),
                is_up: !other.is_down,
            })?;
        }
        for address in &other.addresses {
            if !interface.addresses.contains(address) {
                steps.add(Change::AddAddress {
                    interface: interface.name.clone(),
                    address: *address,
                    mode: Mode::Add,
                    is_certain: false,
                })?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::refused::Refused;
    use crate::state::MAIN_TABLE;

    fn interface(link: u16, addresses: &[(&str, u8)]) -> Interface {
        let addresses = addresses
            .iter()
            .map(|(ip, len)| (ip.parse().unwrap(), *len));
        Interface {
            name: match link {
                0 => "eth1".to_owned(),
                link => format!("eth1.{link}"),
            },
            link,
            mtu: 1500,
            addresses: addresses.collect(),
            tag: VlanTag::plain(link),
            ..Interface::default()
        }
    }

    fn state(interfaces: Vec<Interface>, gateways: &[&str]) -> NetworkState {
        let routes = gateways.iter().map(|ip| ip.parse().unwrap());
        NetworkState {
            revision: 1,
            interfaces,
            routes: routes.map(RouteEntry::default_by).collect(),
            ..NetworkState::default()
        }
    }

    /// Applies the changes, and compares the result.
    fn check(now: &NetworkState, wanted: &NetworkState) -> Vec<Change> {
        let changes = now.changes_to(wanted).unwrap();
        let made = now.changed(&changes).unwrap();
        assert!(made.changes_to(wanted).unwrap().is_empty());
        for other in &wanted.interfaces {
            let mut found = made.find_link(other.link).unwrap().addresses.clone();
            let mut addresses = other.addresses.clone();
            found.sort();
            addresses.sort();
            assert_eq!(found, addresses);
        }
        assert_eq!(made.interfaces.len(), wanted.interfaces.len());
        assert_eq!(made.routes.len(), wanted.routes.len());
        changes
    }

    #[test]
    fn nothing_changes_if_the_state_is_already_as_wanted() {
        let now = state(vec![interface(0, &[("10.0.0.5", 24)])], &["10.0.0.1"]);
        assert!(check(&now, &now.clone()).is_empty());
    }

    #[test]
    fn a_renumbered_network_takes_its_gateway_along() {
        let now = state(vec![interface(0, &[("10.0.0.5", 24)])], &["10.0.0.1"]);
        let other = state(vec![interface(0, &[("10.9.0.5", 24)])], &["10.9.0.1"]);
        assert_eq!(check(&now, &other).len(), 4);
    }

    #[test]
    fn an_address_moves_from_one_vlan_to_another() {
        let link = |id, addresses: &[_]| interface(id, addresses);
        let own = || interface(0, &[("10.0.0.5", 24)]);
        let now = state(vec![own(), link(7, &[("10.7.0.5", 24)])], &[]);
        let wanted = state(vec![own(), link(8, &[("10.7.0.5", 24)])], &[]);
        let changes = check(&now, &wanted);
        assert!(matches!(&changes[0], Change::DelInterface { name } if name == "eth1.7"));
        assert_eq!(changes.len(), 3);
    }

    #[test]
    fn routes_removed_with_the_last_address_are_restored_with_a_new_one() {
        let mut now = state(vec![interface(0, &[("10.0.0.5", 24)])], &["10.0.0.1"]);
        let mut wanted = now.clone();
        wanted.interfaces[0].addresses = vec![("10.0.0.6".parse().unwrap(), 24)];
        assert_eq!(check(&now, &wanted).len(), 3);
        now.rules = vec![RuleEntry {
            priority: 5,
            from: None,
            table: MAIN_TABLE,
            ..RuleEntry::default()
        }];
        assert!(matches!(check(&now, &wanted)[0], Change::DelRule(_)));
    }

    #[test]
    fn a_vlan_is_made_on_an_opened_port_with_the_mtu_of_the_port_or_its_own() {
        let now = state(vec![interface(0, &[("10.0.0.5", 24)])], &[]);
        let mut vlan = interface(7, &[("10.7.0.5", 24)]);
        vlan.tag.priorities = [3; 8];
        for (mtu, made_with) in [(0, 1500), (1400, 1400)] {
            vlan.mtu = mtu;
            let made = now.changed(&vlan.changes_from_port()).unwrap();
            let made = made.find_link(7).unwrap();
            assert_eq!(made.mtu, made_with);
            assert_eq!((made.addresses.len(), made.tag), (1, vlan.tag));
        }
        vlan.mtu = 9000;
        let error = now.changed(&vlan.changes_from_port()).unwrap_err();
        assert_eq!((error.at, error.refused), (2, Refused::InvalidMtu));
    }

    #[test]
    fn a_port_that_is_open_gets_its_addresses() {
        let now = state(vec![interface(0, &[])], &[]);
        let port = interface(0, &[("10.0.0.5", 24), ("10.0.0.6", 24)]);
        let made = now.changed(&port.changes_from_port()).unwrap();
        assert_eq!(made.interfaces[0].addresses, port.addresses);
    }

    #[test]
    fn errors_name_the_device_that_cannot_be_made() {
        let now = state(vec![interface(0, &[("10.0.0.5", 24)])], &[]);
        let wanted = state(vec![interface(0, &[("10.0.0.5", 24)])], &["10.8.0.1"]);
        let error = now.changes_to(&wanted).unwrap_err();
        assert_eq!(error.to_string(), "Nexthop has invalid gateway");
    }
}
