//! Parser of a rule's body.

use slipstack_channel::control::net::{
    FilterAction, FilterDirection, FilterKeep, FilterPart, FilterRule, FilterTerm, FilterTest,
    LimitBy, NetworkState, UnreachCode,
};

use super::ends::{self, address_test, ranges};
use super::names;
use crate::failure::Failure;
use crate::net::names::find_interface;
use crate::net::words::Words;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// FreeBSD's `net.inet.ip.fw.verbose_limit` as its rc.conf sets it.
const LOG_AMOUNT: u32 = 100;

/// Options of ipfw that there are not, and why.
const REFUSED: [(&[&str], &str); 8] = [
    (
        &["uid", "gid", "jail"],
        "packets are filtered below the sockets, whose owners it does not know",
    ),
    (
        &["mac", "MAC", "mac-type", "layer2", "src-mac", "dst-mac"],
        "the filter looks at packets of IP, not at frames",
    ),
    (
        &[
            "keep-state-name",
            "record-state",
            "set-limit",
            "defer-immediate-action",
            "defer-action",
        ],
        "states are made by keep-state and limit alone",
    ),
    (
        &[
            "ipoptions",
            "tcpoptions",
            "ipversion",
            "ipprecedence",
            "iptos",
            "dscp",
            "ipid",
            "tcpack",
            "tcpseq",
            "tcpwin",
            "tcpdatalen",
            "tcpmss",
            "flow-id",
            "ext6hdr",
        ],
        "of headers it looks at addresses, ports, protocol, flags, types, TTL and length",
    ),
    (
        &["antispoof", "verrevpath", "verrcvpath", "versrcreach"],
        "the filter does not ask the routes",
    ),
    (
        &[
            "tagged",
            "bridged",
            "diverted",
            "diverted-loopback",
            "diverted-output",
        ],
        "packets carry no tags",
    ),
    (
        &["sockarg", "fib", "ipsec", "lookup", "flow"],
        "the filter does not know it of a packet",
    ),
    (&["prob"], "rules hold for all packets that they match"),
];

/// Actions of ipfw that there are not, and why.
const REFUSED_ACTIONS: [(&[&str], &str); 4] = [
    (
        &[
            "divert",
            "tee",
            "nat",
            "nat64lsn",
            "nat64stl",
            "nptv6",
            "ngtee",
            "netgraph",
            "reass",
            "call",
            "return",
            "setdscp",
            "tcp-setmss",
            "abort",
            "abort6",
            "setmark",
        ],
        "packets are let through or stopped, not changed or handed on",
    ),
    (
        &["fwd", "forward"],
        "ways are chosen by routing tables: use setfib",
    ),
    (&["pipe", "queue", "sched"], "there is no traffic shaper"),
    (&["tag", "untag", "altq"], "packets carry no tags"),
];

fn refusal(word: &str, all: &[(&[&str], &str)]) -> Option<Failure> {
    let (_, why) = all.iter().find(|(names, _)| names.contains(&word))?;
    Some(Failure::new(format!(
        "ipfw: {word} is not supported: {why}"
    )))
}

/// The action of a filter rule.
pub fn action(words: &mut Words<'_>) -> Result<FilterAction, Failure> {
    let Some(word) = words.next() else {
        return Err(words.missing("an action"));
    };
    Ok(match word {
        "allow" | "accept" | "pass" | "permit" => FilterAction::Allow,
        "deny" | "drop" => FilterAction::Deny,
        "count" => FilterAction::Count,
        "reset" | "reset6" => FilterAction::Reset,
        "reject" => FilterAction::Unreach(UnreachCode::Host),
        "check-state" => FilterAction::CheckState,
        "unreach" | "unreach6" => {
            let code = words.value("unreach")?;
            FilterAction::Unreach(unreach_code(code).ok_or_else(|| words.wrong("unreach", code))?)
        }
        "skipto" => FilterAction::SkipTo(words.parsed("skipto")?),
        "setfib" => FilterAction::SetFib(words.parsed("setfib")?),
        word => {
            return Err(refusal(word, &REFUSED_ACTIONS)
                .unwrap_or_else(|| Failure::new(format!("ipfw: there is no action \"{word}\""))));
        }
    })
}

