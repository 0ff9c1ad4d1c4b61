//! Routing tables and the rules that choose among them, of one family (RFC 1812 5.2.4; Linux's `ip
//! rule` and `ip route`).
//!
//! A lookup goes through the rules in the order of their priority. Each rule that applies names a
//! table; in it the longest prefix wins, among equals the smallest metric. If a table has no match
//! the next rule is tried.
//!
//! Nothing here is on the path of a segment: connections keep their next hop.

mod index;
mod query;
mod rules;

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use index::Index;
pub use query::{Choice, Query};
pub use rules::Rule;
use rules::Step;
use slipstack_network::{RuleAction, STANDARD_TABLES};

/// Table and priority as a fresh Linux has them.
pub const LOCAL: u32 = 255;
pub const MAIN: u32 = 254;
pub const DEFAULT: u32 = 253;
const PRIORITY_LOCAL: u32 = 0;
const PRIORITY_MAIN: u32 = 32_766;
const PRIORITY_DEFAULT: u32 = 32_767;

/// Routes of all tables together, and rules; more are refused.
pub const ROUTES_MAX: usize = 65_536;
pub const RULES_MAX: usize = 16_384;
/// From so many routes on a table has an index.
const INDEXED_FROM: usize = 16;

/// The addresses that begin like `addr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// From the top bit; bits beyond `len` are zero.
    bits: u128,
    len: u8,
}

impl Prefix {
    /// 0.0.0.0/0 or ::/0.
    pub const ALL: Prefix = Prefix { bits: 0, len: 0 };

    /// A length beyond the family's is taken as a host's.
    pub fn new(ip: IpAddr, len: u8) -> Prefix {
        let len = len.min(if ip.is_ipv4() { 32 } else { 128 });
        Prefix {
            bits: bits(ip) & mask(len),
            len,
        }
    }

    /// The one address.
    pub fn host(ip: IpAddr) -> Prefix {
        Prefix::new(ip, 128)
    }

    pub const fn prefix_len(&self) -> u8 {
        self.len
    }

    /// Returns the first address of the prefix, of the family that it is used in.
    pub fn address(&self, is_v6: bool) -> IpAddr {
        if is_v6 {
            Ipv6Addr::from_bits(self.bits).into()
        } else {
            Ipv4Addr::from_bits((self.bits >> 96) as u32).into()
        }
    }

    pub const fn is_all(&self) -> bool {
        self.len == 0
    }

    fn contains(&self, bits: u128) -> bool {
        bits & mask(self.len) == self.bits
    }
}

/// An address of either family, from the top bit.
fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

/// The target of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One of our own addresses.
    Local,
    Broadcast,
    /// The destination is a neighbour.
    OnLink,
    /// The gateway is.
    Via(IpAddr),
    /// The route refuses: there is no route, whatever later rules say.
    Unreachable,
    /// A route or a rule refuses in another way.
    Refused(RuleAction),
    /// The next rule decides.
    Throw,
}

