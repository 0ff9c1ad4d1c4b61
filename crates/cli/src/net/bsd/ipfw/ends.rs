//! The ends of a rule: addresses and ports.

use std::net::{IpAddr, Ipv4Addr};

use slipstack_channel::control::net::{FilterEnd, FilterTerm, FilterTest};

use super::grammar::any_of;
use super::names;
use crate::failure::Failure;
use crate::net::names::parse_net;
use crate::net::words::Words;

/// Parses `from ADDRESSES [PORTS]`; parts that an end cannot express become a clause.
pub fn end(
    words: &mut Words<'_>,
    (which, has_ports): (&str, bool),
    clauses: &mut Vec<Vec<FilterTerm>>,
) -> Result<FilterEnd, Failure> {
    if !words.take(which) {
        return Err(words.missing(which));
    }
    let mut parts = any_of(words, which, |words| addresses(words, which))?;
    let mut end = match parts.as_mut_slice() {
        [(is_not, one)] => FilterEnd {
            is_not: *is_not,
            ..std::mem::take(one)
        },
        several
            if several
                .iter()
                .all(|(is_not, part)| !is_not && !part.is_any()) =>
        {
            let mut all = FilterEnd::default();
            for (_, part) in several {
                add(&mut all, std::mem::take(part));
            }
            all
        }
        several
            if several
                .iter()
                .any(|(is_not, part)| !is_not && part.is_any()) =>
        {
            FilterEnd::default()
        }
        _ => {
            let term = |(is_not, part)| FilterTerm {
                is_not,
                test: match which {
                    "from" => FilterTest::Source(part),
                    _ => FilterTest::Destination(part),
                },
            };
            clauses.push(parts.into_iter().map(term).collect());
            FilterEnd::default()
        }
    };
    if end.is_not && end.is_any() {
        return Err(words.wrong(which, "not any"));
    }
    let is_ports = |word: &str| {
        word.starts_with(|first: char| first.is_ascii_digit())
            || word
                .split([',', '-'])
                .all(|part| names::port(part).is_some())
    };
    let mut ahead = words.clone();
    let is_not_ports = ahead.take("not");
    let Some(text) = ahead.next().filter(|text| is_ports(text)) else {
        return Ok(end);
    };
    *words = ahead;
    if !has_ports {
        return Err(Failure::new(format!(
            "ipfw: ports {text} are for rules of tcp or udp"
        )));
    }
    end.is_not_ports = is_not_ports;
    end.ports = ports(text).ok_or_else(|| words.wrong("ports", text))?;
    Ok(end)
}

fn add(all: &mut FilterEnd, part: FilterEnd) {
    all.nets.extend(part.nets);
    all.tables.extend(part.tables);
    all.is_me |= part.is_me;
    all.is_me6 |= part.is_me6;
}

/// Addresses alone, for src-ip and dst-ip.
pub fn address_test(words: &mut Words<'_>, which: &str) -> Result<FilterEnd, Failure> {
    let end = addresses(words, which)?;
    match end.is_any() {
        true => Err(words.wrong(which, "any")),
        false => Ok(end),
    }
}

/// `any`, or networks, `me`, `me6` and tables, separated by commas.
fn addresses(words: &mut Words<'_>, which: &str) -> Result<FilterEnd, Failure> {
    let text = words.value(which)?;
    let mut end = FilterEnd::default();
    for part in split(text) {
        match part {
            "any" => return Ok(FilterEnd::default()),
            "me" => end.is_me = true,
            "me6" => end.is_me6 = true,
            part if part.contains('{') => {
                return Err(Failure::new(format!(
                    "ipfw: lists of hosts such as \"{part}\" are not supported: use networks, or a \
                     table"
                )));
            }
            part => match (table(part), net(part)) {
                (Some(table), _) => end.tables.push(table),
                (None, Some(net)) => end.nets.push(net),
                (None, None) => return Err(words.wrong(which, part)),
            },
        }
    }
    Ok(end)
}

/// At the commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '{' => depth += 1,
            ')' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

/// `table(NAME)` or `table(NAME,VALUE)`
fn table(part: &str) -> Option<(String, Option<u32>)> {
    let inner = part.strip_prefix("table(")?.strip_suffix(')')?;
    match inner.split_once(',') {
        Some((name, value)) => Some((name.to_owned(), Some(value.parse().ok()?))),
        None => Some((inner.to_owned(), None)),
    }
}

/// A network, with its mask behind a slash or as an address behind a colon.
pub fn net(text: &str) -> Option<(IpAddr, u8)> {
    let Some((ip, mask)) = text.split_once(':').filter(|(ip, _)| ip.contains('.')) else {
        return parse_net(text);
    };
    let mask: Ipv4Addr = mask.parse().ok()?;
    let len = mask.to_bits().leading_ones();
    let is_plain = mask.to_bits().checked_shl(len).unwrap_or(0) == 0;
    let ip: Ipv4Addr = ip.parse().ok()?;
    is_plain.then_some((ip.into(), len as u8))
}

/// `80,https,8000-8099`
pub fn ports(text: &str) -> Option<Vec<(u16, u16)>> {
    let range = |part: &str| {
        if let Some(port) = names::port(part) {
            return Some((port, port));
        }
        let (low, high) = part.split_once('-')?;
        let (low, high) = (names::port(low)?, names::port(high)?);
        (low <= high).then_some((low, high))
    };
    text.split(',').map(range).collect()
}

/// `64,1-5`
pub fn ranges(text: &str) -> Option<Vec<(u16, u16)>> {
    let range = |part: &str| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high) = (low.parse().ok()?, high.parse().ok()?);
        (low <= high).then_some((low, high))
    };
    text.split(',').map(range).collect()
}