fn unreach_code(word: &str) -> Option<UnreachCode> {
    Some(match word {
        "net" | "no-route" | "0" => UnreachCode::Net,
        "host" | "address" | "1" => UnreachCode::Host,
        "port" | "3" => UnreachCode::Port,
        "filter-prohib" | "admin-prohib" | "net-prohib" | "host-prohib" | "13" => {
            UnreachCode::Prohibited
        }
        _ => return None,
    })
}

/// `[set N] ACTION [log [logamount N]] [PROTOCOL from END to END] [OPTIONS] [// COMMENT]`
pub fn rule(
    words: &mut Words<'_>,
    state: &NetworkState,
    number: u32,
) -> Result<FilterRule, Failure> {
    let set = match words.take("set") {
        true => words.parsed("set")?,
        false => 0,
    };
    let mut rule = FilterRule {
        set,
        ..FilterRule::new(number, action(words)?)
    };
    rule.log = log(words)?;
    if rule.action == FilterAction::CheckState {
        flow_name(words)?;
        comment(&mut rule, words);
        words.end()?;
        return Ok(rule);
    }
    let has_ends = words.peek().is_some_and(|word| !is_option(word));
    if has_ends {
        protocols(&mut rule, words)?;
        let has_ports = has_ports(&rule);
        rule.from = ends::end(words, ("from", has_ports), &mut rule.clauses)?;
        rule.to = ends::end(words, ("to", has_ports), &mut rule.clauses)?;
    }
    options(&mut rule, words, state)?;
    Ok(rule)
}

/// Returns whether a rule begins with its options, without "PROTOCOL from END to END".
fn is_option(word: &str) -> bool {
    let known = [
        "in",
        "out",
        "via",
        "recv",
        "xmit",
        "vlan",
        "vid",
        "established",
        "setup",
        "tcpflags",
        "icmptypes",
        "icmp6types",
        "frag",
        "fragment",
        "ipttl",
        "iplen",
        "proto",
        "src-ip",
        "dst-ip",
        "src-ip6",
        "dst-ip6",
        "src-port",
        "dst-port",
        "keep-state",
        "limit",
        "//",
    ];
    known.contains(&word)
}

fn log(words: &mut Words<'_>) -> Result<Option<u32>, Failure> {
    if !words.take("log") {
        return Ok(None);
    }
    match words.take("logamount") {
        true => words.parsed("logamount").map(Some),
        false => Ok(Some(LOG_AMOUNT)),
    }
}

/// `[:default]`
fn flow_name(words: &mut Words<'_>) -> Result<(), Failure> {
    match words.peek() {
        Some(":default" | "any") => {
            words.next();
            Ok(())
        }
        Some(name) if name.starts_with(':') => Err(Failure::new(format!(
            "ipfw: states named \"{name}\" are not supported: all are of one name, :default"
        ))),
        _ => Ok(()),
    }
}

/// `PROTOCOL` or `{ PROTOCOL or … }`, each with "not" before it.
fn protocols(rule: &mut FilterRule, words: &mut Words<'_>) -> Result<(), Failure> {
    let mut terms = any_of(words, "a rule", |words| {
        let word = words.value("a rule")?;
        Ok(match word {
            "ip" | "all" => None,
            "ip4" | "ipv4" => Some(FilterTest::V6(false)),
            "ip6" | "ipv6" => Some(FilterTest::V6(true)),
            word => match names::protocol(word) {
                Some(number) => Some(FilterTest::Protocol(number)),
                None => {
                    return Err(refusal(word, &REFUSED).unwrap_or_else(|| words.unknown(word)));
                }
            },
        })
    })?;
    match (terms.as_slice(), terms.len()) {
        ([(false, None)], 1) => {}
        ([(false, Some(FilterTest::V6(is_v6)))], 1) => rule.is_v6 = Some(*is_v6),
        ([(false, Some(FilterTest::Protocol(number)))], 1) => rule.protocol = Some(*number),
        _ => {
            // One that every packet is of leaves no condition.
            let is_all = |(is_not, test): &(bool, Option<FilterTest>)| !is_not && test.is_none();
            if terms.iter().any(is_all) {
                return Ok(());
            }
            terms.retain(|(_, test)| test.is_some());
            if terms.is_empty() {
                return Err(Failure::new("ipfw: a rule for no protocol matches nothing"));
            }
            let terms = terms
                .into_iter()
                .filter_map(|(is_not, test)| test.map(|test| FilterTerm { is_not, test }));
            rule.clauses.push(terms.collect());
        }
    }
    Ok(())
}

