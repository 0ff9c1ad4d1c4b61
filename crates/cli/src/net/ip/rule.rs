//! `ip rule`.

use std::fmt::Write as _;

use serde_json::{Value, json};
use slipstack_channel::control::net::{Change, MAIN_TABLE, NetworkState, RuleEntry};
use slipstack_config::parse_mark;

use super::options::Options;
use crate::failure::Failure;
use crate::net::names::parse_net;
use crate::net::target::Target;
use crate::net::words::Words;

/// Linux's: below the rules that every stack has, each new one before the others.
const PRIORITY_FIRST: u32 = 32_765;

pub(super) fn run(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    match words.next() {
        None | Some("show" | "list" | "ls" | "sh" | "s") => {
            words.end()?;
            show(target, options)
        }
        Some("add" | "a") => add(target, options, words),
        Some("del" | "delete" | "d") => delete(target, options, words),
        Some(other) => Err(words.unknown(other)),
    }
}

fn show(target: &Target, options: Options) -> Result<(), Failure> {
    let state = target.network()?;
    let json = all(&state, options).map(|rule| as_json(&rule)).collect();
    options.show(json, &text(&state, options))
}

/// With those that every stack has.
fn all(state: &NetworkState, options: Options) -> impl Iterator<Item = RuleEntry> + '_ {
    let is_v6 = options.is_v6.unwrap_or(false);
    let built_in = |priority, table| RuleEntry {
        priority,
        from: None,
        to: None,
        mark: None,
        is_family_v6: is_v6,
        table,
    };
    let own = state.rules.iter().filter(move |rule| rule.is_v6() == is_v6);
    std::iter::once(built_in(0, 255))
        .chain(own.cloned())
        .chain([built_in(32_766, MAIN_TABLE), built_in(32_767, 253)])
}

fn table_name(table: u32) -> String {
    match table {
        255 => "local".to_owned(),
        MAIN_TABLE => "main".to_owned(),
        253 => "default".to_owned(),
        id => id.to_string(),
    }
}

fn net_text(net: Option<(std::net::IpAddr, u8)>) -> String {
    match net {
        None => "all".to_owned(),
        Some((ip, len)) if len == if ip.is_ipv4() { 32 } else { 128 } => ip.to_string(),
        Some((ip, len)) => format!("{ip}/{len}"),
    }
}

/// As `ip rule` has it: the mask only where not all bits matter.
fn mark_text((value, mask): (u32, u32)) -> String {
    match mask {
        u32::MAX => format!("{value:#x}"),
        mask => format!("{value:#x}/{mask:#x}"),
    }
}

pub(super) fn text(state: &NetworkState, options: Options) -> String {
    let mut text = String::new();
    for rule in all(state, options) {
        let _ = write!(text, "{}:\tfrom {}", rule.priority, net_text(rule.from));
        if rule.to.is_some() {
            let _ = write!(text, " to {}", net_text(rule.to));
        }
        if let Some(mark) = rule.mark {
            let _ = write!(text, " fwmark {}", mark_text(mark));
        }
        let _ = writeln!(text, " lookup {}", table_name(rule.table));
    }
    text
}

fn as_json(rule: &RuleEntry) -> Value {
    let mut row = json!({
        "priority": rule.priority,
        "src": rule.from.map_or("all".to_owned(), |(ip, _)| ip.to_string()),
        "table": table_name(rule.table),
    });
    if let Some((_, len)) = rule.from {
        row["srclen"] = json!(len);
    }
    if let Some((ip, len)) = rule.to {
        row["dst"] = json!(ip);
        row["dstlen"] = json!(len);
    }
    if let Some((value, mask)) = rule.mark {
        row["fwmark"] = json!(format!("{value:#x}"));
        if mask != u32::MAX {
            row["fwmask"] = json!(format!("{mask:#x}"));
        }
    }
    row
}

/// The rules of a family that an operator has made, in the form of `ip -json`.
pub(super) fn entries(state: &NetworkState, is_v6: bool) -> impl Iterator<Item = Value> + '_ {
    let own = state.rules.iter().filter(move |rule| rule.is_v6() == is_v6);
    own.map(as_json)
}

fn describe(words: &mut Words<'_>, is_v6: bool) -> Result<RuleEntry, Failure> {
    let mut rule = RuleEntry {
        priority: 0,
        from: None,
        to: None,
        mark: None,
        is_family_v6: is_v6,
        table: 0,
    };
    while let Some(word) = words.next() {
        match word {
            "from" | "to" => {
                let text = words.value(word)?;
                let net = match text {
                    "all" | "any" => None,
                    text => Some(parse_net(text).ok_or_else(|| words.wrong(word, text))?),
                };
                match word {
                    "from" => rule.from = net,
                    _ => rule.to = net,
                }
            }
            "table" | "lookup" => {
                rule.table = match words.value(word)? {
                    "main" => MAIN_TABLE,
                    "default" => 253,
                    id => id.parse().map_err(|_| words.wrong(word, id))?,
                }
            }
            "fwmark" => {
                let text = words.value(word)?;
                rule.mark = Some(parse_mark(text).ok_or_else(|| words.wrong(word, text))?);
            }
            "priority" | "pref" | "order" | "preference" => rule.priority = words.parsed(word)?,
            "iif" | "oif" | "tos" | "dsfield" | "uidrange" | "ipproto" | "sport" | "dport"
            | "not" | "blackhole" | "unreachable" | "prohibit" | "goto" | "nop" => {
                return Err(Failure::new(format!(
                    "ip rule: \"{word}\" is not supported: rules select a table by from, to and \
                     fwmark; ipfw selects by interfaces, protocols and ports (setfib, unreach)"
                )));
            }
            other => return Err(words.unknown(other)),
        }
    }
    Ok(rule)
}

fn add(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    let mut rule = describe(&mut words, options.is_v6.unwrap_or(false))?;
    if rule.table == 0 {
        return Err(words.missing("table ID"));
    }
    if rule.from.is_none() && rule.to.is_none() && rule.mark.is_none() {
        return Err(words.missing("from NET, to NET or fwmark MARK"));
    }
    if rule.priority == 0 {
        let state = target.network()?;
        let least = state.rules.iter().map(|rule| rule.priority).min();
        rule.priority = least.map_or(PRIORITY_FIRST, |least| least.saturating_sub(1).max(1));
    }
    target.change(vec![Change::AddRule(rule)])
}

fn delete(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    let rule = describe(&mut words, options.is_v6.unwrap_or(false))?;
    let is_bare = rule.mark.is_none() && rule.table == 0;
    if rule.priority == 0 && rule.from.is_none() && rule.to.is_none() && is_bare {
        return Err(words.missing("what tells the rule from others"));
    }
    target.change(vec![Change::DelRule(rule)])
}
