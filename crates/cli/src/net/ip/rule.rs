//! `ip rule`.

use std::fmt::Write as _;
use std::net::IpAddr;

use serde_json::{Value, json};
use slipstack_channel::control::net::{
    Change, MAIN_TABLE, NetworkState, RuleAction, RuleEntry, RuleInput, parse_ports,
    parse_protocol, protocol_text,
};
use slipstack_config::parse_mark;

use super::options::Options;
use super::tables;
use crate::failure::Failure;
use crate::net::names::{find_interface, parse_net};
use crate::net::target::Target;
use crate::net::words::Words;

/// Linux's: below the rules that every stack has, each new one before the others.
const PRIORITY_FIRST: u32 = 32_765;

pub(super) fn run(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    match words.next() {
        None | Some("show" | "list" | "ls" | "sh" | "s") => show(target, options, words),
        Some("flush" | "f") => flush(target, options, words),
        Some("add" | "a") => add(target, options, words),
        Some("del" | "delete" | "d") => delete(target, options, words),
        Some(other) => Err(words.unknown(other)),
    }
}

/// Lists the rules, or those that have what the words name.
fn show(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    let state = target.network()?;
    let wanted = read(&mut words, &state, options.is_v6.unwrap_or(false))?;
    let meant = all(&state, options).filter(|rule| rule.is_meant_by(&wanted));
    let meant: Vec<RuleEntry> = meant.collect();
    let json = meant.iter().map(|rule| as_json(&state, rule)).collect();
    options.show(
        json,
        &meant
            .iter()
            .map(|rule| line(&state, rule))
            .collect::<String>(),
    )
}

/// Removes the rules of a family, or those that have what the words name; the rules that every
/// stack has stay.
fn flush(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    let state = target.network()?;
    let is_v6 = options.is_v6.unwrap_or(false);
    let wanted = read(&mut words, &state, is_v6)?;
    let own = state.rules.iter().filter(|rule| rule.is_v6() == is_v6);
    let meant = own.filter(|rule| rule.is_meant_by(&wanted));
    let changes: Vec<Change> = meant.cloned().map(Change::DelRule).collect();
    match changes.is_empty() {
        true => Ok(()),
        false => target.change(changes),
    }
}

/// The rules of a stack, including those that every stack has.
fn all(state: &NetworkState, options: Options) -> impl Iterator<Item = RuleEntry> + '_ {
    let is_v6 = options.is_v6.unwrap_or(false);
    let built_in = |priority, table| RuleEntry {
        priority,
        is_family_v6: is_v6,
        table,
        ..RuleEntry::default()
    };
    let own = state.rules.iter().filter(move |rule| rule.is_v6() == is_v6);
    std::iter::once(built_in(0, 255))
        .chain(own.cloned())
        .chain([built_in(32_766, MAIN_TABLE), built_in(32_767, 253)])
}

fn net_text(net: Option<(IpAddr, u8)>) -> String {
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
    all(state, options).map(|rule| line(state, &rule)).collect()
}

fn line(state: &NetworkState, rule: &RuleEntry) -> String {
    format!("{}:\t{}\n", rule.priority, describe(state, rule))
}

/// A rule without its priority.
fn describe(state: &NetworkState, rule: &RuleEntry) -> String {
    let mut text = String::new();
    if rule.is_not {
        text.push_str("not ");
    }
    let _ = write!(text, "from {}", net_text(rule.from));
    if rule.to.is_some() {
        let _ = write!(text, " to {}", net_text(rule.to));
    }
    if let Some(tos) = rule.tos {
        let _ = write!(text, " tos {tos:#04x}");
    }
    if let Some(mark) = rule.mark {
        let _ = write!(text, " fwmark {}", mark_text(mark));
    }
    if let Some(input) = rule.input {
        let _ = write!(text, " iif {}", input_name(state, input));
    }
    if let Some(link) = rule.output {
        let _ = write!(text, " oif {}", link_name(state, link));
    }
    for (word, value) in rule.carried.words() {
        let _ = write!(text, " {word} {value}");
    }
    match action_name(rule.action) {
        None => text + " lookup " + &tables::name_of(rule.table),
        Some(action) => text + " " + action,
    }
}

