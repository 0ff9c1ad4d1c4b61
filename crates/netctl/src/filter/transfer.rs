//! Transfer of the filter to engines and commands: rules in one file, the prefixes of tables in
//! another.

use serde::{Deserialize, Serialize};

use super::table::{FilterTable, TableEntry, read_prefixes, write_prefixes};
use super::{FilterRule, FilterState};

/// The filter's part of the message beside the two files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterHead {
    pub disabled_sets: u32,
    pub tables: Vec<TableHead>,
}

/// A table's description beside its prefixes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableHead {
    pub name: String,
    pub revision: u64,
    pub len: usize,
    /// The prefixes are in the file, behind those of the tables before.
    pub is_sent: bool,
}

/// A filter that has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterReceived {
    pub rules: Vec<FilterRule>,
    pub disabled_sets: u32,
    pub tables: Vec<ReceivedTable>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedTable {
    pub head: TableHead,
    /// `None`: as they were with this revision.
    pub entries: Option<Vec<TableEntry>>,
}

impl FilterState {
    /// Returns the message, and the prefixes beside it: those of tables whose revisions are not
    /// among the known ones; `None` = of none.
    pub fn tell(&self, known: Option<&[u64]>) -> (FilterHead, Vec<u8>) {
        let mut bytes = Vec::new();
        let mut tell = |table: &FilterTable| {
            let is_sent = known.is_some_and(|known| !known.contains(&table.revision));
            if is_sent {
                write_prefixes(&table.entries, &mut bytes);
            }
            TableHead {
                name: table.name.clone(),
                revision: table.revision,
                len: table.entries.len(),
                is_sent,
            }
        };
        let tables = self.tables.iter().map(&mut tell).collect();
        let head = FilterHead {
            disabled_sets: self.disabled_sets,
            tables,
        };
        (head, bytes)
    }
}

impl FilterHead {
    /// Combines the message with the data beside it into the filter. `None`: they do not match.
    pub fn join(self, rules: Vec<FilterRule>, mut prefixes: &[u8]) -> Option<FilterReceived> {
        let mut tables = Vec::new();
        for head in self.tables {
            let entries = match head.is_sent {
                true => Some(read_prefixes(&mut prefixes, head.len)?),
                false => None,
            };
            tables.push(ReceivedTable { head, entries });
        }
        Some(FilterReceived {
            rules,
            disabled_sets: self.disabled_sets,
            tables,
        })
    }
}
