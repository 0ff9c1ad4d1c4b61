//! Changes of the packet filter, applied whole or not at all.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use slipstack_terms::FilterAction;

use super::table::masked;
use super::{
    FILTER_PREFIXES_MAX, FILTER_RULES_MAX, FILTER_SET_MAX, FILTER_TABLES_MAX, FilterRule,
    FilterState, FilterTable, TableEntry,
};

/// Distance of a rule without a number from the last one.
const STEP: u32 = 100;
/// The greatest number; the one above it is the rule for everything else.
const NUMBER_MAX: u32 = 65_534;
/// Longest name of a table, FreeBSD's.
const NAME_MAX: usize = 63;

/// A change of the filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilterChange {
    /// Behind the others of its number.
    Add(FilterRule),
    /// All of this number.
    Delete(u32),
    /// All but those of the last set.
    Flush,
    /// All of this set.
    DeleteSet(u8),
    /// Sets as bits: sets in neither stay unchanged.
    Enable {
        enabled: u32,
        disabled: u32,
    },
    SwapSets(u8, u8),
    MoveSet {
        from: u8,
        to: u8,
    },
    /// The rules of this number.
    MoveRule {
        number: u32,
        to: u8,
    },
    Table {
        name: String,
        change: TableChange,
    },
    /// Replaces the whole filter. Existing rules and tables that stay keep their state.
    Replace(FilterWanted),
}

/// A filter as it is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterWanted {
    pub rules: Vec<FilterRule>,
    pub disabled_sets: u32,
    pub tables: Vec<FilterTable>,
}

impl From<FilterState> for FilterWanted {
    fn from(state: FilterState) -> FilterWanted {
        FilterWanted {
            rules: state.rules,
            disabled_sets: state.disabled_sets,
            tables: state.tables,
        }
    }
}

/// A change of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TableChange {
    /// Entry that must not be there, unless `may_exist`.
    Create {
        may_exist: bool,
    },
    /// No rule may name it.
    Destroy,
    Flush,
    /// Makes the table if it is not there. With `may_replace` a prefix that is there gets the
    /// value.
    Add {
        entries: Vec<TableEntry>,
        may_replace: bool,
    },
    /// With `may_miss` prefixes that are not there do not matter.
    Delete {
        prefixes: Vec<(IpAddr, u8)>,
        may_miss: bool,
    },
    Swap(String),
}

/// The fault of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterFault {
    Number,
    NotFound,
    TooMany,
    Backwards,
    Set,
    LastSet,
    TableName,
    TableExists,
    NoTable(String),
    TableInUse,
    TooManyTables,
    TooManyPrefixes,
    PrefixExists(IpAddr, u8),
    NoPrefix(IpAddr, u8),
}

/// Reason why a change was refused, with its place in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    pub at: usize,
    pub fault: FilterFault,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            FilterFault::Number => write!(f, "a rule's number is from 1 to {NUMBER_MAX}"),
            FilterFault::NotFound => f.write_str("there is no rule of this number"),
            FilterFault::TooMany => write!(f, "there are {FILTER_RULES_MAX} rules, no more fit"),
            FilterFault::Backwards => {
                f.write_str("skipto goes forward: to a greater number than the rule's own")
            }
            FilterFault::Set => write!(f, "a set is a number from 0 to {FILTER_SET_MAX}"),
            FilterFault::LastSet => {
                write!(
                    f,
                    "set {FILTER_SET_MAX} is always enabled, and neither moved nor swapped"
                )
            }
            FilterFault::TableName => write!(
                f,
                "a table's name is of letters, digits, '_', '-' and '.', at most {NAME_MAX}"
            ),
            FilterFault::TableExists => f.write_str("the table exists"),
            FilterFault::NoTable(name) => write!(f, "there is no table {name}"),
            FilterFault::TableInUse => f.write_str("the table is in use: a rule names it"),
            FilterFault::TooManyTables => {
                write!(f, "there are {FILTER_TABLES_MAX} tables, no more fit")
            }
            FilterFault::TooManyPrefixes => write!(
                f,
                "all tables together have at most {FILTER_PREFIXES_MAX} prefixes"
            ),
            FilterFault::PrefixExists(ip, len) => write!(f, "the table has {ip}/{len} already"),
            FilterFault::NoPrefix(ip, len) => write!(f, "the table has no {ip}/{len}"),
        }
    }
}

impl std::error::Error for FilterError {}

