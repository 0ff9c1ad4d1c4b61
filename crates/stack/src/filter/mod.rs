//! A packet filter: ordered rules, compiled to a classifier.
//!
//! Without rules a packet costs one test of an option. With rules each property of a packet
//! (addresses, ports, protocol, direction) names the set of rules that it satisfies; the first rule
//! of the intersection decides. Packets of one flow that all rules treat alike are looked up once
//! ([`cache`]).

mod cache;
mod classifier;
mod limits;
mod packet;
mod ranges;
mod rule;
mod states;
mod table;
mod terms;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use cache::{Cache, Key, MatchedRules};
use classifier::Classifier;
pub(crate) use limits::Board;
pub use limits::SharedLimits;
pub use packet::Packet;
pub use rule::{Addresses, End, FilterRule, Numbers, Term, Test};
pub use slipstack_terms::{
    FilterAction, FilterDirection, FilterKeep, FilterPart, LimitBy, UnreachCode,
};
use states::{Keeping, States};
pub use states::{StateRow, StateTimes};
pub use table::{PREFIXES_MAX, Prefix, Table};
use terms::Clauses;

use crate::time::Instant;
use slipstack_wire::protocol;

/// Rules of one filter.
pub const RULES_MAX: usize = 4096;
/// Id under which packets are counted that no rule has decided on. A rule's is greater.
pub const REST: u64 = 0;
/// Matches that are logged in a second; more are counted alone.
const LINES_PER_SECOND: u32 = 100;

/// Packets and bytes that a rule has matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
    /// Time of the last match.
    pub last: Instant,
}

impl Count {
    #[inline]
    fn add(&mut self, now: Instant, len: u32) {
        self.packets += 1;
        self.bytes += u64::from(len);
        self.last = now;
    }
}

/// The verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Drop,
    Reset,
    Unreach(UnreachCode),
}

/// A match of a rule that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    pub rule: u64,
    pub packet: Packet,
    /// Further matches of the rule are not logged.
    pub is_last: bool,
}

/// One rule, without the conditions that are in the classifier.
#[derive(Debug)]
struct Line {
    id: u64,
    number: u32,
    action: FilterAction,
    clauses: Option<Clauses>,
    keeping: Option<Keeping>,
    log: Option<u32>,
}

/// State that changes while packets pass.
#[derive(Debug, Default)]
struct Book {
    counts: Vec<Count>,
    states: States,
    /// Lines that each rule has logged.
    logs: Vec<u32>,
    logged: Vec<Logged>,
    /// The second in which lines are counted, and how many there were.
    second: (u64, u32),
}

/// Compiled rules with their counts.
#[derive(Debug)]
pub struct Filter {
    lines: Vec<Line>,
    /// Position of each rule, by its id.
    places: BTreeMap<u64, usize>,
    /// Rules before which known flows are looked up, in order.
    probing: Vec<usize>,
    tables: Vec<Arc<Table>>,
    classifier: Classifier,
    book: Book,
    cache: Cache,
}