/// `None`: a look-up.
fn action_name(action: RuleAction) -> Option<&'static str> {
    match action {
        RuleAction::Lookup => None,
        RuleAction::Unreachable => Some("unreachable"),
        RuleAction::Prohibit => Some("prohibit"),
        RuleAction::Blackhole => Some("blackhole"),
    }
}

fn input_name(state: &NetworkState, input: RuleInput) -> String {
    match input {
        RuleInput::Own => "lo".to_owned(),
        RuleInput::Link(link) => link_name(state, link),
    }
}

/// The name of an interface; one that has been deleted leaves its rules.
fn link_name(state: &NetworkState, link: u16) -> String {
    let found = state.find_link(link).map(|it| it.name.clone());
    found.unwrap_or_else(|| format!("link{link} [detached]"))
}

fn as_json(state: &NetworkState, rule: &RuleEntry) -> Value {
    let mut row = json!({
        "priority": rule.priority,
        "src": rule.from.map_or("all".to_owned(), |(ip, _)| ip.to_string()),
    });
    match action_name(rule.action) {
        None => row["table"] = json!(tables::name_of(rule.table)),
        Some(action) => row["action"] = json!(action),
    }
    if rule.is_not {
        row["not"] = Value::Null;
    }
    if let Some(tos) = rule.tos {
        row["tos"] = json!(format!("{tos:#04x}"));
    }
    if let Some(input) = rule.input {
        row["iif"] = json!(input_name(state, input));
    }
    if let Some(link) = rule.output {
        row["oif"] = json!(link_name(state, link));
    }
    if let Some(number) = rule.carried.protocol {
        row["ipproto"] = json!(protocol_text(number));
    }
    for (word, ports) in [
        ("sport", rule.carried.source_ports),
        ("dport", rule.carried.destination_ports),
    ] {
        match ports {
            Some((first, last)) if first == last => row[word] = json!(first),
            Some((first, last)) => {
                row[format!("{word}_start")] = json!(first);
                row[format!("{word}_end")] = json!(last);
            }
            None => {}
        }
    }
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
    own.map(|rule| as_json(state, rule))
}

fn read(words: &mut Words<'_>, state: &NetworkState, is_v6: bool) -> Result<RuleEntry, Failure> {
    let mut rule = RuleEntry {
        is_family_v6: is_v6,
        ..RuleEntry::default()
    };
    while let Some(word) = words.next() {
        match word {
            "not" => rule.is_not = true,
            "from" => rule.from = read_net(words, word)?,
            "to" => rule.to = read_net(words, word)?,
            "table" | "lookup" => {
                let text = words.value(word)?;
                rule.table = tables::find(text).ok_or_else(|| words.wrong(word, text))?;
            }
            "fwmark" => {
                let text = words.value(word)?;
                rule.mark = Some(parse_mark(text).ok_or_else(|| words.wrong(word, text))?);
            }
            "tos" | "dsfield" => rule.tos = read_tos(words, word)?,
            "iif" | "dev" => rule.input = Some(read_input(words, word, state)?),
            "oif" => rule.output = Some(find_interface(state, words.value(word)?)?.link),
            "priority" | "pref" | "order" | "preference" => rule.priority = words.parsed(word)?,
            "unreachable" => rule.action = RuleAction::Unreachable,
            "prohibit" => rule.action = RuleAction::Prohibit,
            "blackhole" => rule.action = RuleAction::Blackhole,
            "type" => rule.action = read_action(words, word)?,
            "ipproto" => rule.carried.protocol = Some(read_protocol(words, word)?),
            "sport" => rule.carried.source_ports = Some(read_ports(words, word)?),
            "dport" => rule.carried.destination_ports = Some(read_ports(words, word)?),
            "uidrange"
            | "goto"
            | "nop"
            | "l3mdev"
            | "suppress_prefixlength"
            | "suppress_ifgroup" => {
                return Err(Failure::new(format!(
                    "ip rule: \"{word}\" is not supported: rules select by from, to, fwmark, tos, \
                     ipproto, sport, dport, iif and oif"
                )));
            }
            other => return Err(words.unknown(other)),
        }
    }
    Ok(rule)
}

