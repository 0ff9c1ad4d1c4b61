//! `slipstack ipfw`, `ff_ipfw`: the packet filter, and the rules that choose a FIB.

mod grammar;

use std::collections::HashMap;
use std::net::IpAddr;

use slipstack_attach::inquiry;
use slipstack_channel::control::net::{
    Answer, Change, FilterChange, FilterRule, Inquiry, NetworkState, Query, RuleEntry,
};
use slipstack_config::Settings;

use super::{fib_of, table_of, take_engine};
use crate::failure::Failure;
use crate::net::names::parse_net;
use crate::net::target::Target;
use crate::net::words::Words;
use crate::output::print;
use grammar::net_text;

/// The distance of rules that are given no number.
const STEP: u32 = 100;
/// The last number is the rule for everything else.
const NUMBER_MAX: u32 = 65_534;

/// How the command was called.
#[derive(Default)]
struct Style {
    is_quiet: bool,
    has_counts: bool,
    is_json: bool,
}

/// What is changed, and how the answer is written.
struct Firewall<'a> {
    settings: &'a Settings,
    target: Target,
    state: NetworkState,
    style: Style,
}

/// Packets and bytes by a rule's id.
type Counts = HashMap<u64, (u64, u64)>;

pub fn run(settings: &Settings, words: &[String]) -> Result<(), Failure> {
    let mut words = Words::new("ipfw", words);
    let (mut engine, mut style) = (0, Style::default());
    while words.peek().is_some_and(|word| word.starts_with('-')) {
        if let Some(number) = take_engine(&mut words, "-P")? {
            engine = number;
            continue;
        }
        match words.next() {
            Some("-q") => style.is_quiet = true,
            Some("-a") => style.has_counts = true,
            Some("--json") => style.is_json = true,
            // There is nothing to ask before, and no names, sets or dynamic rules to show.
            Some("-f" | "-N" | "-S" | "-d" | "-e") | None => {}
            Some(option @ ("-n" | "-t" | "-T")) => {
                return Err(Failure::new(format!(
                    "ipfw: {option} is not supported: nothing is only checked, and rules keep no times"
                )));
            }
            Some(other) => return Err(words.unknown(other)),
        }
    }
    let target = Target::find(settings, engine)?;
    let state = target.network()?;
    let mut firewall = Firewall {
        settings,
        target,
        state,
        style,
    };
    match words.next() {
        Some("add") => firewall.add(words),
        Some("delete") => firewall.delete(words),
        Some("flush") => firewall.flush(),
        Some("zero") => firewall.zero(words),
        Some("list" | "l") => firewall.list(),
        Some("show") => {
            firewall.style.has_counts = true;
            firewall.list()
        }
        Some("set" | "table" | "nat" | "pipe" | "queue") => Err(Failure::new(
            "ipfw: sets, tables, nat and pipes are not supported",
        )),
        Some(other) => Err(words.unknown(other)),
        None => Err(words.missing("add, delete, list, show, zero or flush")),
    }
}