impl Filter {
    /// Compiles rules, in ascending order of their numbers; those beyond [`RULES_MAX`] are left
    /// out. Rules refer to tables by index.
    pub fn new(rules: &[FilterRule], tables: Vec<Arc<Table>>) -> Filter {
        let rules = &rules[..rules.len().min(RULES_MAX)];
        let line = |rule: &FilterRule| Line {
            id: rule.id,
            number: rule.number,
            action: rule.action,
            clauses: Clauses::new(&rule.clauses),
            keeping: rule.state.map(|how| Keeping { rule: rule.id, how }),
            log: rule.log,
        };
        let is_probing = |rule: &FilterRule| {
            rule.is_enabled && (rule.state.is_some() || rule.action == FilterAction::CheckState)
        };
        let probing = rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| is_probing(rule));
        let ids = rules.iter().map(|rule| rule.id);
        Filter {
            lines: rules.iter().map(line).collect(),
            places: ids.zip(0..).collect(),
            probing: probing.map(|(at, _)| at).collect(),
            tables,
            classifier: Classifier::new(rules),
            book: Book {
                // With that of the packets that no rule decides on.
                counts: alloc::vec![Count::default(); rules.len() + 1],
                logs: rules.iter().map(|_| 0).collect(),
                ..Book::default()
            },
            cache: Cache::default(),
        }
    }

    /// Takes over the state of rules that existed before: counts, flows, lines of the log.
    pub fn keep(&mut self, before: Filter) {
        self.book.counts[self.lines.len()] = before.book.counts[before.lines.len()];
        for (id, &at) in &self.places {
            if let Some(&was) = before.places.get(id) {
                self.book.counts[at] = before.book.counts[was];
                self.book.logs[at] = before.book.logs[was];
            }
        }
        self.book.states = before.book.states;
        let (lines, places) = (&self.lines, &self.places);
        self.book.states.retain(|id| {
            let line = places.get(&id).and_then(|at| lines.get(*at));
            line.is_some_and(|line| line.keeping.is_some())
        });
        self.book.logged = before.book.logged;
    }

    /// Every rule's count by its id, and that of [`REST`].
    pub fn counts(&self) -> impl Iterator<Item = (u64, Count)> + '_ {
        let ids = self.lines.iter().map(|line| line.id).chain([REST]);
        ids.zip(self.book.counts.iter().copied())
    }

    /// Begins to count and to log again, or only to log; for some rules, or with `None` for all.
    pub fn zero(&mut self, ids: Option<&[u64]>, is_log_only: bool) {
        let lines = self.lines.iter().map(|line| line.id).chain([REST]);
        for (at, id) in lines.enumerate() {
            if ids.is_none_or(|ids| ids.contains(&id)) {
                if let Some(lines) = self.book.logs.get_mut(at) {
                    *lines = 0;
                }
                if !is_log_only {
                    self.book.counts[at] = Count::default();
                }
            }
        }
    }

    /// The known flows.
    pub fn states(&self, now: Instant) -> impl Iterator<Item = StateRow> + '_ {
        self.book.states.rows(now)
    }

    pub fn set_times(&mut self, times: StateTimes) {
        self.book.states.times = times;
    }

    /// Returns whether [`States::sweep`] is due.
    #[inline]
    pub(crate) fn is_sweep_due(&self, now: Instant) -> bool {
        self.book.states.is_sweep_due(now)
    }

    /// Returns when [`States::sweep`] is due even if no packet comes.
    #[inline]
    pub(crate) fn next_sweep(&self) -> Option<Instant> {
        self.book.states.next_sweep()
    }

    pub(crate) fn states_mut(&mut self) -> &mut States {
        &mut self.book.states
    }

    pub fn has_logged(&self) -> bool {
        !self.book.logged.is_empty()
    }

    /// The matches to be written to the log.
    pub fn take_logged(&mut self) -> Vec<Logged> {
        core::mem::take(&mut self.book.logged)
    }

    /// Returns the verdict of the first rule that decides; without one a packet passes.
    #[inline]
    pub fn verdict(&mut self, now: Instant, packet: &Packet) -> Verdict {
        let key = Key::of(packet);
        let Some(known) = self.cache.find(&key) else {
            return self.decide(now, packet, key);
        };
        for rule in known.rules() {
            if let Some(count) = self.book.counts.get_mut(usize::from(*rule)) {
                count.add(now, packet.len);
            }
        }
        known.verdict
    }

    /// Returns whether it is known that a plain packet passes, by its headers; it is counted then.
    /// `len` is that of the whole.
    #[inline]
    pub fn passes(
        &mut self,
        now: Instant,
        way: (FilterDirection, u16),
        ip: &[u8],
        len: usize,
    ) -> bool {
        let Some(key) = Key::of_plain(way.0, way.1, ip) else {
            return false;
        };
        let known = self.cache.find(&key);
        let Some(known) = known.filter(|it| it.verdict == Verdict::Pass) else {
            return false;
        };
        for rule in known.rules() {
            if let Some(count) = self.book.counts.get_mut(usize::from(*rule)) {
                count.add(now, len as u32);
            }
        }
        true
    }

    /// Returns whether [`Filter::passes`] would say yes; nothing is counted.
    pub fn knows(&self, way: (FilterDirection, u16), ip: &[u8]) -> bool {
        let key = Key::of_plain(way.0, way.1, ip);
        let known = key.and_then(|key| self.cache.find(&key));
        known.is_some_and(|it| it.verdict == Verdict::Pass)
    }

    #[inline(never)]
    fn decide(&mut self, now: Instant, packet: &Packet, key: Key) -> Verdict {
        let mut matched = MatchedRules::default();
        let verdict = self.walk(now, packet, &mut matched);
        self.cache.keep(key, verdict, &matched);
        verdict
    }

    fn walk(&mut self, now: Instant, packet: &Packet, matched: &mut MatchedRules) -> Verdict {
        let matching = self.classifier.matching(packet);
        let lines = &self.lines;
        let mut is_probed = false;
        let mut from = 0;
        loop {
            let found = matching.first(from);
            if !is_probed && self.is_probing_between(from, found) {
                is_probed = true;
                matched.spoil();
                let rule = self.book.states.find(now, packet);
                if let Some(&at) = rule.and_then(|id| self.places.get(&id)) {
                    match self.book.act(lines, (at, now), packet, matched) {
                        Step::Decided(verdict) => return verdict,
                        Step::On(next) => from = next,
                    }
                    continue;
                }
            }
            let Some((at, line)) = found.and_then(|at| Some((at, lines.get(at)?))) else {
                self.book.counts[lines.len()].add(now, packet.len);
                matched.add(lines.len());
                return Verdict::Pass;
            };
            from = at + 1;
            if let Some(clauses) = &line.clauses {
                if !clauses.is_of_flow {
                    matched.spoil();
                }
                if !clauses.hold(packet, &self.tables) {
                    continue;
                }
            }
            if let Some(keeping) = line.keeping {
                let added = self.book.states.add(now, packet, keeping);
                if added.is_err() {
                    self.book.counts[at].add(now, packet.len);
                    return Verdict::Drop;
                }
            }
            match self.book.act(lines, (at, now), packet, matched) {
                Step::Decided(verdict) => return verdict,
                Step::On(next) => from = next,
            }
        }
    }

    /// Returns whether known flows are looked up before the found rule, or before none.
    fn is_probing_between(&self, from: usize, found: Option<usize>) -> bool {
        let next = self.probing.partition_point(|at| *at < from);
        let next = self.probing.get(next);
        next.is_some_and(|at| found.is_none_or(|found| *at <= found))
    }

    /// Returns whether some rules know flows.
    pub(crate) fn is_stateful(&self) -> bool {
        !self.probing.is_empty()
    }

    /// Adds the flow of a connection that came from another stack, whose filter knew it, under the
    /// first stateful rule that its SYN would have matched. `setups`: that SYN from either side.
    pub fn adopt(&mut self, now: Instant, setups: &[Packet]) {
        if !self.is_stateful() {
            return;
        }
        for setup in setups {
            if let Some(keeping) = self.find_stateful(setup) {
                return self.book.states.adopt(now, setup, keeping);
            }
        }
    }

    /// Returns whether a packet that another stack has let in may come here, as far as limits are
    /// concerned; its flow is known then.
    pub fn admits(&mut self, now: Instant, packet: &Packet) -> bool {
        let begins = packet.protocol != protocol::TCP || packet.is_setup();
        if self.book.states.find(now, packet).is_some() || !begins {
            return true;
        }
        match self.find_stateful(packet) {
            Some(keeping) => self.book.states.add(now, packet, keeping).is_ok(),
            None => true,
        }
    }

    /// Returns the first rule that lets a packet in and keeps its flow, unless another rule decides
    /// before.
    fn find_stateful(&self, packet: &Packet) -> Option<Keeping> {
        let matching = self.classifier.matching(packet);
        let mut from = 0;
        while let Some(at) = matching.first(from) {
            from = at + 1;
            let line = &self.lines[at];
            let clauses = line.clauses.as_ref();
            if !clauses.is_none_or(|it| it.hold(packet, &self.tables)) {
                continue;
            }
            if line.keeping.is_some() {
                return line.keeping;
            }
            match line.action {
                FilterAction::Count | FilterAction::SetFib(_) | FilterAction::CheckState => {}
                FilterAction::SkipTo(number) => from = from.max(place_of(&self.lines, number)),
                _ => return None,
            }
        }
        None
    }
}

