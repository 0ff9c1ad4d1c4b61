//! Checks of configured routes, and their tables as text.

use std::fmt::Write as _;
use std::net::IpAddr;

use slipstack_channel::control::net::{NetworkState, Refused, RouteEntry};
use slipstack_device::iface;
use slipstack_stack::fib::{Entry, LOCAL, Prefix, Rule, Target};
use slipstack_stack::{RuleAction, Stack};

use crate::error::KeeperError;

/// Routes and rules that a report lists.
const LINES_MAX: usize = 256;

/// Refuses routes that cannot work, as the kernel does.
pub fn check(state: &NetworkState) -> Result<(), KeeperError> {
    if let Err((route, refused)) = state.check_all() {
        let why = match refused {
            Refused::InvalidGateway => "its gateway is in no network of the stack".to_owned(),
            Refused::InvalidSource => "its source is not an address of the stack".to_owned(),
            Refused::Exists => "two routes have this network, table and metric".to_owned(),
            other => other.to_string(),
        };
        let route = text_of(&route);
        return Err(KeeperError::Route { route, why });
    }
    if let Some(rule) = state.rule_without_link() {
        return Err(KeeperError::Rule {
            priority: rule.priority,
        });
    }
    if state.is_forwarding {
        check_forwarding(state)?;
    }
    Ok(())
}

/// The kernel beside us would take, or pass on, the same packets on one of the interfaces.
pub fn check_forwarding(state: &NetworkState) -> Result<(), KeeperError> {
    let mut ports = state.ports();
    ports.try_for_each(|port| check_forwarding_on(&port.name))
}

fn check_forwarding_on(interface: &str) -> Result<(), KeeperError> {
    let index = iface::link(interface)?.index;
    let addresses = iface::addresses()?;
    let is_taken = |it: &&iface::Address| it.index == index && !is_of_link(it.ip);
    let why = match addresses.iter().find(is_taken).map(|it| it.ip) {
        Some(ip) => format!("the kernel has the address {ip} there"),
        None if iface::is_forwarding(interface) => "the kernel forwards there".to_owned(),
        None => return Ok(()),
    };
    Err(KeeperError::Forwarding {
        interface: interface.to_owned(),
        why,
    })
}

/// Returns whether an address is good on its link alone: the kernel gives each interface one of
/// IPv6.
fn is_of_link(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

fn text_of(route: &RouteEntry) -> String {
    let (net, len) = route.to;
    match route.via {
        Some(via) => format!("{net}/{len} via {via}"),
        None => format!("{net}/{len}"),
    }
}

/// The tables of a stack but for its own addresses, a line for each route.
pub fn routes(stack: &Stack) -> Vec<String> {
    let mut lines = Vec::new();
    for is_v6 in [false, true] {
        let tables = stack.fib(is_v6).tables();
        for (table, entries) in tables.filter(|(table, _)| *table != LOCAL) {
            lines.extend(
                entries
                    .entries()
                    .map(|entry| route_line(is_v6, table, entry)),
            );
        }
    }
    lines.truncate(LINES_MAX);
    lines
}

/// Returns the stack's rules, but for those that every stack has.
pub fn rules(stack: &Stack) -> Vec<String> {
    let mut lines = Vec::new();
    for is_v6 in [false, true] {
        let rules = stack.fib(is_v6).rules().iter();
        let others =
            rules.filter(|rule| !rule.from.is_all() || !rule.to.is_all() || rule.asks_more());
        lines.extend(others.map(|rule| rule_line(is_v6, rule)));
    }
    lines.truncate(LINES_MAX);
    lines
}

fn route_line(is_v6: bool, table: u32, entry: &Entry) -> String {
    let mut line = net(is_v6, &entry.prefix);
    match entry.target {
        Target::Via(gateway) => {
            let _ = write!(line, " via {gateway}");
        }
        Target::Unreachable => line.push_str(" unreachable"),
        Target::Throw => line.push_str(" throw"),
        Target::OnLink | Target::Local | Target::Broadcast | Target::Refused(_) => {}
    }
    let _ = write!(line, " table {table}");
    if entry.metric != 0 {
        let _ = write!(line, " metric {}", entry.metric);
    }
    if let Some(source) = entry.source {
        let _ = write!(line, " src {source}");
    }
    if let Some(mtu) = entry.mtu {
        let _ = write!(line, " mtu {mtu}");
    }
    line
}

fn rule_line(is_v6: bool, rule: &Rule) -> String {
    let mut line = rule.priority.to_string();
    if rule.is_not {
        line.push_str(" not");
    }
    for (word, prefix) in [("from", &rule.from), ("to", &rule.to)] {
        if !prefix.is_all() {
            let _ = write!(line, " {word} {}", net(is_v6, prefix));
        }
    }
    if let Some((value, mask)) = rule.mark {
        let _ = write!(line, " fwmark {value:#x}/{mask:#x}");
    }
    if let Some(tos) = rule.tos {
        let _ = write!(line, " tos {tos:#04x}");
    }
    for (word, value) in rule.carried.words() {
        let _ = write!(line, " {word} {value}");
    }
    for (word, link) in [("iif", rule.input), ("oif", rule.output)] {
        match link {
            Some(0) => line.push_str(" iif lo"),
            Some(link) => {
                let _ = write!(line, " {word} link {}", link - 1);
            }
            None => {}
        }
    }
    match rule.action {
        RuleAction::Lookup => {
            let _ = write!(line, " table {}", rule.table);
        }
        RuleAction::Unreachable => line.push_str(" unreachable"),
        RuleAction::Prohibit => line.push_str(" prohibit"),
        RuleAction::Blackhole => line.push_str(" blackhole"),
    }
    line
}

fn net(is_v6: bool, prefix: &Prefix) -> String {
    format!("{}/{}", prefix.address(is_v6), prefix.prefix_len())
}