/// Returns whether all packets of the rule are of protocols with ports.
fn has_ports(rule: &FilterRule) -> bool {
    let is_of = |number: u8| matches!(number, TCP | UDP);
    let is_either = |term: &FilterTerm| {
        !term.is_not && matches!(term.test, FilterTest::Protocol(number) if is_of(number))
    };
    rule.protocol.is_some_and(is_of) || rule.clauses.iter().any(|any| any.iter().all(is_either))
}

/// `[not] X` or `{ [not] X or … }`
pub fn any_of<'a, T>(
    words: &mut Words<'a>,
    what: &str,
    mut one: impl FnMut(&mut Words<'a>) -> Result<T, Failure>,
) -> Result<Vec<(bool, T)>, Failure> {
    let is_not_block = words.take("not");
    if !words.take("{") {
        return Ok(vec![(is_not_block, one(words)?)]);
    }
    if is_not_block {
        return Err(Failure::new(
            "ipfw: \"not\" stands before each part of a { } block, not before the block",
        ));
    }
    let mut all = Vec::new();
    loop {
        let is_not = words.take("not");
        all.push((is_not, one(words)?));
        match words.next() {
            Some("or") => {}
            Some("}") => return Ok(all),
            Some(other) => return Err(words.unknown(other)),
            None => return Err(words.missing(&format!("\"}}\" of {what}"))),
        }
    }
}

fn comment(rule: &mut FilterRule, words: &mut Words<'_>) {
    if !words.take("//") {
        return;
    }
    let mut text = Vec::new();
    while let Some(word) = words.next() {
        text.push(word);
    }
    rule.comment = text.join(" ");
}

fn options(
    rule: &mut FilterRule,
    words: &mut Words<'_>,
    state: &NetworkState,
) -> Result<(), Failure> {
    while let Some(word) = words.peek() {
        match word {
            "//" => {
                comment(rule, words);
                return Ok(());
            }
            "keep-state" => {
                words.next();
                flow_name(words)?;
                rule.keep = Some(FilterKeep::State);
            }
            "limit" => {
                words.next();
                rule.keep = Some(limit(words)?);
                flow_name(words)?;
            }
            "recv" | "xmit" => {
                words.next();
                let interface = find_interface(state, words.value(word)?)?;
                rule.link = Some(interface.link);
                rule.direction = Some(match word {
                    "recv" => FilterDirection::In,
                    _ => FilterDirection::Out,
                });
            }
            "vlan" | "vid" => {
                words.next();
                add_terms(rule, in_vlan(words, word, state)?)?;
            }
            _ => {
                let terms = any_of(words, "the options", |words| option(words, state))?;
                add_terms(rule, terms)?;
            }
        }
    }
    Ok(())
}

/// The interfaces of a VLAN, by the number of its own tag: one on each port that has it.
fn in_vlan(
    words: &mut Words<'_>,
    word: &str,
    state: &NetworkState,
) -> Result<Vec<(bool, FilterTest)>, Failure> {
    let id: u16 = words.parsed(word)?;
    let links = state.interfaces.iter();
    let links = links.filter(|it| id != 0 && it.tag.id == id);
    let tests: Vec<_> = links.map(|it| (false, FilterTest::Via(it.link))).collect();
    match tests.is_empty() {
        true => Err(Failure::new(format!(
            "ipfw: there is no VLAN {id}: make it first (ip link add link IF name NAME type vlan \
             id {id})"
        ))),
        false => Ok(tests),
    }
}