/// The filter after all of the changes; `id` is that of the first new rule, and those of changed
/// tables begin there too. Adds the numbers of new rules to `numbers`.
///
/// # Errors
/// The first change that cannot be made.
pub fn change_filter(
    state: &FilterState,
    changes: &[FilterChange],
    id: u64,
    numbers: &mut Vec<u32>,
) -> Result<FilterState, FilterError> {
    let mut changing = Changing {
        next: state.clone(),
        id,
        numbers,
    };
    for (at, change) in changes.iter().enumerate() {
        let made = changing.make(change);
        made.map_err(|fault| FilterError { at, fault })?;
    }
    let prefixes = changing.next.tables.iter().map(|table| table.entries.len());
    if prefixes.sum::<usize>() > FILTER_PREFIXES_MAX {
        return Err(FilterError {
            at: changes.len().saturating_sub(1),
            fault: FilterFault::TooManyPrefixes,
        });
    }
    Ok(changing.next)
}

struct Changing<'a> {
    next: FilterState,
    /// Id of the next rule or table that changes.
    id: u64,
    numbers: &'a mut Vec<u32>,
}

impl Changing<'_> {
    fn take_id(&mut self) -> u64 {
        self.id += 1;
        self.id - 1
    }

    fn make(&mut self, change: &FilterChange) -> Result<(), FilterFault> {
        let rules = &mut self.next.rules;
        match change {
            FilterChange::Flush => {
                rules.retain(|rule| rule.set == FILTER_SET_MAX);
                Ok(())
            }
            FilterChange::Delete(number) => remove(rules, |rule| rule.number == *number),
            FilterChange::DeleteSet(set) => remove(rules, |rule| rule.set == *set),
            FilterChange::Add(rule) => self.add(rule),
            FilterChange::Enable { enabled, disabled } => {
                if disabled >> FILTER_SET_MAX & 1 != 0 {
                    return Err(FilterFault::LastSet);
                }
                let sets = &mut self.next.disabled_sets;
                *sets = (*sets | disabled) & !enabled;
                Ok(())
            }
            FilterChange::SwapSets(one, other) => self.map_sets(&[*one, *other], |set| match set {
                set if set == *one => *other,
                set if set == *other => *one,
                set => set,
            }),
            FilterChange::MoveSet { from, to } => {
                self.map_sets(&[*from, *to], |set| if set == *from { *to } else { set })
            }
            FilterChange::MoveRule { number, to } => {
                check_set(*to)?;
                let mut found = rules.iter_mut().filter(|rule| rule.number == *number);
                let first = found.next().ok_or(FilterFault::NotFound)?;
                first.set = *to;
                found.for_each(|rule| rule.set = *to);
                Ok(())
            }
            FilterChange::Table { name, change } => self.change_table(name, change),
            FilterChange::Replace(wanted) => self.replace(wanted),
        }
    }

    fn add(&mut self, rule: &FilterRule) -> Result<(), FilterFault> {
        let last = self.next.rules.last().map_or(0, |rule| rule.number);
        let number = match rule.number {
            0 => (last / STEP + 1) * STEP,
            number => number,
        };
        if !(1..=NUMBER_MAX).contains(&number) {
            return Err(FilterFault::Number);
        }
        if matches!(rule.action, FilterAction::SkipTo(to) if to <= number) {
            return Err(FilterFault::Backwards);
        }
        if rule.set > FILTER_SET_MAX {
            return Err(FilterFault::Set);
        }
        if self.next.rules.len() >= FILTER_RULES_MAX {
            return Err(FilterFault::TooMany);
        }
        if let Some(name) = rule.tables().find(|name| !is_name(name)) {
            return Err(FilterFault::NoTable(name.to_owned()));
        }
        let rule = FilterRule {
            id: self.take_id(),
            number,
            ..rule.clone()
        };
        let rules = &mut self.next.rules;
        let place = rules.partition_point(|known| known.number <= number);
        rules.insert(place, rule);
        self.numbers.push(number);
        Ok(())
    }

    fn replace(&mut self, wanted: &FilterWanted) -> Result<(), FilterFault> {
        let mut before = std::mem::take(&mut self.next);
        self.next.disabled_sets = wanted.disabled_sets & !(1 << FILTER_SET_MAX);
        for rule in &wanted.rules {
            self.add(rule)?;
        }
        for rule in &mut self.next.rules {
            let is_it = |known: &FilterRule| {
                known.number == rule.number
                    && FilterRule {
                        id: rule.id,
                        ..known.clone()
                    } == *rule
            };
            if let Some(at) = before.rules.iter().position(is_it) {
                rule.id = before.rules.remove(at).id;
            }
        }
        for table in &wanted.tables {
            self.change_table(
                &table.name,
                &TableChange::Add {
                    entries: table.entries.clone(),
                    may_replace: true,
                },
            )?;
        }
        for table in &mut self.next.tables {
            let known = before.tables.iter().find(|known| known.name == table.name);
            if let Some(known) = known.filter(|known| known.entries == table.entries) {
                table.revision = known.revision;
            }
        }
        Ok(())
    }

    fn map_sets(&mut self, sets: &[u8], to: impl Fn(u8) -> u8) -> Result<(), FilterFault> {
        for set in sets {
            check_set(*set)?;
            if *set == FILTER_SET_MAX {
                return Err(FilterFault::LastSet);
            }
        }
        for rule in &mut self.next.rules {
            rule.set = to(rule.set);
        }
        Ok(())
    }

    fn change_table(&mut self, name: &str, change: &TableChange) -> Result<(), FilterFault> {
        let no_table = || FilterFault::NoTable(name.to_owned());
        let found = self.place(name);
        match (change, found) {
            (TableChange::Create { may_exist: true }, Ok(_)) => Ok(()),
            (TableChange::Create { .. }, Ok(_)) => Err(FilterFault::TableExists),
            (TableChange::Create { .. }, Err(at)) => self.create(name, at),
            (TableChange::Destroy, Ok(at)) => {
                let mut names = self.next.rules.iter().flat_map(FilterRule::tables);
                if names.any(|used| used == name) {
                    return Err(FilterFault::TableInUse);
                }
                self.next.tables.remove(at);
                Ok(())
            }
            (TableChange::Flush, Ok(at)) => {
                self.touch(at).entries.clear();
                Ok(())
            }
            (
                TableChange::Add {
                    entries,
                    may_replace,
                },
                found,
            ) => {
                let at = match found {
                    Ok(at) => at,
                    Err(at) => {
                        self.create(name, at)?;
                        at
                    }
                };
                add_entries(self.touch(at), entries, *may_replace)
            }
            (TableChange::Delete { prefixes, may_miss }, Ok(at)) => {
                delete_prefixes(self.touch(at), prefixes, *may_miss)
            }
            (TableChange::Swap(other), Ok(at)) => {
                let other = self.place(other);
                let other = other.map_err(|_| FilterFault::NoTable(name.to_owned()))?;
                let entries = std::mem::take(&mut self.touch(at).entries);
                let entries = std::mem::replace(&mut self.touch(other).entries, entries);
                self.touch(at).entries = entries;
                Ok(())
            }
            (_, Err(_)) => Err(no_table()),
        }
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        let tables = &self.next.tables;
        tables.binary_search_by(|table| table.name.as_str().cmp(name))
    }

    fn create(&mut self, name: &str, at: usize) -> Result<(), FilterFault> {
        if !is_name(name) {
            return Err(FilterFault::TableName);
        }
        if self.next.tables.len() >= FILTER_TABLES_MAX {
            return Err(FilterFault::TooManyTables);
        }
        let table = FilterTable {
            name: name.to_owned(),
            revision: self.take_id(),
            entries: Vec::new(),
        };
        self.next.tables.insert(at, table);
        Ok(())
    }

    /// A table that changes.
    fn touch(&mut self, at: usize) -> &mut FilterTable {
        let revision = self.take_id();
        let table = &mut self.next.tables[at];
        table.revision = revision;
        table
    }
}

