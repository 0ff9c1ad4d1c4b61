//! `list` and `show`: rules, their counts and last matches, and their known flows.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use slipstack_channel::control::net::{FilterAction, FilterCountRow, FilterRule, RuleEntry};

use super::Times;
use super::fib::{fib_text, has_words, is_counted_by};
use super::firewall::{Counts, Firewall};
use super::rules::numbers;
use crate::failure::Failure;
use crate::net::words::Words;
use crate::output::print;

/// The rule for everything else, and the id of its count.
pub const LAST: u32 = 65_535;
pub const REST: u64 = 0;
/// Width of a time as [`ctime`] writes it.
const TIME_WIDTH: usize = 24;

impl Firewall<'_> {
    /// `[N | N-M] …`; `set`: of this one alone.
    pub fn list(&mut self, mut words: Words<'_>, set: Option<u8>) -> Result<(), Failure> {
        let mut wanted = Vec::new();
        while let Some(word) = words.next() {
            wanted.push(numbers(word, &words, "list")?);
        }
        let filter = self.filter()?;
        let disabled = filter.disabled_sets;
        let rules = std::mem::take(&mut filter.rules);
        let is_meant = |number: u32| {
            let mut ranges = wanted.iter();
            wanted.is_empty() || ranges.any(|range: &RangeInclusive<u32>| range.contains(&number))
        };
        let has_sets = self.style.has_sets;
        let is_shown = |rule: &&FilterRule| {
            let is_enabled = disabled >> rule.set & 1 == 0;
            let is_of_set = set.is_none_or(|set| set == rule.set);
            is_meant(rule.number) && is_of_set && (is_enabled || has_sets)
        };
        // One that the network has no longer chooses nothing.
        let is_there = |rule: &&FilterRule| {
            let mut fibs = self.state.rules.iter();
            !matches!(rule.action, FilterAction::SetFib(_))
                || fibs.any(|entry| is_counted_by(entry, rule))
        };
        let shown = rules.iter().filter(is_shown).filter(is_there);
        let shown: Vec<&FilterRule> = shown.collect();
        let is_uncounted = |entry: &RuleEntry| {
            has_words(entry) && !shown.iter().any(|rule| is_counted_by(entry, rule))
        };
        let fibs: Vec<RuleEntry> = self
            .state
            .rules
            .iter()
            .filter(|entry| set.is_none() && is_meant(entry.priority) && is_uncounted(entry))
            .cloned()
            .collect();
        if let Some(range) = wanted.iter().find(|range| !self.has(range, &shown)) {
            return Err(Failure::new(format!(
                "ipfw: rule {} does not exist",
                range.start()
            )));
        }
        let has_counts =
            self.style.has_counts || self.style.is_json || self.style.times != Times::None;
        let counts = match has_counts {
            true => self.counts()?,
            false => Counts::new(),
        };
        if self.style.is_json {
            return self.print_json(&shown, &counts, &fibs);
        }
        let mut text = String::new();
        if !self.style.has_states_alone {
            let has_last = set.is_none_or(|set| set == 31) && is_meant(LAST);
            text = self.rules_text((&shown, disabled), &counts, &fibs, has_last);
        }
        if self.style.has_states || self.style.has_states_alone {
            text.push_str(&self.states_text(&rules)?);
        }
        print(&text)
    }

    fn has(&self, range: &RangeInclusive<u32>, shown: &[&FilterRule]) -> bool {
        range.contains(&LAST)
            || shown.iter().any(|rule| range.contains(&rule.number))
            || self
                .state
                .rules
                .iter()
                .any(|rule| range.contains(&rule.priority))
    }

    fn rules_text(
        &self,
        (shown, disabled): (&[&FilterRule], u32),
        counts: &Counts,
        fibs: &[RuleEntry],
        has_last: bool,
    ) -> String {
        let now = Clock::now();
        let columns = |count: Option<&FilterCountRow>, set: u8| {
            let mut text = String::new();
            if self.style.has_counts {
                let (packets, bytes) = count.map_or((0, 0), |it| (it.packets, it.bytes));
                let _ = write!(text, "{packets:>10} {bytes:>14} ");
            }
            let last = count.and_then(|it| now.seconds_of(it.last_ns));
            match (self.style.times, last) {
                (Times::None, _) => {}
                (Times::Seconds, last) => {
                    let _ = write!(text, "{:>10} ", last.unwrap_or(0));
                }
                (Times::Text, Some(last)) => {
                    let _ = write!(text, "{} ", ctime(last));
                }
                (Times::Text, None) => {
                    let _ = write!(text, "{:TIME_WIDTH$} ", "");
                }
            }
            if self.style.has_sets {
                let _ = write!(text, "set {set} ");
            }
            text
        };
        let writer = self.writer();
        let filter = shown.iter().map(|rule| {
            let sign = match disabled >> rule.set & 1 {
                0 => "",
                _ => "# DISABLED ",
            };
            let columns = columns(counts.get(&rule.id), rule.set);
            let line = format!("{sign}{:05} {columns}{}\n", rule.number, writer.text(rule));
            (rule.number, line)
        });
        let fibs = fibs.iter().map(|rule| {
            let columns = columns(None, 0);
            let line = format!("{:05} {columns}{}\n", rule.priority, fib_text(rule));
            (rule.priority, line)
        });
        let mut lines: Vec<(u32, String)> = fibs.chain(filter).collect();
        lines.sort_by_key(|(number, _)| *number);
        let mut text: String = lines.into_iter().map(|(_, line)| line).collect();
        if has_last {
            let columns = columns(counts.get(&REST), 31);
            let _ = writeln!(text, "{LAST} {columns}allow ip from any to any");
        }
        text
    }

    /// With the rules of the network that choose tables, which the filter does not count.
    fn print_json(
        &self,
        rules: &[&FilterRule],
        counts: &Counts,
        fibs: &[RuleEntry],
    ) -> Result<(), Failure> {
        let now = Clock::now();
        let writer = self.writer();
        let rows = rules.iter().map(|rule| {
            let count = counts.get(&rule.id);
            let (packets, bytes) = count.map_or((0, 0), |it| (it.packets, it.bytes));
            serde_json::json!({
                "number": rule.number,
                "set": rule.set,
                "rule": writer.text(rule),
                "packets": packets,
                "bytes": bytes,
                "last_match": count.and_then(|it| now.seconds_of(it.last_ns)),
            })
        });
        let fibs = fibs.iter().map(|rule| {
            serde_json::json!({
                "number": rule.priority,
                "set": 0,
                "rule": fib_text(rule),
                "packets": 0,
                "bytes": 0,
                "last_match": null,
            })
        });
        let mut rows: Vec<serde_json::Value> = rows.chain(fibs).collect();
        rows.sort_by_key(|row| row["number"].as_u64());
        let text = serde_json::to_string_pretty(&rows);
        print(&format!(
            "{}\n",
            text.map_err(|e| Failure::new(e.to_string()))?
        ))
    }
}

/// The two clocks at one moment.
struct Clock {
    monotonic: Duration,
    since_epoch: Duration,
}

impl Clock {
    fn now() -> Clock {
        let now = clock_gettime(ClockId::Monotonic);
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Clock {
            monotonic: Duration::new(now.tv_sec as u64, now.tv_nsec as u32),
            since_epoch: since_epoch.unwrap_or_default(),
        }
    }

    /// Seconds since 1970 of a time of CLOCK_MONOTONIC; `None`: of none.
    fn seconds_of(&self, ns: u64) -> Option<u64> {
        let ago = self.monotonic.saturating_sub(Duration::from_nanos(ns));
        (ns != 0).then(|| self.since_epoch.saturating_sub(ago).as_secs())
    }
}

/// A time as ctime() writes it, in UTC.
pub fn ctime(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March, in periods of 400 from the year 0 on.
    let from = days + 719_468;
    let (era, day_of_era) = (from / 146_097, from % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = (month + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    format!(
        "{} {} {day:>2} {:02}:{:02}:{:02} {year}",
        DAYS[(days % 7) as usize],
        MONTHS[month as usize],
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}