impl Firewall<'_> {
    fn rules(&self) -> Result<Vec<FilterRule>, Failure> {
        inquiry::filter_rules(self.settings).map_err(|error| Failure::new(error.to_string()))
    }

    fn list(&self) -> Result<(), Failure> {
        let rules = self.rules()?;
        let counts = match self.style.has_counts || self.style.is_json {
            true => self.counts()?,
            false => Counts::new(),
        };
        if self.style.is_json {
            return self.print_json(&rules, &counts);
        }
        let count = |id: u64| counts.get(&id).copied().unwrap_or_default();
        let columns = |id: Option<u64>| match (self.style.has_counts, id) {
            (false, _) => String::new(),
            (true, id) => {
                let (packets, bytes) = id.map(count).unwrap_or_default();
                format!("{packets:>10} {bytes:>14} ")
            }
        };
        let filter = rules.iter().map(|rule| {
            let text = grammar::text(rule, &self.state);
            (
                rule.number,
                format!("{:05} {}{text}\n", rule.number, columns(Some(rule.id))),
            )
        });
        let tables = self.state.rules.iter().map(|rule| {
            let text = fib_text(rule);
            (
                rule.priority,
                format!("{:05} {}{text}\n", rule.priority, columns(None)),
            )
        });
        let mut lines: Vec<(u32, String)> = tables.chain(filter).collect();
        lines.sort_by_key(|(number, _)| *number);
        let text: String = lines.into_iter().map(|(_, line)| line).collect();
        print(&format!(
            "{text}65535 {}allow ip from any to any\n",
            columns(None)
        ))
    }

    fn print_json(&self, rules: &[FilterRule], counts: &Counts) -> Result<(), Failure> {
        let rows: Vec<serde_json::Value> = rules
            .iter()
            .map(|rule| {
                let (packets, bytes) = counts.get(&rule.id).copied().unwrap_or_default();
                serde_json::json!({
                    "number": rule.number,
                    "rule": grammar::text(rule, &self.state),
                    "packets": packets,
                    "bytes": bytes,
                })
            })
            .collect();
        let text = serde_json::to_string_pretty(&rows);
        print(&format!(
            "{}\n",
            text.map_err(|e| Failure::new(e.to_string()))?
        ))
    }

    /// Of all engines together.
    fn counts(&self) -> Result<Counts, Failure> {
        let mut counts = Counts::new();
        for answer in self.inquire(&Inquiry::FilterCounts)? {
            for line in answer.text.lines() {
                if let Ok((id, packets, bytes)) = serde_json::from_str::<(u64, u64, u64)>(line) {
                    let count = counts.entry(id).or_default();
                    *count = (count.0 + packets, count.1 + bytes);
                }
            }
        }
        Ok(counts)
    }

    fn inquire(&self, inquiry: &Inquiry) -> Result<Vec<inquiry::EngineAnswer>, Failure> {
        let answers = inquiry::inquire(self.settings, inquiry);
        answers.map_err(|error| Failure::new(error.to_string()))
    }

    fn add(&self, mut words: Words<'_>) -> Result<(), Failure> {
        let number = words.peek().and_then(|word| word.parse::<u32>().ok());
        if number.is_some() {
            words.next();
        }
        if number.is_some_and(|number| !(1..=NUMBER_MAX).contains(&number)) {
            return Err(words.wrong("a rule's number", &number.unwrap_or(0).to_string()));
        }
        if words.take("setfib") {
            return self.add_fib(words, number);
        }
        let Some(action) = grammar::action(&mut words)? else {
            let action = words.peek().unwrap_or_default();
            return Err(Failure::new(format!(
                "ipfw: the action \"{action}\" is not supported"
            )));
        };
        let number = match number {
            Some(number) => number,
            None => self.next_number()?,
        };
        let rule = grammar::body(&mut words, &self.state, number, action)?;
        let text = grammar::text(&rule, &self.state);
        self.set(vec![FilterChange::Add(rule)])?;
        match self.style.is_quiet {
            true => Ok(()),
            false => print(&format!("{number:05} {text}\n")),
        }
    }

    /// Behind the last rule of either kind.
    fn next_number(&self) -> Result<u32, Failure> {
        let rules = self.rules()?;
        let filter = rules.iter().map(|rule| rule.number);
        let last = self.state.rules.iter().map(|rule| rule.priority);
        let last = last.chain(filter).max().unwrap_or(0);
        Ok(((last / STEP + 1) * STEP).min(NUMBER_MAX))
    }

    fn set(&self, changes: Vec<FilterChange>) -> Result<(), Failure> {
        match self.target.ask(Query::SetFilter(changes))? {
            Answer::FilterChanged(_) => Ok(()),
            _ => Err(Failure::new("the keeper gave an answer that does not fit")),
        }
    }

    fn delete(&self, mut words: Words<'_>) -> Result<(), Failure> {
        let rules = self.rules()?;
        let (mut filter, mut tables) = (Vec::new(), Vec::new());
        while words.peek().is_some() {
            let number: u32 = words.parsed("delete")?;
            let meant = self
                .state
                .rules
                .iter()
                .filter(|rule| rule.priority == number);
            let before = tables.len();
            tables.extend(meant.cloned().map(Change::DelRule));
            if rules.iter().any(|rule| rule.number == number) {
                filter.push(FilterChange::Delete(number));
            } else if tables.len() == before {
                return Err(Failure::new(format!("ipfw: rule {number} not found")));
            }
        }
        if filter.is_empty() && tables.is_empty() {
            return Err(words.missing("the number of a rule"));
        }
        self.set_both(filter, tables)
    }

    fn flush(&self) -> Result<(), Failure> {
        let tables = self.state.rules.iter().cloned().map(Change::DelRule);
        self.set_both(vec![FilterChange::Flush], tables.collect())
    }

    fn set_both(&self, filter: Vec<FilterChange>, tables: Vec<Change>) -> Result<(), Failure> {
        if !filter.is_empty() {
            self.set(filter)?;
        }
        match tables.is_empty() {
            true => Ok(()),
            false => self.target.change(tables),
        }
    }

    fn zero(&self, mut words: Words<'_>) -> Result<(), Failure> {
        let mut ids = Vec::new();
        let is_all = words.peek().is_none();
        let rules = self.rules()?;
        while words.peek().is_some() {
            let number: u32 = words.parsed("zero")?;
            let before = ids.len();
            let meant = rules.iter().filter(|rule| rule.number == number);
            ids.extend(meant.map(|rule| rule.id));
            if ids.len() == before {
                return Err(Failure::new(format!("ipfw: rule {number} not found")));
            }
        }
        let ids = (!is_all).then_some(ids);
        self.inquire(&Inquiry::ZeroFilter(ids)).map(drop)
    }

    /// `add [N] setfib F ip from NET to any out`
    fn add_fib(&self, mut words: Words<'_>, number: Option<u32>) -> Result<(), Failure> {
        let number = match number {
            Some(number) => number,
            None => self.next_number()?,
        };
        let table = table_of(words.parsed("setfib")?)?;
        match words.next() {
            Some("ip" | "all" | "ip4" | "ipv4" | "ip6" | "ipv6") => {}
            Some(other) => {
                return Err(Failure::new(format!(
                    "ipfw: setfib for \"{other}\" alone is not supported: a table is chosen by addresses"
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
        let said = fib_text(&rule);
        self.target.change(vec![Change::AddRule(rule)])?;
        match self.style.is_quiet {
            true => Ok(()),
            false => print(&format!("{number:05} {said}\n")),
        }
    }
}

fn fib_text(rule: &RuleEntry) -> String {
    let net = |net: Option<(IpAddr, u8)>| net.map_or("any".to_owned(), net_text);
    let kind = if rule.is_v6() { "ip6" } else { "ip" };
    let (fib, from, to) = (fib_of(rule.table), net(rule.from), net(rule.to));
    format!("setfib {fib} {kind} from {from} to {to} out")
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