fn remove(
    rules: &mut Vec<FilterRule>,
    mut is_meant: impl FnMut(&FilterRule) -> bool,
) -> Result<(), FilterFault> {
    let before = rules.len();
    rules.retain(|rule| !is_meant(rule));
    match rules.len() < before {
        true => Ok(()),
        false => Err(FilterFault::NotFound),
    }
}

fn check_set(set: u8) -> Result<(), FilterFault> {
    match set <= FILTER_SET_MAX {
        true => Ok(()),
        false => Err(FilterFault::Set),
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(is_plain)
}

fn add_entries(
    table: &mut FilterTable,
    entries: &[TableEntry],
    may_replace: bool,
) -> Result<(), FilterFault> {
    let mut all: BTreeMap<(IpAddr, u8), u32> = table.entries.iter().copied().collect();
    for (prefix, value) in entries {
        let prefix = masked(*prefix);
        let known = all.insert(prefix, *value);
        if known.is_some() && !may_replace {
            return Err(FilterFault::PrefixExists(prefix.0, prefix.1));
        }
    }
    table.entries = all.into_iter().collect();
    Ok(())
}

fn delete_prefixes(
    table: &mut FilterTable,
    prefixes: &[(IpAddr, u8)],
    may_miss: bool,
) -> Result<(), FilterFault> {
    let mut all: BTreeMap<(IpAddr, u8), u32> = table.entries.iter().copied().collect();
    for prefix in prefixes {
        let prefix = masked(*prefix);
        if all.remove(&prefix).is_none() && !may_miss {
            return Err(FilterFault::NoPrefix(prefix.0, prefix.1));
        }
    }
    table.entries = all.into_iter().collect();
    Ok(())
}
