//! The body of a rule, read.

use std::net::IpAddr;

use slipstack_channel::control::net::{
    FilterAction, FilterDirection, FilterEnd, FilterPart, FilterRule, NetworkState, UnreachCode,
};

use crate::failure::Failure;
use crate::net::names::{find_interface, parse_net};
use crate::net::words::Words;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// The action of a filter rule, if that is what follows.
pub fn action(words: &mut Words<'_>) -> Result<Option<FilterAction>, Failure> {
    let Some(word) = words.peek() else {
        return Err(words.missing("an action"));
    };
    let action = match word {
        "allow" | "accept" | "pass" | "permit" => FilterAction::Allow,
        "deny" | "drop" => FilterAction::Deny,
        "count" => FilterAction::Count,
        "reset" | "reset6" => FilterAction::Reset,
        "reject" => FilterAction::Unreach(UnreachCode::Host),
        "unreach" | "unreach6" => {
            words.next();
            let code = words.value("unreach")?;
            let Some(code) = unreach_code(code) else {
                return Err(words.wrong("unreach", code));
            };
            return Ok(Some(FilterAction::Unreach(code)));
        }
        "skipto" => {
            words.next();
            return Ok(Some(FilterAction::SkipTo(words.parsed("skipto")?)));
        }
        _ => return Ok(None),
    };
    words.next();
    Ok(Some(action))
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

/// `[log] PROTOCOL from END to END [OPTIONS]`
pub fn body(
    words: &mut Words<'_>,
    state: &NetworkState,
    number: u32,
    action: FilterAction,
) -> Result<FilterRule, Failure> {
    let word = words.value("a rule")?;
    let (protocol, is_v6) = match word {
        "ip" | "all" => (None, None),
        "ip4" | "ipv4" => (None, Some(false)),
        "ip6" | "ipv6" => (None, Some(true)),
        "tcp" => (Some(TCP), None),
        "udp" => (Some(UDP), None),
        "icmp" => (Some(ICMP), None),
        "icmp6" | "ipv6-icmp" => (Some(ICMPV6), None),
        number => match number.parse() {
            Ok(protocol) => (Some(protocol), None),
            Err(_) => return Err(words.unknown(word)),
        },
    };
    let has_ports = matches!(protocol, Some(TCP | UDP));
    let from = end(words, "from", has_ports)?;
    let to = end(words, "to", has_ports)?;
    let mut rule = FilterRule {
        id: 0,
        number,
        action,
        protocol,
        is_v6,
        from,
        to,
        direction: None,
        vlan: None,
        part: None,
    };
    while let Some(word) = words.next() {
        option(&mut rule, word, words, state)?;
    }
    Ok(rule)
}

fn option(
    rule: &mut FilterRule,
    word: &str,
    words: &mut Words<'_>,
    state: &NetworkState,
) -> Result<(), Failure> {
    match word {
        "in" => rule.direction = Some(FilterDirection::In),
        "out" => rule.direction = Some(FilterDirection::Out),
        "established" | "setup" if rule.protocol == Some(TCP) => {
            rule.part = Some(match word {
                "setup" => FilterPart::Setup,
                _ => FilterPart::Established,
            });
        }
        "established" | "setup" => {
            return Err(Failure::new(format!("ipfw: {word} is for rules of tcp")));
        }
        "via" | "recv" | "xmit" => {
            let interface = find_interface(state, words.value(word)?)?;
            rule.vlan = Some(interface.vlan);
            rule.direction = match word {
                "recv" => Some(FilterDirection::In),
                "xmit" => Some(FilterDirection::Out),
                _ => rule.direction,
            };
        }
        "keep-state" | "check-state" | "limit" | "log" | "tcpflags" | "icmptypes" => {
            return Err(Failure::new(format!(
                "ipfw: {word} is not supported; established and setup tell segments of connections"
            )));
        }
        other => return Err(words.unknown(other)),
    }
    Ok(())
}

fn end(words: &mut Words<'_>, which: &str, has_ports: bool) -> Result<FilterEnd, Failure> {
    if !words.take(which) {
        return Err(words.missing(which));
    }
    let mut end = FilterEnd {
        is_not: words.take("not"),
        ..FilterEnd::default()
    };
    for part in words.value(which)?.split(',') {
        match part {
            "any" => {}
            "me" | "me6" => end.is_me = true,
            part => {
                let Some(net) = parse_net(part) else {
                    return Err(words.wrong(which, part));
                };
                end.nets.push(net);
            }
        }
    }
    if end.is_not && end.nets.is_empty() && !end.is_me {
        return Err(words.wrong(which, "not any"));
    }
    let is_ports = |word: &str| word.starts_with(|first: char| first.is_ascii_digit());
    let is_not_ports = words.peek() == Some("not");
    if is_not_ports {
        words.next();
    }
    if words.peek().is_some_and(is_ports) {
        let text = words.value("ports")?;
        if !has_ports {
            return Err(Failure::new(format!(
                "ipfw: ports {text} are for rules of tcp or udp"
            )));
        }
        end.is_not_ports = is_not_ports;
        end.ports = ports(text).ok_or_else(|| words.wrong("ports", text))?;
    } else if is_not_ports {
        return Err(words.missing("ports behind not"));
    }
    Ok(end)
}

/// `80,443,8000-8099`
fn ports(text: &str) -> Option<Vec<(u16, u16)>> {
    let range = |part: &str| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high) = (low.parse().ok()?, high.parse().ok()?);
        (low <= high).then_some((low, high))
    };
    text.split(',').map(range).collect()
}

