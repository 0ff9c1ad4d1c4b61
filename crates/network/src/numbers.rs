//! Numbers of links in two descriptions of one network: a VLAN within a VLAN has the number that
//! was free when it was made.

use alloc::borrow::ToOwned;
use alloc::vec::Vec;

use slipstack_wire::LinkId;

use crate::change::Change;
use crate::rule::RuleInput;
use crate::state::{Interface, NetworkState};

/// The kind and number of a tag.
type Kind = (bool, u16);

impl NetworkState {
    /// Returns the change that makes a VLAN of an interface.
    pub fn new_vlan(&self, parent: &Interface, name: &str, id: u16, is_provider: bool) -> Change {
        Change::AddVlan {
            name: name.to_owned(),
            link: self.free_link(parent, id),
            id,
            is_provider,
            within: (!parent.is_port()).then_some(parent.link),
        }
    }

    /// Returns this network with the numbers of links that `now` has for its VLANs.
    #[must_use]
    pub fn numbered_as(&self, now: &NetworkState) -> NetworkState {
        let numbers = self.numbers_as(now);
        let number = |link: u16| {
            let found = numbers.iter().find(|(from, _)| *from == link);
            found.map_or(link, |(_, to)| *to)
        };
        let mut state = self.clone();
        if numbers.iter().all(|(from, to)| from == to) {
            return state;
        }
        for interface in &mut state.interfaces {
            interface.link = number(interface.link);
            interface.within = interface.within.map(number);
        }
        for route in &mut state.routes {
            route.link = route.link.map(number);
        }
        for rule in &mut state.rules {
            rule.output = rule.output.map(number);
            if let Some(RuleInput::Link(link)) = &mut rule.input {
                *link = number(*link);
            }
        }
        for neighbour in &mut state.neighbours {
            neighbour.link = number(neighbour.link);
        }
        state
    }

    /// The tags of an interface's frames.
    fn tags_of(&self, it: &Interface) -> (LinkId, Option<Kind>, Kind) {
        let kind = |it: &Interface| (it.tag.is_provider, it.tag.id);
        let outer = it.within.and_then(|link| self.find_link(link));
        (it.link().own(), outer.map(kind), kind(it))
    }

    /// The number of each VLAN's link here and in `now`.
    fn numbers_as(&self, now: &NetworkState) -> Vec<(u16, u16)> {
        let mut numbers: Vec<(u16, u16)> = Vec::new();
        let mut new = Vec::new();
        for it in self.interfaces.iter().filter(|it| !it.is_port()) {
            let tags = self.tags_of(it);
            let mut others = now.interfaces.iter().filter(|it| !it.is_port());
            match others.find(|other| now.tags_of(other) == tags) {
                Some(other) => numbers.push((it.link, other.link)),
                None => new.push(it.link),
            }
        }
        for link in new {
            let is_taken = |link: u16| numbers.iter().any(|(_, to)| *to == link);
            let port = LinkId(link).port();
            let others = (1..=LinkId::VLAN_MAX).rev();
            let others = others.map(|number| LinkId::new(port, number).0);
            let mut all = [link].into_iter().chain(others);
            let free = all.find(|link| !is_taken(*link));
            numbers.push((link, free.unwrap_or(link)));
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::state::RouteEntry;

    fn state(vlans: &[(u16, Option<u16>)]) -> NetworkState {
        let mut state = NetworkState::of(1500, Vec::new(), &[]);
        for &(id, outer) in vlans {
            let parent = outer.map_or(state.own(), |id| {
                state.find_vlan(state.own(), id, false).unwrap()
            });
            let name = outer.map_or("eth1".to_owned(), |outer| alloc::format!("eth1.{outer}"));
            let change = state.new_vlan(parent, &alloc::format!("{name}.{id}"), id, false);
            state = state.changed(&[change]).unwrap();
        }
        state
    }

    #[test]
    fn a_vlan_within_a_vlan_has_the_number_of_the_running_stack() {
        let now = state(&[(10, None), (20, Some(10)), (4094, None), (21, Some(10))]);
        let links: Vec<u16> = now.interfaces.iter().map(|it| it.link).collect();
        assert_eq!(links, [0, 10, 4094, 4093, 4092]);
        let mut wanted = state(&[(4094, None), (10, None), (21, Some(10)), (22, Some(10))]);
        let links: Vec<u16> = wanted.interfaces.iter().map(|it| it.link).collect();
        assert_eq!(links, [0, 4094, 10, 4093, 4092]);
        let mut route = RouteEntry::default_by("10.1.0.1".parse().unwrap());
        route.link = Some(4093);
        wanted.routes = vec![route];
        let numbered = wanted.numbered_as(&now);
        let links: Vec<u16> = numbered.interfaces.iter().map(|it| it.link).collect();
        assert_eq!(links, [0, 4093, 10, 4092, 4094]);
        assert_eq!(numbered.routes[0].link, Some(4092));
        assert_eq!(numbered.interfaces[3].within, Some(10));
        let changes = now.changes_to(&state(&[(4094, None), (10, None), (21, Some(10))]));
        let changes = changes.unwrap();
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert!(matches!(&changes[0], Change::DelInterface { name } if name == "eth1.10.20"));
    }

    #[test]
    fn an_inner_vlan_is_removed_with_its_outer_one_and_has_a_smaller_mtu() {
        let now = state(&[(10, None), (20, Some(10))]);
        let inner = now.find("eth1.10.20").unwrap();
        assert_eq!(inner.mtu, 1496);
        let tags = now.further_links()[1];
        assert_eq!((tags.outer.id, tags.inner.map(|it| it.id)), (10, Some(20)));
        let gone = Change::DelInterface {
            name: "eth1.10".to_owned(),
        };
        assert_eq!(now.changed(&[gone]).unwrap().interfaces.len(), 1);
        let down = Change::SetUp {
            name: "eth1.10".to_owned(),
            is_up: false,
        };
        assert!(now.changed(&[down]).unwrap().further_links().is_empty());
        let third = Change::AddVlan {
            name: "deep".to_owned(),
            link: 5,
            id: 5,
            is_provider: false,
            within: Some(inner.link),
        };
        assert!(now.changed(&[third]).is_err());
    }
}