impl Target {
    const fn is_refusal(self) -> bool {
        matches!(self, Target::Unreachable | Target::Refused(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub prefix: Prefix,
    pub target: Target,
    /// The smaller one wins among routes of one prefix.
    pub metric: u32,
    /// The source address of packets whose sender has not selected one.
    pub source: Option<IpAddr>,
    /// Largest packet, if it is smaller than the link's.
    pub mtu: Option<u16>,
    /// The link that it leads by; 0 = the device's own.
    pub link: u16,
}

impl Entry {
    pub const fn new(prefix: Prefix, target: Target) -> Entry {
        Entry {
            prefix,
            target,
            metric: 0,
            source: None,
            mtu: None,
            link: 0,
        }
    }
}

/// Routes of one table: those of one prefix length together, the longest first.
#[derive(Clone, Debug, Default)]
pub struct Table {
    lengths: Vec<Length>,
    /// Index of these routes, built once they are all there; `None`: they have changed since, or
    /// are few.
    index: Option<Index>,
}

#[derive(Clone, Debug)]
struct Length {
    len: u8,
    /// In the order of prefix and metric.
    entries: Vec<Entry>,
}

impl Length {
    /// The first route of the prefix of this length that an address begins with.
    fn find(&self, address: u128) -> Option<usize> {
        let wanted = address & mask(self.len);
        let at = self
            .entries
            .partition_point(|entry| entry.prefix.bits < wanted);
        let found = self.entries.get(at);
        found.is_some_and(|e| e.prefix.bits == wanted).then_some(at)
    }
}

impl Table {
    /// `false`: a route of this prefix and metric is there.
    fn add(&mut self, entry: Entry) -> bool {
        self.index = None;
        let len = entry.prefix.len;
        let at = match self.lengths.binary_search_by(|l| len.cmp(&l.len)) {
            Ok(at) => at,
            Err(at) => {
                let entries = Vec::new();
                self.lengths.insert(at, Length { len, entries });
                at
            }
        };
        let entries = &mut self.lengths[at].entries;
        let order = |e: &Entry| (e.prefix.bits, e.metric);
        match entries.binary_search_by_key(&order(&entry), order) {
            Ok(_) => false,
            Err(at) => {
                entries.insert(at, entry);
                true
            }
        }
    }

    fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) {
        self.index = None;
        for length in &mut self.lengths {
            length.entries.retain(&mut keep);
        }
        self.lengths.retain(|length| !length.entries.is_empty());
    }

    /// The longest prefix, of that the smallest metric.
    pub fn find(&self, dst: IpAddr) -> Option<&Entry> {
        let dst = bits(dst);
        if let Some(index) = &self.index {
            let (length, at) = index.find(dst)?;
            return self.lengths[usize::from(length)].entries.get(at as usize);
        }
        let mut lengths = self.lengths.iter();
        lengths.find_map(|length| length.entries.get(length.find(dst)?))
    }

    /// Makes look-ups as fast as few routes would.
    fn build_index(&mut self) {
        let count: usize = self.lengths.iter().map(|it| it.entries.len()).sum();
        self.index = (count > INDEXED_FROM).then(|| Index::of(&self.lengths));
    }

    fn find_for(&self, query: &Query) -> Option<&Entry> {
        match query.choice.link {
            0 => self.find(query.dst),
            _ => self.find_by(query.dst, &query.choice),
        }
    }

    /// Finds the entry among the routes by the chosen link; own addresses are on every link.
    fn find_by(&self, dst: IpAddr, choice: &Choice) -> Option<&Entry> {
        let dst = bits(dst);
        self.lengths.iter().find_map(|length| {
            let wanted = dst & mask(length.len);
            let at = length
                .entries
                .partition_point(|entry| entry.prefix.bits < wanted);
            let alike = length.entries[at..].iter();
            let mut alike = alike.take_while(|entry| entry.prefix.bits == wanted);
            alike.find(|entry| choice.admits(entry.link) || entry.target == Target::Local)
        })
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.lengths.iter().flat_map(|length| &length.entries)
    }
}

/// Reason why a change was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FibError {
    Exists,
    /// [`ROUTES_MAX`] or [`RULES_MAX`].
    Full,
}

/// All tables and rules.
#[derive(Clone, Debug)]
pub struct Fib {
    /// In the order of their numbers.
    tables: Vec<(u32, Table)>,
    /// The networks that every table has beside the standard ones.
    connected: Option<Table>,
    /// In the order of priority.
    rules: Vec<Rule>,
    /// The rules with those joined that differ in their sources alone; `None`: they have changed
    /// since.
    steps: Option<Vec<Step>>,
    /// Some rule selects by protocol or ports.
    asks_carried: bool,
    /// Gateways of all routes, each once, in order.
    gateways: Vec<IpAddr>,
    count: usize,
}

impl Default for Fib {
    fn default() -> Self {
        Fib {
            tables: Vec::new(),
            connected: None,
            rules: alloc::vec![
                Rule::new(PRIORITY_LOCAL, LOCAL),
                Rule::new(PRIORITY_MAIN, MAIN),
                Rule::new(PRIORITY_DEFAULT, DEFAULT),
            ],
            steps: None,
            asks_carried: false,
            gateways: Vec::new(),
            count: 0,
        }
    }
}

impl Fib {
    pub fn table(&self, id: u32) -> Option<&Table> {
        let at = self.tables.binary_search_by_key(&id, |(of, _)| *of).ok()?;
        self.tables.get(at).map(|(_, table)| table)
    }

    pub fn tables(&self) -> impl Iterator<Item = (u32, &Table)> {
        self.tables.iter().map(|(id, table)| (*id, table))
    }

    pub fn add(&mut self, table: u32, entry: Entry) -> Result<(), FibError> {
        if self.count == ROUTES_MAX {
            return Err(FibError::Full);
        }
        let at = match self.tables.binary_search_by_key(&table, |(of, _)| *of) {
            Ok(at) => at,
            Err(at) => {
                self.tables.insert(at, (table, Table::default()));
                at
            }
        };
        if !self.tables[at].1.add(entry) {
            return Err(FibError::Exists);
        }
        self.count += 1;
        self.note_gateway(entry.target);
        Ok(())
    }

    fn find_gateways(&mut self) {
        self.gateways.clear();
        let tables = core::mem::take(&mut self.tables);
        for entry in tables.iter().flat_map(|(_, table)| table.entries()) {
            self.note_gateway(entry.target);
        }
        self.tables = tables;
    }

    fn note_gateway(&mut self, target: Target) {
        if let Target::Via(gateway) = target
            && let Err(at) = self.gateways.binary_search(&gateway)
        {
            self.gateways.insert(at, gateway);
        }
    }

    /// Returns whether a route names it as gateway: it is then a neighbour, whatever its network.
    pub fn is_gateway(&self, ip: IpAddr) -> bool {
        self.gateways.binary_search(&ip).is_ok()
    }