/// A rule as it would be given.
pub fn text(rule: &FilterRule, state: &NetworkState) -> String {
    let action = match rule.action {
        FilterAction::Allow => "allow".to_owned(),
        FilterAction::Deny => "deny".to_owned(),
        FilterAction::Count => "count".to_owned(),
        FilterAction::Reset => "reset".to_owned(),
        FilterAction::SkipTo(number) => format!("skipto {number}"),
        FilterAction::Unreach(code) => match code {
            UnreachCode::Net => "unreach net".to_owned(),
            UnreachCode::Host => "unreach host".to_owned(),
            UnreachCode::Port => "unreach port".to_owned(),
            UnreachCode::Prohibited => "unreach filter-prohib".to_owned(),
        },
    };
    let protocol = match (rule.protocol, rule.is_v6) {
        (Some(TCP), _) => "tcp".to_owned(),
        (Some(UDP), _) => "udp".to_owned(),
        (Some(ICMP), _) => "icmp".to_owned(),
        (Some(ICMPV6), _) => "icmp6".to_owned(),
        (Some(number), _) => number.to_string(),
        (None, None) => "ip".to_owned(),
        (None, Some(false)) => "ip4".to_owned(),
        (None, Some(true)) => "ip6".to_owned(),
    };
    let (from, to) = (end_text(&rule.from), end_text(&rule.to));
    let mut text = format!("{action} {protocol} from {from} to {to}");
    match rule.part {
        Some(FilterPart::Established) => text.push_str(" established"),
        Some(FilterPart::Setup) => text.push_str(" setup"),
        None => {}
    }
    match rule.direction {
        Some(FilterDirection::In) => text.push_str(" in"),
        Some(FilterDirection::Out) => text.push_str(" out"),
        None => {}
    }
    if let Some(vlan) = rule.vlan {
        let interface = state.find_vlan(vlan).map(|it| it.name.clone());
        let name = interface.unwrap_or_else(|| format!("vlan{vlan}"));
        text.push_str(&format!(" via {name}"));
    }
    text
}

fn end_text(end: &FilterEnd) -> String {
    let mut all: Vec<String> = end.nets.iter().map(|net| net_text(*net)).collect();
    if end.is_me {
        all.insert(0, "me".to_owned());
    }
    if all.is_empty() {
        all.push("any".to_owned());
    }
    let not = |is_not: bool| if is_not { "not " } else { "" };
    let mut text = format!("{}{}", not(end.is_not), all.join(","));
    if !end.ports.is_empty() {
        let range = |(low, high): &(u16, u16)| match low == high {
            true => low.to_string(),
            false => format!("{low}-{high}"),
        };
        let ports: Vec<String> = end.ports.iter().map(range).collect();
        text.push_str(&format!(" {}{}", not(end.is_not_ports), ports.join(",")));
    }
    text
}

pub fn net_text((ip, len): (IpAddr, u8)) -> String {
    match len == if ip.is_ipv4() { 32 } else { 128 } {
        true => ip.to_string(),
        false => format!("{ip}/{len}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let mut words = Words::new("ipfw", &words);
        let state = NetworkState::default();
        let action = action(&mut words).map_err(|e| e.to_string())?.unwrap();
        let rule = body(&mut words, &state, 100, action).map_err(|e| e.to_string())?;
        Ok(super::text(&rule, &state))
    }

    #[test]
    fn rules_are_written_as_they_are_read() {
        for text in [
            "deny ip from any to any",
            "allow tcp from 10.0.0.0/8,192.0.2.1 to me 80,443,8000-8099 setup in",
            "reset tcp from not fd00::/8 to any not 22",
            "unreach filter-prohib udp from any 53 to any out",
            "count icmp6 from any to any",
            "skipto 500 ip4 from any to not me",
        ] {
            assert_eq!(read(text).as_deref(), Ok(text));
        }
        assert_eq!(
            read("reject tcp from any to any established").unwrap(),
            "unreach host tcp from any to any established"
        );
    }

    #[test]
    fn faults_are_named() {
        for (text, why) in [
            ("deny tpc from any to any", "what is \"tpc\"?"),
            ("deny ip from 10.0.0.0/33 to any", "from cannot be"),
            (
                "deny ip from any 80 to any",
                "ports 80 are for rules of tcp or udp",
            ),
            (
                "deny tcp from any 90-80 to any",
                "ports cannot be \"90-80\"",
            ),
            (
                "deny udp from any to any setup",
                "setup is for rules of tcp",
            ),
            (
                "allow tcp from any to any keep-state",
                "keep-state is not supported",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
