//! Rules as text, in the form in which a command would give them.

use std::fmt::Write as _;
use std::net::IpAddr;

use slipstack_channel::control::net::{
    FilterAction, FilterDirection, FilterEnd, FilterKeep, FilterPart, FilterRule, FilterTerm,
    FilterTest, NetworkState, UnreachCode,
};

use super::names;
use crate::net::names::shown_name;

/// Format of rules.
pub struct Writer<'a> {
    pub state: &'a NetworkState,
    /// Hosts and services by their names.
    pub has_names: bool,
    /// Without "ip from any to any".
    pub is_compact: bool,
    /// The action and the comment alone.
    pub is_brief: bool,
}

impl Writer<'_> {
    pub fn text(&self, rule: &FilterRule) -> String {
        let mut text = action(rule.action);
        if let Some(max) = rule.log {
            let _ = write!(text, " log logamount {max}");
        }
        if rule.action == FilterAction::CheckState {
            text.push_str(" :default");
        } else if !self.is_brief {
            self.body(rule, &mut text);
        }
        if !rule.comment.is_empty() {
            let _ = write!(text, " // {}", rule.comment);
        }
        text
    }

    fn body(&self, rule: &FilterRule, text: &mut String) {
        let mut clauses = rule.clauses.as_slice();
        let mut is_all = false;
        let protocol = match (rule.protocol, rule.is_v6) {
            (Some(number), _) => names::protocol_text(number),
            (None, Some(false)) => "ip4".to_owned(),
            (None, Some(true)) => "ip6".to_owned(),
            (None, None) => match clauses.split_first() {
                Some((first, rest)) if first.iter().all(is_protocol) => {
                    clauses = rest;
                    self.clause(first)
                }
                _ => {
                    is_all = true;
                    "ip".to_owned()
                }
            },
        };
        let protocol_number = rule.protocol;
        let (from, rest) = self.end_or_clause(&rule.from, protocol_number, clauses, true);
        let (to, rest) = self.end_or_clause(&rule.to, protocol_number, rest, false);
        clauses = rest;
        let is_needless = self.is_compact && is_all && from == "any" && to == "any";
        if !is_needless {
            let _ = write!(text, " {protocol} from {from} to {to}");
        }
        for clause in clauses {
            let _ = write!(text, " {}", self.clause(clause));
        }
        if let Some(part) = rule.part {
            let _ = write!(text, " {}", part_text(part));
        }
        if let Some(direction) = rule.direction {
            let _ = write!(text, " {}", direction_text(direction));
        }
        if let Some(link) = rule.link {
            let _ = write!(text, " via {}", self.interface(link));
        }
        if let Some(keep) = rule.keep {
            keep_text(keep, text);
        }
    }

    /// Returns an end, or the clause in its place.
    fn end_or_clause<'c>(
        &self,
        end: &FilterEnd,
        protocol: Option<u8>,
        clauses: &'c [Vec<FilterTerm>],
        is_source: bool,
    ) -> (String, &'c [Vec<FilterTerm>]) {
        let is_of = |term: &FilterTerm| match term.test {
            FilterTest::Source(_) => is_source,
            FilterTest::Destination(_) => !is_source,
            _ => false,
        };
        match clauses.split_first() {
            Some((first, rest)) if end.is_any() && first.len() > 1 && first.iter().all(is_of) => {
                let ports = self.ports_text(end, protocol);
                (format!("{}{ports}", self.clause(first)), rest)
            }
            _ => (self.end(end, protocol), clauses),
        }
    }

    fn end(&self, end: &FilterEnd, protocol: Option<u8>) -> String {
        let not = if end.is_not { "not " } else { "" };
        format!(
            "{not}{}{}",
            self.addresses(end),
            self.ports_text(end, protocol)
        )
    }

    fn addresses(&self, end: &FilterEnd) -> String {
        let mut all = Vec::new();
        if end.is_me {
            all.push("me".to_owned());
        }
        if end.is_me6 {
            all.push("me6".to_owned());
        }
        all.extend(end.nets.iter().map(|net| self.net(*net)));
        all.extend(end.tables.iter().map(|(name, value)| match value {
            Some(value) => format!("table({name},{value})"),
            None => format!("table({name})"),
        }));
        match all.is_empty() {
            true => "any".to_owned(),
            false => all.join(","),
        }
    }

    fn net(&self, (ip, len): (IpAddr, u8)) -> String {
        let is_host = len == if ip.is_ipv4() { 32 } else { 128 };
        let name = (self.has_names && is_host)
            .then(|| names::host(ip))
            .flatten();
        name.unwrap_or_else(|| net_text((ip, len)))
    }

    fn ports_text(&self, end: &FilterEnd, protocol: Option<u8>) -> String {
        if end.ports.is_empty() {
            return String::new();
        }
        let not = if end.is_not_ports { "not " } else { "" };
        format!(" {not}{}", self.ports(&end.ports, protocol))
    }

    fn ports(&self, ports: &[(u16, u16)], protocol: Option<u8>) -> String {
        let name = |port: u16| {
            let name = self.has_names.then(|| names::service(port, protocol));
            name.flatten().unwrap_or_else(|| port.to_string())
        };
        let range = |(low, high): &(u16, u16)| match low == high {
            true => name(*low),
            false => format!("{low}-{high}"),
        };
        ports.iter().map(range).collect::<Vec<_>>().join(",")
    }

    /// Conditions of which one has to hold.
    fn clause(&self, terms: &[FilterTerm]) -> String {
        let text = |term: &FilterTerm| {
            let not = if term.is_not { "not " } else { "" };
            format!("{not}{}", self.test(&term.test, terms.len() > 1))
        };
        match terms {
            [one] => text(one),
            several => {
                let all: Vec<String> = several.iter().map(text).collect();
                format!("{{ {} }}", all.join(" or "))
            }
        }
    }

    /// `is_in_block`: addresses are written alone.
    fn test(&self, test: &FilterTest, is_in_block: bool) -> String {
        let numbers = |types: &[u8]| {
            let all: Vec<String> = types.iter().map(u8::to_string).collect();
            all.join(",")
        };
        match test {
            FilterTest::Protocol(number) if is_in_block => names::protocol_text(*number),
            FilterTest::Protocol(number) => names::protocol_text(*number),
            FilterTest::V6(is_v6) => (if *is_v6 { "ip6" } else { "ip4" }).to_owned(),
            FilterTest::Source(end) if is_in_block => self.addresses(end),
            FilterTest::Destination(end) if is_in_block => self.addresses(end),
            FilterTest::Source(end) => format!("src-ip {}", self.addresses(end)),
            FilterTest::Destination(end) => format!("dst-ip {}", self.addresses(end)),
            FilterTest::SourcePort(ports) => format!("src-port {}", self.ports(ports, None)),
            FilterTest::DestinationPort(ports) => format!("dst-port {}", self.ports(ports, None)),
            FilterTest::Direction(direction) => direction_text(*direction).to_owned(),
            FilterTest::Via(link) => format!("via {}", self.interface(*link)),
            FilterTest::Part(part) => part_text(*part).to_owned(),
            FilterTest::TcpFlags { set, clear } => {
                format!("tcpflags {}", names::tcp_flags_text(*set, *clear))
            }
            FilterTest::IcmpTypes(types) => format!("icmptypes {}", numbers(types)),
            FilterTest::Icmp6Types(types) => format!("icmp6types {}", numbers(types)),
            FilterTest::Fragment => "frag".to_owned(),
            FilterTest::Ttl(ranges) => format!("ipttl {}", ranges_text(ranges)),
            FilterTest::Len(ranges) => format!("iplen {}", ranges_text(ranges)),
        }
    }

    fn interface(&self, link: u16) -> String {
        let interface = self.state.find_link(link);
        let name = interface.map(|it| shown_name(self.state, it));
        name.unwrap_or_else(|| format!("vlan{link}"))
    }
}