pub(super) fn read_protocol(words: &mut Words<'_>, word: &str) -> Result<u8, Failure> {
    let text = words.value(word)?;
    parse_protocol(text).ok_or_else(|| words.wrong(word, text))
}

fn read_ports(words: &mut Words<'_>, word: &str) -> Result<(u16, u16), Failure> {
    let text = words.value(word)?;
    parse_ports(text).ok_or_else(|| words.wrong(word, text))
}

/// `None`: all.
fn read_net(words: &mut Words<'_>, word: &str) -> Result<Option<(IpAddr, u8)>, Failure> {
    match words.value(word)? {
        "all" | "any" | "default" => Ok(None),
        text => {
            let net = parse_net(text).ok_or_else(|| words.wrong(word, text))?;
            Ok(Some(net))
        }
    }
}

/// 0 stands for any.
pub(super) fn read_tos(words: &mut Words<'_>, word: &str) -> Result<Option<u8>, Failure> {
    const ECN: u8 = 3;
    let text = words.value(word)?;
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16),
        // rtnl_dsfield_a2n(): always hexadecimal.
        None => u8::from_str_radix(text, 16),
    };
    let tos = parsed.ok().filter(|tos| tos & ECN == 0);
    let tos = tos.ok_or_else(|| words.wrong(word, text))?;
    Ok((tos != 0).then_some(tos))
}

pub(super) fn read_input(
    words: &mut Words<'_>,
    word: &str,
    state: &NetworkState,
) -> Result<RuleInput, Failure> {
    match words.value(word)? {
        "lo" => Ok(RuleInput::Own),
        name => Ok(RuleInput::Link(find_interface(state, name)?.link)),
    }
}

fn read_action(words: &mut Words<'_>, word: &str) -> Result<RuleAction, Failure> {
    match words.value(word)? {
        "unicast" | "table" => Ok(RuleAction::Lookup),
        "unreachable" => Ok(RuleAction::Unreachable),
        "prohibit" => Ok(RuleAction::Prohibit),
        "blackhole" => Ok(RuleAction::Blackhole),
        other => Err(words.wrong(word, other)),
    }
}

fn add(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    let state = target.network()?;
    let mut rule = read(&mut words, &state, options.is_v6.unwrap_or(false))?;
    let is_lookup = rule.action == RuleAction::Lookup;
    if is_lookup && rule.table == 0 {
        return Err(words.missing("table ID, unreachable, prohibit or blackhole"));
    }
    if !is_lookup && rule.table != 0 {
        return Err(Failure::new("ip rule: a rule that refuses names no table"));
    }
    if rule.priority == 0 {
        let least = state.rules.iter().map(|rule| rule.priority).min();
        rule.priority = least.map_or(PRIORITY_FIRST, |least| least.saturating_sub(1).max(1));
    }
    target.change(vec![Change::AddRule(rule)])
}

fn delete(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    let is_v6 = options.is_v6.unwrap_or(false);
    let rule = read(&mut words, &target.network()?, is_v6)?;
    let nothing = RuleEntry {
        is_family_v6: is_v6,
        ..RuleEntry::default()
    };
    if rule == nothing {
        return Err(words.missing("what tells the rule from others"));
    }
    target.change(vec![Change::DelRule(rule)])
}
