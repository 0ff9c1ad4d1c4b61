//! Rules that choose a routing table. The network has the rule by which a table is chosen, the
//! filter one that counts its packets.

use std::net::IpAddr;

use slipstack_channel::control::net::{
    CarriedRange, Change, FilterAction, FilterDirection, FilterEnd, FilterRule, FilterTerm,
    FilterTest, RuleEntry,
};

use super::super::{fib_of, table_of};
use super::names;
use super::text::net_text;
use crate::failure::Failure;

/// Returns the rules of the network that make a rule of the filter choose a table, one for each
/// family that it is for; none if its action is another one.
pub fn network_rules(rule: &FilterRule) -> Result<Vec<RuleEntry>, Failure> {
    let FilterAction::SetFib(fib) = rule.action else {
        return Ok(Vec::new());
    };
    let table = table_of(fib)?;
    let refused = |why: &str| Err(Failure::new(format!("ipfw: setfib {why}")));
    let is_more = rule.part.is_some() || rule.link.is_some() || rule.keep.is_some();
    let Some((source_option, destination_option)) = port_options(rule).filter(|_| !is_more) else {
        return refused(
            "by flags, interface, options or state is not supported: a table is chosen by \
             protocol, addresses and ports",
        );
    };
    if rule.direction == Some(FilterDirection::In) {
        return refused("of packets that come in is not supported: what leaves is routed");
    }
    if rule.set != 0 {
        return refused("belongs to set 0: sets switch rules of the filter alone");
    }
    let (Ok(from), Ok(to)) = (net(&rule.from), net(&rule.to)) else {
        return refused("takes one network, or any, and one range of ports on either side");
    };
    let carried = CarriedRange {
        protocol: rule.protocol,
        source_ports: rule.from.ports.first().copied().or(source_option),
        destination_ports: rule.to.ports.first().copied().or(destination_option),
    };
    if from.is_none() && to.is_none() && carried.is_all() {
        return refused("needs a network, a protocol or a port to go by");
    }
    let of_family = |is_family_v6| RuleEntry {
        priority: rule.number,
        from,
        to,
        carried,
        is_family_v6,
        table,
        ..RuleEntry::default()
    };
    let families = [false, true].into_iter();
    Ok(match from.or(to) {
        Some(_) => vec![of_family(false)],
        None => families
            .filter(|is_v6| rule.is_v6.is_none_or(|only| only == *is_v6))
            .map(of_family)
            .collect(),
    })
}

/// The ports, from and to, of a rule's options at either end.
type PortOptions = (Option<(u16, u16)>, Option<(u16, u16)>);

/// Returns the ports that `src-port` and `dst-port` name; `None` if there are other options.
fn port_options(rule: &FilterRule) -> Option<PortOptions> {
    let mut options: PortOptions = (None, None);
    for clause in &rule.clauses {
        let [
            FilterTerm {
                is_not: false,
                test,
            },
        ] = clause.as_slice()
        else {
            return None;
        };
        let (place, ports) = match test {
            FilterTest::SourcePort(ports) => (&mut options.0, ports),
            FilterTest::DestinationPort(ports) => (&mut options.1, ports),
            _ => return None,
        };
        match ports.as_slice() {
            [ports] if place.is_none() => *place = Some(*ports),
            _ => return None,
        }
    }
    Some(options)
}

/// The only network of an end; `None` is any, an error something else.
fn net(end: &FilterEnd) -> Result<Option<(IpAddr, u8)>, ()> {
    let only = FilterEnd {
        nets: end.nets.clone(),
        ports: end.ports.first().copied().into_iter().collect(),
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
    network_rules(rule).is_ok_and(|made| made.contains(entry))
}

/// Returns whether it selects by what ipfw has words for.
pub fn has_words(rule: &RuleEntry) -> bool {
    let plain = RuleEntry {
        priority: rule.priority,
        from: rule.from,
        to: rule.to,
        carried: rule.carried,
        is_family_v6: rule.is_family_v6,
        table: rule.table,
        ..RuleEntry::default()
    };
    *rule == plain && (rule.from.is_some() || rule.to.is_some() || !rule.carried.is_all())
}

pub fn fib_text(rule: &RuleEntry) -> String {
    let net = |net: Option<(IpAddr, u8)>| net.map_or("any".to_owned(), net_text);
    let ports = |word: &str, ports: Option<(u16, u16)>| match ports {
        None => String::new(),
        Some((first, last)) if first == last => format!(" {word} {first}"),
        Some((first, last)) => format!(" {word} {first}-{last}"),
    };
    let carried = &rule.carried;
    let kind = match carried.protocol {
        Some(number) => names::protocol_text(number),
        None if rule.is_v6() => "ip6".to_owned(),
        None => "ip".to_owned(),
    };
    let (fib, from, to) = (fib_of(rule.table), net(rule.from), net(rule.to));
    let from_port = ports("src-port", carried.source_ports);
    let to_port = ports("dst-port", carried.destination_ports);
    format!("setfib {fib} {kind} from {from} to {to}{from_port}{to_port} out")
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
