//! `slipstack ipfw`, `ff_ipfw`: the rules that choose a FIB.

use std::fmt::Write as _;
use std::net::IpAddr;

use slipstack_channel::control::net::{Change, NetworkState, RuleEntry};
use slipstack_config::Settings;

use super::{fib_of, table_of, take_engine};
use crate::failure::Failure;
use crate::net::names::parse_net;
use crate::net::target::Target;
use crate::net::words::Words;
use crate::output::print;

/// The distance of rules that are given no number.
const STEP: u32 = 100;
/// The last number is the rule for everything else.
const NUMBER_MAX: u32 = 65_534;

pub fn run(settings: &Settings, words: &[String]) -> Result<(), Failure> {
    let mut words = Words::new("ipfw", words);
    let (mut engine, mut is_quiet) = (0, false);
    while words.peek().is_some_and(|word| word.starts_with('-')) {
        if let Some(number) = take_engine(&mut words, "-P")? {
            engine = number;
            continue;
        }
        match words.next() {
            Some("-q") => is_quiet = true,
            Some("-a" | "-f" | "-n" | "-N" | "-t" | "-T" | "-S" | "-d" | "-e") | None => {}
            Some(other) => return Err(words.unknown(other)),
        }
    }
    let target = Target::find(settings, engine)?;
    let state = target.network()?;
    match words.next() {
        Some("add") => add(&target, &state, words, is_quiet),
        Some("delete") => delete(&target, &state, words),
        Some("flush") => {
            let all = state.rules.iter().cloned().map(Change::DelRule);
            target.change(all.collect())
        }
        Some("list" | "show") => print(&text(&state)),
        Some(other) => Err(words.unknown(other)),
        None => Err(words.missing("add, delete, list, show or flush")),
    }
}

fn text(state: &NetworkState) -> String {
    let lines = state.rules.iter().map(line);
    let text: String = lines.collect();
    format!("{text}65535 allow ip from any to any\n")
}

fn line(rule: &RuleEntry) -> String {
    let net = |net: Option<(IpAddr, u8)>| match net {
        None => "any".to_owned(),
        Some((ip, len)) if len == if ip.is_ipv4() { 32 } else { 128 } => ip.to_string(),
        Some((ip, len)) => format!("{ip}/{len}"),
    };
    let kind = if rule.is_v6() { "ip6" } else { "ip" };
    let mut text = format!("{:05} setfib {} {kind}", rule.priority, fib_of(rule.table));
    let _ = writeln!(text, " from {} to {} out", net(rule.from), net(rule.to));
    text
}

/// `add [N] setfib F ip from NET to any out`
fn add(
    target: &Target,
    state: &NetworkState,
    mut words: Words<'_>,
    is_quiet: bool,
) -> Result<(), Failure> {
    let number = words.peek().and_then(|word| word.parse::<u32>().ok());
    if number.is_some() {
        words.next();
    }
    let last = state.rules.iter().map(|rule| rule.priority).max();
    let number = number.unwrap_or_else(|| (last.unwrap_or(0) / STEP + 1) * STEP);
    if !(1..=NUMBER_MAX).contains(&number) {
        return Err(words.wrong("a rule's number", &number.to_string()));
    }
    match words.next() {
        Some("setfib") => {}
        Some(other) => {
            return Err(Failure::new(format!(
                "ipfw: the action \"{other}\" is not supported: rules choose a table (setfib)"
            )));
        }
        None => return Err(words.missing("setfib FIB")),
    }
    let table = table_of(words.parsed("setfib")?)?;
    match words.next() {
        Some("ip" | "all" | "ip4" | "ipv4" | "ip6" | "ipv6") => {}
        Some(other) => {
            return Err(Failure::new(format!(
                "ipfw: a rule for \"{other}\" alone is not supported: a table is chosen by addresses"
            )));
        }
        None => return Err(words.missing("ip")),
    }
    let from = side(&mut words, "from")?;
    let to = side(&mut words, "to")?;
    match words.next() {
        None | Some("out") => {}
        Some("in") => {
            return Err(Failure::new(
                "ipfw: setfib of packets that come in is not supported: what leaves is routed",
            ));
        }
        Some(other) => return Err(words.unknown(other)),
    }
    words.end()?;
    if from.is_none() && to.is_none() {
        return Err(words.missing("a network to go by"));
    }
    let rule = RuleEntry {
        priority: number,
        from,
        to,
        mark: None,
        is_family_v6: false,
        table,
    };
    let said = line(&rule);
    target.change(vec![Change::AddRule(rule)])?;
    if is_quiet { Ok(()) } else { print(&said) }
}

fn side(words: &mut Words<'_>, which: &str) -> Result<Option<(IpAddr, u8)>, Failure> {
    if !words.take(which) {
        return Err(words.missing(which));
    }
    match words.value(which)? {
        "any" => Ok(None),
        text => {
            let net = parse_net(text).ok_or_else(|| words.wrong(which, text))?;
            Ok(Some(net))
        }
    }
}

fn delete(target: &Target, state: &NetworkState, mut words: Words<'_>) -> Result<(), Failure> {
    let mut changes = Vec::new();
    while words.peek().is_some() {
        let number: u32 = words.parsed("delete")?;
        let meant = state.rules.iter().filter(|rule| rule.priority == number);
        let before = changes.len();
        changes.extend(meant.cloned().map(Change::DelRule));
        if changes.len() == before {
            return Err(Failure::new(format!("ipfw: rule {number} not found")));
        }
    }
    match changes.is_empty() {
        true => Err(words.missing("the number of a rule")),
        false => target.change(changes),
    }
}
