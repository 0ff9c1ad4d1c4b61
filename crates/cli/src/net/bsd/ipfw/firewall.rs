//! The object of a command: the present filter, and changes to it.

use std::collections::HashMap;

use slipstack_attach::inquiry;
use slipstack_channel::control::net::{
    Answer, Change, FilterChange, FilterCountRow, FilterReceived, Inquiry, NetworkState, Query,
    TableChange,
};
use slipstack_config::Settings;

use super::Style;
use super::fib::inverse;
use super::text::Writer;
use crate::failure::Failure;
use crate::net::target::Target;
use crate::net::words::Words;
use crate::output::print;

/// Matches of rules, by their ids.
pub type Counts = HashMap<u64, FilterCountRow>;

/// Changes that are made together, with their messages.
#[derive(Default)]
pub struct Batch {
    pub filter: Vec<FilterChange>,
    pub network: Vec<Change>,
    text: String,
}

/// The filter that is changed, and how the answer is written.
pub struct Firewall<'a> {
    settings: &'a Settings,
    /// `None`: nothing runs, and nothing is changed.
    pub target: Option<Target>,
    pub state: NetworkState,
    pub style: Style,
    /// Changes are held back.
    pub batch: Option<Batch>,
    /// Without the prefixes of tables, once it is known; with the changes that are held back.
    filter: Option<FilterReceived>,
}

impl<'a> Firewall<'a> {
    pub fn new(
        settings: &'a Settings,
        target: Option<Target>,
        style: Style,
    ) -> Result<Firewall<'a>, Failure> {
        let state = match &target {
            Some(target) => target.network()?,
            None => NetworkState::default(),
        };
        Ok(Firewall {
            settings,
            target,
            state,
            style,
            batch: None,
            filter: None,
        })
    }

    /// For rules that are only read.
    pub fn offline(settings: &'a Settings, state: NetworkState) -> Firewall<'a> {
        let style = Style {
            is_quiet: true,
            ..Style::default()
        };
        Firewall {
            settings,
            target: None,
            state,
            style,
            batch: None,
            filter: None,
        }
    }

    pub fn command(&mut self, mut words: Words<'_>) -> Result<(), Failure> {
        match words.next() {
            Some("add") => self.add(words),
            Some("delete") => self.delete(words, None),
            Some("flush") => self.flush(words, None),
            Some("zero") => self.zero(words, None, false),
            Some("resetlog") => self.zero(words, None, true),
            Some("list" | "l") => self.list(words, None),
            Some("show") => {
                self.style.has_counts = true;
                self.list(words, None)
            }
            Some("set") => self.set_command(words),
            Some("table") => self.table_command(words),
            Some(word @ ("nat" | "pipe" | "queue" | "sched")) => Err(Failure::new(format!(
                "ipfw: {word} is not supported: packets are let through or stopped, not changed or \
                 shaped"
            ))),
            Some(word @ ("enable" | "disable")) => Err(Failure::new(format!(
                "ipfw: {word} is not supported: the filter works while it has rules; \"set \
                 disable\" takes some away"
            ))),
            Some(other) => Err(words.unknown(other)),
            None => Err(words.missing("add, delete, list, show, set, table, zero or flush")),
        }
    }

    pub fn writer(&self) -> Writer<'_> {
        Writer {
            state: &self.state,
            has_names: self.style.has_names,
            is_compact: self.style.is_compact,
            is_brief: self.style.is_brief,
        }
    }

    /// The rules, and which tables there are.
    pub fn filter(&mut self) -> Result<&mut FilterReceived, Failure> {
        if self.filter.is_none() {
            self.filter = Some(match self.target {
                Some(_) => self.fetch(false)?,
                None => FilterReceived::default(),
            });
        }
        Ok(self.filter.get_or_insert_default())
    }

    /// The filter, with the prefixes of tables or without.
    pub fn fetch(&self, has_prefixes: bool) -> Result<FilterReceived, Failure> {
        let received = inquiry::filter(self.settings, has_prefixes);
        received.map_err(|error| Failure::new(error.to_string()))
    }

    pub fn inquire(&self, inquiry: &Inquiry) -> Result<Vec<inquiry::EngineAnswer>, Failure> {
        let answers = inquiry::inquire(self.settings, inquiry);
        answers.map_err(|error| Failure::new(error.to_string()))
    }

    /// Returns the counts of all engines together.
    pub fn counts(&self) -> Result<Counts, Failure> {
        let mut counts = Counts::new();
        for answer in self.inquire(&Inquiry::FilterCounts)? {
            for line in answer.text.lines() {
                let Ok(row) = serde_json::from_str::<FilterCountRow>(line) else {
                    continue;
                };
                let count = counts.entry(row.id).or_insert(FilterCountRow {
                    packets: 0,
                    bytes: 0,
                    last_ns: 0,
                    ..row
                });
                count.packets += row.packets;
                count.bytes += row.bytes;
                count.last_ns = count.last_ns.max(row.last_ns);
            }
        }
        Ok(counts)
    }

    /// Says something, unless the command is to be quiet.
    pub fn say(&mut self, text: &str) -> Result<(), Failure> {
        if self.style.is_quiet {
            return Ok(());
        }
        match &mut self.batch {
            Some(batch) => {
                batch.text.push_str(text);
                Ok(())
            }
            None => print(text),
        }
    }

    /// Makes changes, or holds them back.
    pub fn change(
        &mut self,
        filter: Vec<FilterChange>,
        network: Vec<Change>,
    ) -> Result<(), Failure> {
        match &mut self.batch {
            Some(batch) => {
                filter.into_iter().for_each(|change| batch.add(change));
                batch.network.extend(network);
                Ok(())
            }
            None => self.send(filter, network),
        }
    }

    fn send(&mut self, filter: Vec<FilterChange>, network: Vec<Change>) -> Result<(), Failure> {
        let Some(target) = self.target.as_ref().filter(|_| !self.style.is_test) else {
            return Ok(());
        };
        if !network.is_empty() {
            target.change(network.clone())?;
        }
        if filter.is_empty() {
            return Ok(());
        }
        match target.ask(Query::SetFilter(filter)) {
            Ok(Answer::FilterChanged(_)) => Ok(()),
            Ok(_) => Err(Failure::new("the keeper's answer is not understood")),
            Err(failure) => {
                let back = inverse(&network);
                if !back.is_empty() {
                    target.change(back)?;
                }
                Err(failure)
            }
        }
    }

    /// Returns whether the command names an engine behind the first, for which scripts repeat it.
    pub fn is_for_next_engine(&self) -> bool {
        self.target.as_ref().is_some_and(Target::is_for_next_engine)
    }

    /// Makes the changes that were held back.
    pub fn send_batch(&mut self) -> Result<(), Failure> {
        let Some(batch) = self.batch.take() else {
            return Ok(());
        };
        self.send(batch.filter, batch.network)?;
        match batch.text.is_empty() {
            true => Ok(()),
            false => print(&batch.text),
        }
    }
}

impl Batch {
    /// Prefixes that are added to one table one by one are added together.
    fn add(&mut self, change: FilterChange) {
        if let FilterChange::Table {
            name,
            change:
                TableChange::Add {
                    entries,
                    may_replace,
                },
        } = &change
            && let Some(FilterChange::Table {
                name: before,
                change:
                    TableChange::Add {
                        entries: all,
                        may_replace: may_too,
                    },
            }) = self.filter.last_mut()
            && before == name
            && may_too == may_replace
        {
            all.extend(entries);
            return;
        }
        self.filter.push(change);
    }
}
