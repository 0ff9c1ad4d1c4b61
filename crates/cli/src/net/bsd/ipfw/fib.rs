//! Rules that choose a routing table. The network has the rule by which a table is chosen, the
//! filter one that counts its packets.

use std::net::IpAddr;

use slipstack_channel::control::net::{
    Change, FilterAction, FilterDirection, FilterEnd, FilterRule, RuleEntry,
};

use super::super::{fib_of, table_of};
use super::text::net_text;
use crate::failure::Failure;

/// Returns the rule of the network that makes a rule of the filter choose a table; `None` if its
/// action is another one.
pub fn network_rule(rule: &FilterRule) -> Result<Option<RuleEntry>, Failure> {
    let FilterAction::SetFib(fib) = rule.action else {
        return Ok(None);
    };
    let table = table_of(fib)?;
    let refused = |why: &str| Err(Failure::new(format!("ipfw: setfib {why}")));
    let is_more = rule.protocol.is_some()
        || rule.part.is_some()
        || rule.link.is_some()
        || rule.keep.is_some()
        || !rule.clauses.is_empty();
    if is_more {
        return refused(
            "by protocol, flags, interface or state is not supported: a table is chosen by \
             addresses",
        );
    }
    if rule.direction == Some(FilterDirection::In) {
        return refused("of packets that come in is not supported: what leaves is routed");
    }
    if rule.set != 0 {
        return refused("belongs to set 0: sets switch rules of the filter alone");
    }
    let (Ok(from), Ok(to)) = (net(&rule.from), net(&rule.to)) else {
        return refused("takes one network, or any, on either side");
    };
    if from.is_none() && to.is_none() {
        return refused("needs a network to go by");
    }
    Ok(Some(RuleEntry {
        priority: rule.number,
        from,
        to,
        table,
        ..RuleEntry::default()
    }))
}

/// The only network of an end; `None` is any, an error something else.
fn net(end: &FilterEnd) -> Result<Option<(IpAddr, u8)>, ()> {
    let only = FilterEnd {
        nets: end.nets.clone(),
        ..FilterEnd::default()
    };
    match end.nets.as_slice() {
        _ if *end != only => Err(()),
        [] => Ok(None),
        [net] => Ok(Some(*net)),
        _ => Err(()),
    }
}

/// Returns whether a rule of the filter counts the packets of this one of the network.
pub fn is_counted_by(entry: &RuleEntry, rule: &FilterRule) -> bool {
    matches!(network_rule(rule), Ok(Some(made)) if made == *entry)
}

/// Returns whether it selects by addresses alone, which is what ipfw has words for.
pub fn is_by_addresses(rule: &RuleEntry) -> bool {
    let plain = RuleEntry {
        priority: rule.priority,
        from: rule.from,
        to: rule.to,
        table: rule.table,
        ..RuleEntry::default()
    };
    *rule == plain && (rule.from.is_some() || rule.to.is_some())
}

pub fn fib_text(rule: &RuleEntry) -> String {
    let net = |net: Option<(IpAddr, u8)>| net.map_or("any".to_owned(), net_text);
    let kind = if rule.is_v6() { "ip6" } else { "ip" };
    let (fib, from, to) = (fib_of(rule.table), net(rule.from), net(rule.to));
    format!("setfib {fib} {kind} from {from} to {to} out")
}

/// The changes that take back changes of rules.
pub fn inverse(changes: &[Change]) -> Vec<Change> {
    let back = |change: &Change| match change {
        Change::AddRule(rule) => Some(Change::DelRule(rule.clone())),
        Change::DelRule(rule) => Some(Change::AddRule(rule.clone())),
        _ => None,
    };
    changes.iter().rev().filter_map(back).collect()
}