/// Conditions, in the rule's own places where it has one for them.
fn add_terms(rule: &mut FilterRule, terms: Vec<(bool, FilterTest)>) -> Result<(), Failure> {
    if let [(false, test)] = terms.as_slice() {
        let is_taken = match test {
            FilterTest::Direction(direction) if rule.direction.is_none() => {
                rule.direction = Some(*direction);
                true
            }
            FilterTest::Via(link) if rule.link.is_none() => {
                rule.link = Some(*link);
                true
            }
            FilterTest::Part(part) if rule.protocol == Some(TCP) && rule.part.is_none() => {
                rule.part = Some(*part);
                true
            }
            FilterTest::Part(part) if rule.protocol.is_some_and(|number| number != TCP) => {
                let word = match part {
                    FilterPart::Setup => "setup",
                    FilterPart::Established => "established",
                };
                return Err(Failure::new(format!("ipfw: {word} is for rules of tcp")));
            }
            _ => false,
        };
        if is_taken {
            return Ok(());
        }
    }
    let term = |(is_not, test)| FilterTerm { is_not, test };
    rule.clauses.push(terms.into_iter().map(term).collect());
    Ok(())
}

fn option(words: &mut Words<'_>, state: &NetworkState) -> Result<FilterTest, Failure> {
    let word = words.value("an option")?;
    Ok(match word {
        "in" => FilterTest::Direction(FilterDirection::In),
        "out" => FilterTest::Direction(FilterDirection::Out),
        "established" => FilterTest::Part(FilterPart::Established),
        "setup" => FilterTest::Part(FilterPart::Setup),
        "via" => FilterTest::Via(find_interface(state, words.value("via")?)?.link),
        "recv" | "xmit" | "vlan" | "vid" => {
            return Err(Failure::new(format!(
                "ipfw: {word} stands alone: use via, in and out with \"not\" and in {{ }} blocks"
            )));
        }
        "tcpflags" => {
            let text = words.value(word)?;
            let (set, clear) = names::tcp_flags(text).ok_or_else(|| words.wrong(word, text))?;
            FilterTest::TcpFlags { set, clear }
        }
        "icmptypes" | "icmp6types" => {
            let text = words.value(word)?;
            let types: Result<Vec<u8>, _> = text.split(',').map(str::parse).collect();
            let types = types.map_err(|_| words.wrong(word, text))?;
            match word {
                "icmptypes" => FilterTest::IcmpTypes(types),
                _ => FilterTest::Icmp6Types(types),
            }
        }
        "frag" | "fragment" => FilterTest::Fragment,
        "ipttl" | "iplen" => {
            let text = words.value(word)?;
            let ranges = ranges(text).ok_or_else(|| words.wrong(word, text))?;
            match word {
                "ipttl" => FilterTest::Ttl(ranges),
                _ => FilterTest::Len(ranges),
            }
        }
        "proto" => {
            let text = words.value(word)?;
            let number = names::protocol(text).ok_or_else(|| words.wrong(word, text))?;
            FilterTest::Protocol(number)
        }
        "src-ip" | "src-ip6" => FilterTest::Source(address_test(words, word)?),
        "dst-ip" | "dst-ip6" => FilterTest::Destination(address_test(words, word)?),
        "src-port" | "dst-port" => {
            let text = words.value(word)?;
            let ports = ends::ports(text).ok_or_else(|| words.wrong(word, text))?;
            match word {
                "src-port" => FilterTest::SourcePort(ports),
                _ => FilterTest::DestinationPort(ports),
            }
        }
        word => return Err(refusal(word, &REFUSED).unwrap_or_else(|| words.unknown(word))),
    })
}

/// `{src-addr | src-port | dst-addr | dst-port} … N`
fn limit(words: &mut Words<'_>) -> Result<FilterKeep, Failure> {
    let mut by = LimitBy::default();
    loop {
        let word = words.value("limit")?;
        match word {
            "src-addr" => by.source = true,
            "src-port" => by.source_port = true,
            "dst-addr" => by.destination = true,
            "dst-port" => by.destination_port = true,
            number => {
                let is_by_something = by != LimitBy::default();
                let max = number
                    .parse()
                    .ok()
                    .filter(|max| *max > 0 && is_by_something);
                return Ok(FilterKeep::Limit {
                    by,
                    max: max.ok_or_else(|| words.wrong("limit", number))?,
                });
            }
        }
    }
}