    /// Returns whether it is on the link by some table: a gateway, or of a network that needs none.
    pub fn is_neighbour(&self, ip: IpAddr) -> bool {
        let is_direct = |table: &Table| {
            let found = table.find(ip);
            found.is_some_and(|entry| entry.target == Target::OnLink)
        };
        self.is_gateway(ip) || self.tables.iter().any(|(_, table)| is_direct(table))
    }

    /// Puts these networks into every table beside the standard ones, also into those without
    /// routes. A route of a table goes before one of the same prefix.
    pub fn connect_all(&mut self, networks: impl Iterator<Item = Entry>) {
        let table = self.connected.get_or_insert_default();
        for network in networks.take(ROUTES_MAX) {
            // Two addresses in one network need one route.
            table.add(network);
        }
    }

    /// Rebuilds the index after routes were added or removed.
    pub fn build_index(&mut self) {
        let tables = self.tables.iter_mut().map(|(_, table)| table);
        for table in tables.chain(&mut self.connected) {
            table.build_index();
        }
        self.steps = Some(rules::join(&self.rules));
        self.asks_carried = self.rules.iter().any(Rule::asks_carried);
    }

    /// Keeps the routes of a table for which `keep` returns true; returns how many were removed.
    pub fn retain(&mut self, table: u32, keep: impl FnMut(&Entry) -> bool) -> usize {
        let Some((_, table)) = self.tables.iter_mut().find(|(of, _)| *of == table) else {
            return 0;
        };
        let before = table.entries().count();
        table.retain(keep);
        let gone = before - table.entries().count();
        self.count -= gone;
        self.find_gateways();
        gone
    }

    /// Adds a rule after those of the same priority.
    pub fn add_rule(&mut self, rule: Rule) -> Result<(), FibError> {
        if self.rules.contains(&rule) {
            return Err(FibError::Exists);
        }
        if self.rules.len() == RULES_MAX {
            return Err(FibError::Full);
        }
        self.steps = None;
        let at = self.rules.partition_point(|r| r.priority <= rule.priority);
        self.rules.insert(at, rule);
        Ok(())
    }

    /// Many at once, which differ.
    pub fn add_rules(&mut self, rules: impl Iterator<Item = Rule>) {
        self.steps = None;
        let room = RULES_MAX.saturating_sub(self.rules.len());
        self.rules.extend(rules.take(room));
        self.rules.sort_by_key(|rule| rule.priority);
    }

    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns whether the destination alone decides.
    pub fn is_by_destination(&self) -> bool {
        let others = |rule: &Rule| !rule.from.is_all() || rule.asks_more();
        !self.rules.iter().any(others)
    }

    /// Returns whether packets of one socket between two addresses may go different ways, by their
    /// ports.
    #[inline]
    pub fn asks_carried(&self) -> bool {
        self.asks_carried
    }

    /// `None`: there is no route.
    pub fn find(&self, query: &Query) -> Option<Entry> {
        match self.decide(query) {
            Some(found) => (!found.target.is_refusal()).then_some(*found),
            // ip_route_output_key(): with a link selected and no route, the destination is on that
            // link.
            None if query.choice.link != 0 => Some(Entry {
                link: query.choice.link - 1,
                ..Entry::new(Prefix::host(query.dst), Target::OnLink)
            }),
            None => None,
        }
    }

    /// Returns the route or rule that refuses the destination, if one does.
    pub fn find_refusal(&self, query: &Query) -> Option<Target> {
        let found = self.decide(query)?.target;
        found.is_refusal().then_some(found)
    }

    /// Returns the longest match of a table with the networks that it has beside its routes.
    fn look(&self, table: u32, query: &Query) -> Option<&Entry> {
        let own = self.table(table).and_then(|it| it.find_for(query));
        let connected = self.connected.as_ref();
        let Some(connected) = connected.filter(|_| !STANDARD_TABLES.contains(&table)) else {
            return own;
        };
        match (own, connected.find_for(query)) {
            (Some(own), Some(near)) if own.prefix.len < near.prefix.len => Some(near),
            (own, near) => own.or(near),
        }
    }

    fn decide(&self, query: &Query) -> Option<&Entry> {
        let choice = &query.choice;
        let look = |table| {
            let entry = self.look(table, query)?;
            (entry.target != Target::Throw).then_some(entry)
        };
        if choice.table != 0 {
            return look(LOCAL).or_else(|| look(choice.table.into()));
        }
        match &self.steps {
            Some(steps) => steps.iter().find_map(|step| match step.rule_for(query) {
                Some(rule) => rule.refusal().or_else(|| look(rule.table)),
                None => look(step.table_for(query)?),
            }),
            None => {
                let mut applying = self.rules.iter().filter(|rule| rule.applies(query));
                applying.find_map(|rule| rule.refusal().or_else(|| look(rule.table)))
            }
        }
    }
}

#[cfg(test)]
mod tests;
