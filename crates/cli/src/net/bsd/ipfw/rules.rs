//! `add`, `delete`, `flush`, `zero` and `resetlog`.

use std::io::IsTerminal as _;
use std::ops::RangeInclusive;

use slipstack_channel::control::net::{Change, FILTER_SET_MAX, FilterChange, FilterRule, Inquiry};

use super::fib::network_rules;
use super::firewall::Firewall;
use super::grammar;
use super::list::{LAST, REST};
use crate::failure::Failure;
use crate::net::words::Words;
use crate::output::print;

/// The distance of rules that are given no number.
const STEP: u32 = 100;
/// The last number is the rule for everything else.
const NUMBER_MAX: u32 = 65_534;

/// `100` or `100-200`
pub fn numbers(word: &str, words: &Words<'_>, of: &str) -> Result<RangeInclusive<u32>, Failure> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err(words.wrong(of, word)),
    }
}

impl Firewall<'_> {
    pub fn add(&mut self, mut words: Words<'_>) -> Result<(), Failure> {
        let number = words.peek().and_then(|word| word.parse::<u32>().ok());
        if number.is_some() {
            words.next();
        }
        if number.is_some_and(|number| !(1..=NUMBER_MAX).contains(&number)) {
            return Err(words.wrong("a rule's number", &number.unwrap_or(0).to_string()));
        }
        let number = match number {
            Some(number) => number,
            None => self.next_number()?,
        };
        let rule = grammar::rule(&mut words, &self.state, number)?;
        let text = self.writer().text(&rule);
        let shown = match self.style.has_sets && rule.set != 0 {
            true => format!("set {} {text}", rule.set),
            false => text,
        };
        let said = format!("{number:05} {shown}\n");
        let chosen = network_rules(&rule)?;
        if self.is_repeated(&rule)? {
            return self.say(&said);
        }
        let network = chosen.iter().cloned().map(Change::AddRule).collect();
        self.change(vec![FilterChange::Add(rule.clone())], network)?;
        if self.batch.is_some() {
            self.filter()?.rules.push(rule);
            self.state.rules.extend(chosen);
        }
        self.say(&said)
    }

    /// Returns whether a script gives the next engine what it has given the first: all of a device
    /// have one filter.
    fn is_repeated(&mut self, rule: &FilterRule) -> Result<bool, Failure> {
        if !self.is_for_next_engine() {
            return Ok(false);
        }
        let is_it = |known: &FilterRule| {
            FilterRule {
                id: rule.id,
                ..known.clone()
            } == *rule
        };
        Ok(self.filter()?.rules.iter().any(is_it))
    }

    /// Behind the last rule of either kind.
    fn next_number(&mut self) -> Result<u32, Failure> {
        let last = self.state.rules.iter().map(|rule| rule.priority).max();
        let filter = self.filter()?.rules.iter();
        let last = filter
            .map(|rule| rule.number)
            .chain(last)
            .max()
            .unwrap_or(0);
        Ok(((last / STEP + 1) * STEP).min(NUMBER_MAX))
    }

    /// `delete [set N] [N | N-M] …`; `set`: of this one alone.
    pub fn delete(&mut self, mut words: Words<'_>, set: Option<u8>) -> Result<(), Failure> {
        if set.is_none() && words.take("set") {
            let set = words.parsed("set")?;
            words.end()?;
            return self.delete_set(set, true);
        }
        let (mut filter, mut network) = (Vec::new(), Vec::new());
        while let Some(word) = words.next() {
            let range = numbers(word, &words, "delete")?;
            let fibs = self.state.rules.iter();
            let fibs = fibs.filter(|rule| set.is_none() && range.contains(&rule.priority));
            let fibs: Vec<Change> = fibs.cloned().map(Change::DelRule).collect();
            let is_meant = |rule: &&FilterRule| {
                range.contains(&rule.number) && set.is_none_or(|set| set == rule.set)
            };
            let rules = self.filter()?.rules.iter().filter(is_meant);
            let mut these: Vec<u32> = rules.map(|rule| rule.number).collect();
            these.dedup();
            if fibs.is_empty() && these.is_empty() && self.is_for_next_engine() {
                continue;
            }
            if fibs.is_empty() && these.is_empty() {
                return Err(Failure::new(format!("ipfw: rule {word} not found")));
            }
            network.extend(fibs);
            filter.extend(these.into_iter().map(FilterChange::Delete));
            self.state
                .rules
                .retain(|rule| !range.contains(&rule.priority));
            let left = &mut self.filter()?.rules;
            left.retain(|rule| !range.contains(&rule.number));
        }
        if filter.is_empty() && network.is_empty() && !self.is_for_next_engine() {
            return Err(words.missing("the number of a rule"));
        }
        self.change(filter, network)
    }

    pub fn delete_set(&mut self, set: u8, must_be: bool) -> Result<(), Failure> {
        if set > FILTER_SET_MAX {
            return Err(Failure::new(format!(
                "ipfw: a set is a number from 0 to {FILTER_SET_MAX}"
            )));
        }
        let rules = &mut self.filter()?.rules;
        let before = rules.len();
        rules.retain(|rule| rule.set != set);
        match (rules.len() < before, must_be) {
            (true, _) => self.change(vec![FilterChange::DeleteSet(set)], Vec::new()),
            (false, true) => Err(Failure::new(format!("ipfw: set {set} has no rules"))),
            (false, false) => Ok(()),
        }
    }

    pub fn flush(&mut self, words: Words<'_>, set: Option<u8>) -> Result<(), Failure> {
        words.end()?;
        if !self.is_sure()? {
            return Ok(());
        }
        if let Some(set) = set {
            return self.delete_set(set, false);
        }
        let network = self.state.rules.drain(..).map(Change::DelRule).collect();
        let rules = &mut self.filter()?.rules;
        rules.retain(|rule| rule.set == FILTER_SET_MAX);
        self.change(vec![FilterChange::Flush], network)?;
        self.say("Flushed all rules.\n")
    }

    /// Asks for confirmation at a terminal.
    fn is_sure(&self) -> Result<bool, Failure> {
        let is_asked = !(self.style.is_forced || self.style.is_quiet || self.style.is_test)
            && self.batch.is_none()
            && std::io::stdin().is_terminal();
        if !is_asked {
            return Ok(true);
        }
        print("Are you sure? [yn] ")?;
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        read.map_err(|error| Failure::new(format!("ipfw: {error}")))?;
        Ok(answer.trim().eq_ignore_ascii_case("y"))
    }

    /// Begins to count and to log again, or only to log.
    pub fn zero(
        &mut self,
        mut words: Words<'_>,
        set: Option<u8>,
        is_log_only: bool,
    ) -> Result<(), Failure> {
        let what = if is_log_only { "resetlog" } else { "zero" };
        let is_all = words.peek().is_none() && set.is_none();
        let (mut ids, mut said) = (Vec::new(), String::new());
        let mut wanted = Vec::new();
        while let Some(word) = words.next() {
            wanted.push((word, numbers(word, &words, what)?));
        }
        let of_set = |rule: &&FilterRule| set.is_none_or(|set| set == rule.set);
        let rules = &self.filter()?.rules;
        for (word, range) in &wanted {
            let meant = rules.iter().filter(of_set);
            let meant = meant.filter(|rule| range.contains(&rule.number));
            let before = ids.len();
            ids.extend(meant.map(|rule| rule.id));
            if set.is_none() && range.contains(&LAST) {
                ids.push(REST);
            }
            if ids.len() == before {
                return Err(Failure::new(format!("ipfw: rule {word} not found")));
            }
            said.push_str(&match is_log_only {
                true => format!("Entry {word} logging count reset.\n"),
                false => format!("Entry {word} cleared.\n"),
            });
        }
        if wanted.is_empty() {
            ids.extend(rules.iter().filter(of_set).map(|rule| rule.id));
            said = match is_log_only {
                true => "Logging counts reset.\n".to_owned(),
                false => "Accounting cleared.\n".to_owned(),
            };
        }
        if !self.style.is_test {
            let ids = (!is_all).then_some(ids);
            self.inquire(&Inquiry::ZeroFilter { ids, is_log_only })?;
        }
        self.say(&said)
    }
}