/// Position of the first rule of a number.
fn place_of(lines: &[Line], number: u32) -> usize {
    lines.partition_point(|line| line.number < number)
}

enum Step {
    Decided(Verdict),
    /// The index of the next rule.
    On(usize),
}

impl Book {
    /// A rule is for this packet.
    fn act(
        &mut self,
        lines: &[Line],
        (at, now): (usize, Instant),
        packet: &Packet,
        matched: &mut MatchedRules,
    ) -> Step {
        self.counts[at].add(now, packet.len);
        matched.add(at);
        let line = &lines[at];
        if let Some(max) = line.log {
            matched.spoil();
            self.log(now, (at, line.id), max, packet);
        }
        let verdict = match line.action {
            FilterAction::Allow => Verdict::Pass,
            FilterAction::Deny => Verdict::Drop,
            FilterAction::Reset => Verdict::Reset,
            FilterAction::Unreach(how) => Verdict::Unreach(how),
            FilterAction::Count | FilterAction::SetFib(_) | FilterAction::CheckState => {
                return Step::On(at + 1);
            }
            FilterAction::SkipTo(number) => return Step::On(place_of(lines, number).max(at + 1)),
        };
        Step::Decided(verdict)
    }

    fn log(&mut self, now: Instant, (at, rule): (usize, u64), max: u32, packet: &Packet) {
        let lines = &mut self.logs[at];
        if max != 0 && *lines >= max {
            return;
        }
        let second = now.as_millis() / 1000;
        if self.second.0 != second {
            self.second = (second, 0);
        }
        if self.second.1 >= LINES_PER_SECOND {
            return;
        }
        self.second.1 += 1;
        *lines = lines.saturating_add(1);
        self.logged.push(Logged {
            rule,
            packet: *packet,
            is_last: max != 0 && *lines == max,
        });
    }
}
