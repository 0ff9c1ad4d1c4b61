//! The packet filter: ordered rules, tables of prefixes, and changes of them.

mod change;
mod table;
#[cfg(test)]
mod tests;
mod transfer;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use slipstack_terms::{FilterAction, FilterDirection, FilterKeep, FilterPart};

pub use change::{
    FilterChange, FilterError, FilterFault, FilterWanted, TableChange, change_filter,
};
pub use table::{FilterTable, TableEntry};
#[cfg(test)]
use table::{read_prefixes, write_prefixes};
pub use transfer::{FilterHead, FilterReceived, ReceivedTable, TableHead};

/// Rules of one filter.
pub const FILTER_RULES_MAX: usize = 4096;
/// Prefixes of all tables together.
pub const FILTER_PREFIXES_MAX: usize = 131_072;
/// FreeBSD's `net.inet.ip.fw.tables_max`.
pub const FILTER_TABLES_MAX: usize = 128;
/// The set of the rule for everything else: always enabled, and never flushed.
pub const FILTER_SET_MAX: u8 = 31;

/// One end of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FilterEnd {
    /// Networks; with `is_me` empty means all addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nets: Vec<(IpAddr, u8)>,
    /// The stack's own addresses, whatever they are.
    #[serde(skip_serializing_if = "is_false")]
    pub is_me: bool,
    /// The stack's own addresses of IPv6, whatever they are.
    #[serde(skip_serializing_if = "is_false")]
    pub is_me6: bool,
    /// Tables, each with the value that an address has to have in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<(String, Option<u32>)>,
    /// The complement.
    #[serde(skip_serializing_if = "is_false")]
    pub is_not: bool,
    /// From and to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<(u16, u16)>,
    #[serde(skip_serializing_if = "is_false")]
    pub is_not_ports: bool,
}

impl FilterEnd {
    /// Returns whether it matches every address.
    pub fn is_any(&self) -> bool {
        self.nets.is_empty() && !self.is_me && !self.is_me6 && self.tables.is_empty()
    }
}

fn is_false(it: &bool) -> bool {
    !it
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilterTest {
    Protocol(u8),
    V6(bool),
    /// Addresses alone.
    Source(FilterEnd),
    Destination(FilterEnd),
    SourcePort(Vec<(u16, u16)>),
    DestinationPort(Vec<(u16, u16)>),
    Direction(FilterDirection),
    /// The packet arrives or leaves by this link; 0 = the first port's own.
    Via(u16),
    Part(FilterPart),
    /// Bits of a TCP segment that are set, and bits that are not.
    TcpFlags {
        set: u8,
        clear: u8,
    },
    IcmpTypes(Vec<u8>),
    Icmp6Types(Vec<u8>),
    /// A fragment that is not the first.
    Fragment,
    /// TTL, or hop limit.
    Ttl(Vec<(u16, u16)>),
    /// Length of the IP packet.
    Len(Vec<(u16, u16)>),
}

/// A condition, or its contrary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterTerm {
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_not: bool,
    pub test: FilterTest,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterRule {
    /// Assigned by the keeper: identifies a rule, for its counts.
    pub id: u64,
    /// 0 in a change: behind the last one.
    pub number: u32,
    pub action: FilterAction,
    /// IP protocol number.
    pub protocol: Option<u8>,
    pub is_v6: Option<bool>,
    pub from: FilterEnd,
    pub to: FilterEnd,
    pub direction: Option<FilterDirection>,
    /// 0 = the device's own link.
    pub link: Option<u16>,
    pub part: Option<FilterPart>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub set: u8,
    /// Further conditions: of each list one has to hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clauses: Vec<Vec<FilterTerm>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<FilterKeep>,
    /// Matches are logged, so many until the log is reset; 0 = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<u32>,
    /// The operator's comment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

impl FilterRule {
    /// For every packet.
    pub fn new(number: u32, action: FilterAction) -> FilterRule {
        FilterRule {
            id: 0,
            number,
            action,
            protocol: None,
            is_v6: None,
            from: FilterEnd::default(),
            to: FilterEnd::default(),
            direction: None,
            link: None,
            part: None,
            set: 0,
            clauses: Vec::new(),
            keep: None,
            log: None,
            comment: String::new(),
        }
    }

    /// The tables that it names.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        let terms = self.clauses.iter().flatten();
        let ends = terms.filter_map(|term| match &term.test {
            FilterTest::Source(end) | FilterTest::Destination(end) => Some(end),
            _ => None,
        });
        let ends = [&self.from, &self.to].into_iter().chain(ends);
        ends.flat_map(|end| end.tables.iter().map(|(name, _)| name.as_str()))
    }
}

fn is_zero(it: &u8) -> bool {
    *it == 0
}

/// The whole configuration of the packet filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterState {
    pub rules: Vec<FilterRule>,
    /// As bits; their rules are not evaluated.
    #[serde(default)]
    pub disabled_sets: u32,
    /// In the order of their names. They are large, and transferred separately.
    #[serde(skip)]
    pub tables: Vec<FilterTable>,
}

impl FilterState {
    pub fn is_enabled(&self, rule: &FilterRule) -> bool {
        self.disabled_sets >> rule.set & 1 == 0
    }

    /// Returns whether both are equal except for the ids.
    pub fn is_like(&self, other: &FilterState) -> bool {
        let without_id = |rule: &FilterRule| FilterRule {
            id: 0,
            ..rule.clone()
        };
        let rules = self.rules.iter().map(without_id);
        let tables = self
            .tables
            .iter()
            .map(|table| (&table.name, &table.entries));
        self.disabled_sets == other.disabled_sets
            && rules.eq(other.rules.iter().map(without_id))
            && tables.eq(other
                .tables
                .iter()
                .map(|table| (&table.name, &table.entries)))
    }

    pub fn find_table(&self, name: &str) -> Option<&FilterTable> {
        self.tables.iter().find(|table| table.name == name)
    }
}
