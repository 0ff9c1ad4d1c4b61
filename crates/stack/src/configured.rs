//! The configured routes of a network, without those learnt from routers.

use alloc::vec::Vec;
use core::net::IpAddr;

use slipstack_network::{Interface, NetworkState, RouteEntry, RuleAction, RuleEntry, RuleInput};
use slipstack_terms::RouteRefusal;
use slipstack_wire::LinkId;
use slipstack_wire::zone::zoned_ip;

use crate::fib::{Choice, Entry, Fib, Prefix, Rule, Target};
use crate::route::Routes;
use crate::route6::Routes6;

/// All routes of IPv4.
pub fn routes4(network: &NetworkState) -> Routes {
    let mut routes = Routes::of(&network.own().addresses, &gateways(network));
    for link in links(network) {
        routes.add_link(link.link, &link.addresses);
    }
    fill(network, &mut routes.fib, false);
    routes
}

/// All routes of IPv6 that are configured.
pub fn routes6(network: &NetworkState) -> Routes6 {
    let mut routes = Routes6::of(&network.own().addresses, &gateways(network));
    for link in links(network) {
        routes.add_link(link.link, &link.addresses);
    }
    fill(network, &mut routes.fib, true);
    routes
}

/// Links beside the device's own: its 802.1Q VLANs, its further ports and theirs.
pub fn links(network: &NetworkState) -> impl Iterator<Item = &Interface> {
    network.interfaces.iter().filter(|it| it.link != 0)
}

/// A default gateway counts as a neighbour whatever the networks are.
fn gateways(network: &NetworkState) -> Vec<IpAddr> {
    let gateways = network.routes.iter().filter(|it| is_gateway(network, it));
    gateways.filter_map(|route| route.via).collect()
}

fn is_gateway(network: &NetworkState, route: &RouteEntry) -> bool {
    route.is_default()
        && route.metric == 0
        && route.source.is_none()
        && route.mtu.is_none()
        && route.via.is_some()
        && network.link_of(route) == Some(0)
}

/// Adds the configured routes of a family after those of its addresses. The first of two equal ones
/// stays.
fn fill(network: &NetworkState, fib: &mut Fib, is_v6: bool) {
    let is_added =
        |route: &&RouteEntry| route.to.0.is_ipv6() == is_v6 && !is_gateway(network, route);
    if network.connects_all_tables {
        fib.connect_all(connected(network, is_v6));
    }
    for route in network.routes.iter().filter(is_added) {
        let _ = fib.add(route.table, entry(network, route));
    }
    let rules = network.rules.iter().filter(|rule| rule.is_v6() == is_v6);
    fib.add_rules(rules.map(rule));
    fib.build_index();
}

/// The networks of own addresses.
fn connected(network: &NetworkState, is_v6: bool) -> impl Iterator<Item = Entry> {
    let of = |it: &Interface| {
        let (link, addresses) = (it.link, it.addresses.clone());
        addresses.into_iter().map(move |net| (link, net))
    };
    let all = network.interfaces.iter().flat_map(of);
    let all = all.filter(move |(_, (ip, _))| ip.is_ipv6() == is_v6);
    all.map(|(link, (ip, len))| Entry {
        link,
        ..Entry::new(Prefix::new(ip, len), Target::OnLink)
    })
}

fn entry(network: &NetworkState, route: &RouteEntry) -> Entry {
    let (ip, len) = route.to;
    let link = LinkId(network.link_of(route).unwrap_or(0));
    let target = match (route.refusal, route.via) {
        (Some(RouteRefusal::Unreachable), _) => Target::Unreachable,
        (Some(RouteRefusal::Prohibit), _) => Target::Refused(RuleAction::Prohibit),
        (Some(RouteRefusal::Blackhole), _) => Target::Refused(RuleAction::Blackhole),
        (None, Some(via)) => Target::Via(zoned_ip(via, link)),
        (None, None) => Target::OnLink,
    };
    Entry {
        metric: route.metric,
        source: route.source,
        mtu: route.mtu,
        link: link.0,
        ..Entry::new(Prefix::new(zoned_ip(ip, link), len), target)
    }
}

fn rule(rule: &RuleEntry) -> Rule {
    let prefix =
        |net: Option<(IpAddr, u8)>| net.map_or(Prefix::ALL, |(ip, len)| Prefix::new(ip, len));
    Rule {
        from: prefix(rule.from),
        to: prefix(rule.to),
        mark: rule.mark,
        tos: rule.tos,
        carried: rule.carried,
        input: rule.input.map(|input| match input {
            RuleInput::Own => 0,
            RuleInput::Link(link) => Choice::link_of(link),
        }),
        output: rule.output.map(Choice::link_of),
        is_not: rule.is_not,
        action: rule.action,
        ..Rule::new(rule.priority, rule.table)
    }
}
