//! Configured routes and rules in the stack's words.

use std::net::IpAddr;

use slipstack_channel::control::net::{RouteEntry, RuleEntry};
use slipstack_stack::config::{ConfiguredRoute, ConfiguredRule};
use slipstack_stack::fib::{Entry, Prefix, Rule, Target};
use slipstack_wire::LinkId;
use slipstack_wire::zone::zoned_ip;

/// `link_of` names the link that a route leads by.
pub fn stack_routes(
    told: &[RouteEntry],
    link_of: impl Fn(&RouteEntry) -> u16,
) -> Vec<ConfiguredRoute> {
    let of = |route: &RouteEntry| {
        let (ip, len) = route.to;
        let link = LinkId(link_of(route));
        let target = match route.via {
            _ if route.is_unreachable => Target::Unreachable,
            Some(via) => Target::Via(zoned_ip(via, link)),
            None => Target::OnLink,
        };
        ConfiguredRoute {
            is_v6: ip.is_ipv6(),
            table: route.table,
            entry: Entry {
                metric: route.metric,
                source: route.source,
                mtu: route.mtu,
                link: link.0,
                ..Entry::new(Prefix::new(zoned_ip(ip, link), len), target)
            },
        }
    };
    told.iter().map(of).collect()
}

pub fn stack_rules(told: &[RuleEntry]) -> Vec<ConfiguredRule> {
    let prefix =
        |net: Option<(IpAddr, u8)>| net.map_or(Prefix::ALL, |(ip, len)| Prefix::new(ip, len));
    let of = |rule: &RuleEntry| ConfiguredRule {
        is_v6: rule.is_v6(),
        rule: Rule {
            from: prefix(rule.from),
            to: prefix(rule.to),
            mark: rule.mark,
            ..Rule::new(rule.priority, rule.table)
        },
    };
    told.iter().map(of).collect()
}