fn is_protocol(term: &FilterTerm) -> bool {
    matches!(term.test, FilterTest::Protocol(_) | FilterTest::V6(_))
}

fn ranges_text(ranges: &[(u16, u16)]) -> String {
    let range = |(low, high): &(u16, u16)| match low == high {
        true => low.to_string(),
        false => format!("{low}-{high}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

fn action(action: FilterAction) -> String {
    match action {
        FilterAction::Allow => "allow".to_owned(),
        FilterAction::Deny => "deny".to_owned(),
        FilterAction::Count => "count".to_owned(),
        FilterAction::Reset => "reset".to_owned(),
        FilterAction::CheckState => "check-state".to_owned(),
        FilterAction::SkipTo(number) => format!("skipto {number}"),
        FilterAction::SetFib(fib) => format!("setfib {fib}"),
        FilterAction::Unreach(code) => match code {
            UnreachCode::Net => "unreach net".to_owned(),
            UnreachCode::Host => "unreach host".to_owned(),
            UnreachCode::Port => "unreach port".to_owned(),
            UnreachCode::Prohibited => "unreach filter-prohib".to_owned(),
        },
    }
}

fn part_text(part: FilterPart) -> &'static str {
    match part {
        FilterPart::Established => "established",
        FilterPart::Setup => "setup",
    }
}

fn direction_text(direction: FilterDirection) -> &'static str {
    match direction {
        FilterDirection::In => "in",
        FilterDirection::Out => "out",
    }
}

fn keep_text(keep: FilterKeep, text: &mut String) {
    match keep {
        FilterKeep::State => text.push_str(" keep-state"),
        FilterKeep::Limit { by, max } => {
            text.push_str(" limit");
            let parts = [
                (by.source, "src-addr"),
                (by.source_port, "src-port"),
                (by.destination, "dst-addr"),
                (by.destination_port, "dst-port"),
            ];
            for (_, word) in parts.iter().filter(|(is_it, _)| *is_it) {
                let _ = write!(text, " {word}");
            }
            let _ = write!(text, " {max}");
        }
    }
    text.push_str(" :default");
}

pub fn net_text((ip, len): (IpAddr, u8)) -> String {
    match len == if ip.is_ipv4() { 32 } else { 128 } {
        true => ip.to_string(),
        false => format!("{ip}/{len}"),
    }
}
