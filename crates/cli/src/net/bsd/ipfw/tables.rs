//! `table`: addresses that rules name together.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use slipstack_channel::control::net::{
    FilterChange, FilterTable, ReceivedTable, TableChange, TableEntry,
};

use super::ends::net;
use super::firewall::Firewall;
use super::text::net_text;
use crate::failure::Failure;
use crate::net::words::Words;
use crate::output::print;

impl Firewall<'_> {
    /// `table {NAME | all} create|destroy|add|delete|flush|list|info|detail|lookup|swap …`
    pub fn table_command(&mut self, mut words: Words<'_>) -> Result<(), Failure> {
        let name = words.value("table")?;
        let verb = words.value("table")?;
        if verb == "atomic" && words.peek() == Some("add") {
            words.next();
            return self.add_prefixes(name, words);
        }
        match verb {
            "create" => self.create_table(name, words),
            "add" => self.add_prefixes(name, words),
            "delete" => self.delete_prefixes(name, words),
            "flush" | "destroy" => {
                words.end()?;
                self.clear(name, verb == "destroy")
            }
            "swap" => {
                let other = words.value("swap")?.to_owned();
                words.end()?;
                self.change_table(name, TableChange::Swap(other))
            }
            "list" => {
                words.end()?;
                self.list_tables(name)
            }
            "info" | "detail" => {
                words.end()?;
                self.describe_tables(name, verb == "detail")
            }
            "lookup" => self.look_up(name, words),
            "lock" | "unlock" | "modify" => Err(Failure::new(format!(
                "ipfw: table {verb} is not supported: a table has neither locks nor limits of its \
                 own"
            ))),
            other => Err(words.unknown(other)),
        }
    }

    fn change_table(&mut self, name: &str, change: TableChange) -> Result<(), Failure> {
        let name = name.to_owned();
        self.change(vec![FilterChange::Table { name, change }], Vec::new())
    }

    fn create_table(&mut self, name: &str, mut words: Words<'_>) -> Result<(), Failure> {
        let (mut may_exist, mut is_flushed) = (false, false);
        while let Some(word) = words.next() {
            match word {
                "missing" => may_exist = true,
                "or-flush" => (may_exist, is_flushed) = (true, true),
                "type" => match words.value(word)? {
                    "addr" => {}
                    other => {
                        return Err(Failure::new(format!(
                            "ipfw: tables of type {other} are not supported: they are of \
                             addresses, type addr"
                        )));
                    }
                },
                "valtype" | "algo" | "limit" | "ftype" | "locked" => {
                    return Err(Failure::new(format!(
                        "ipfw: {word} of a table is not supported: each prefix has one number"
                    )));
                }
                other => return Err(words.unknown(other)),
            }
        }
        self.change_table(name, TableChange::Create { may_exist })?;
        match is_flushed {
            true => self.change_table(name, TableChange::Flush),
            false => Ok(()),
        }
    }

    /// `add PREFIX [VALUE] [PREFIX VALUE] …`
    fn add_prefixes(&mut self, name: &str, mut words: Words<'_>) -> Result<(), Failure> {
        let (mut entries, mut text): (Vec<TableEntry>, _) = (Vec::new(), String::new());
        while let Some(word) = words.next() {
            let prefix = net(word).ok_or_else(|| words.wrong("a prefix", word))?;
            let value = words.peek().and_then(value);
            if value.is_some() {
                words.next();
            }
            let entry = (prefix, value.unwrap_or(0));
            let _ = writeln!(text, "added: {}", self.entry_text(&entry));
            entries.push(entry);
        }
        if entries.is_empty() {
            return Err(words.missing("a prefix"));
        }
        let may_replace = self.style.is_quiet;
        let change = TableChange::Add {
            entries,
            may_replace,
        };
        self.change_table(name, change)?;
        self.say(&text)
    }

    fn delete_prefixes(&mut self, name: &str, mut words: Words<'_>) -> Result<(), Failure> {
        let (mut prefixes, mut text) = (Vec::new(), String::new());
        while let Some(word) = words.next() {
            let prefix = net(word).ok_or_else(|| words.wrong("a prefix", word))?;
            let _ = writeln!(text, "deleted: {}", prefix_text(prefix));
            prefixes.push(prefix);
        }
        if prefixes.is_empty() {
            return Err(words.missing("a prefix"));
        }
        let may_miss = self.style.is_quiet;
        self.change_table(name, TableChange::Delete { prefixes, may_miss })?;
        self.say(&text)
    }

    /// Empties a table, or all; or takes them away.
    fn clear(&mut self, name: &str, is_destroyed: bool) -> Result<(), Failure> {
        let change = || match is_destroyed {
            true => TableChange::Destroy,
            false => TableChange::Flush,
        };
        if name != "all" {
            return self.change_table(name, change());
        }
        let tables = self.filter()?.tables.iter();
        let names: Vec<String> = tables.map(|table| table.head.name.clone()).collect();
        let changes = names.into_iter().map(|name| FilterChange::Table {
            name,
            change: change(),
        });
        self.change(changes.collect(), Vec::new())
    }

    /// One table, or all, as they are.
    fn fetch_tables(&self, name: &str, has_prefixes: bool) -> Result<Vec<ReceivedTable>, Failure> {
        let mut tables = self.fetch(has_prefixes)?.tables;
        if name != "all" {
            tables.retain(|table| table.head.name == name);
            if tables.is_empty() {
                return Err(Failure::new(format!("ipfw: table {name} not found")));
            }
        }
        Ok(tables)
    }

    fn list_tables(&self, name: &str) -> Result<(), Failure> {
        let tables = self.fetch_tables(name, true)?;
        if self.style.is_json {
            return print_json(&tables);
        }
        let mut text = String::new();
        for table in tables {
            if name == "all" {
                let _ = writeln!(text, "--- table({}), set(0) ---", table.head.name);
            }
            for entry in table.entries.iter().flatten() {
                let _ = writeln!(text, "{}", self.entry_text(entry));
            }
        }
        print(&text)
    }

    fn describe_tables(&mut self, name: &str, has_details: bool) -> Result<(), Failure> {
        let tables = self.fetch_tables(name, false)?;
        let rules = self.filter()?.rules.clone();
        let mut text = String::new();
        for (at, table) in tables.iter().enumerate() {
            let name = &table.head.name;
            let used = rules.iter().flat_map(|rule| rule.tables());
            let used = used.filter(|used| used == name).count();
            let _ = writeln!(
                text,
                "--- table({name}), set(0) ---\n kindex: {at}, type: addr\n references: {used}, \
                 valtype: legacy\n algorithm: addr:ranges\n items: {}, size: {}",
                table.head.len,
                table.head.len * 24
            );
            if has_details {
                let _ = writeln!(text, " limit: 0");
            }
        }
        print(&text)
    }

    fn look_up(&self, name: &str, mut words: Words<'_>) -> Result<(), Failure> {
        let ip: IpAddr = words.parsed("lookup")?;
        words.end()?;
        let tables = self.fetch_tables(name, true)?;
        let found = tables.into_iter().find_map(|table| {
            let table = FilterTable {
                entries: table.entries?,
                ..FilterTable::default()
            };
            table.lookup(ip)
        });
        match found {
            Some(entry) => print(&format!("{}\n", self.entry_text(&entry))),
            None => Err(Failure::new(format!(
                "ipfw: table {name} has no prefix with {ip}"
            ))),
        }
    }

    /// `10.0.0.0/8 0`
    fn entry_text(&self, (prefix, value): &TableEntry) -> String {
        let value = match self.style.has_address_values {
            true => Ipv4Addr::from_bits(*value).to_string(),
            false => value.to_string(),
        };
        format!("{} {value}", prefix_text(*prefix))
    }
}

/// With its length, of hosts too.
fn prefix_text((ip, len): (IpAddr, u8)) -> String {
    let text = net_text((ip, len));
    match text.contains('/') {
        true => text,
        false => format!("{text}/{len}"),
    }
}

/// A number, or as many bits as an address.
fn value(word: &str) -> Option<u32> {
    let address = || word.parse::<Ipv4Addr>().ok().map(Ipv4Addr::to_bits);
    word.parse().ok().or_else(address)
}

fn print_json(tables: &[ReceivedTable]) -> Result<(), Failure> {
    let rows = tables.iter().map(|table| {
        let entries = table.entries.iter().flatten().map(
            |(prefix, value)| serde_json::json!({ "prefix": prefix_text(*prefix), "value": value }),
        );
        serde_json::json!({
            "table": table.head.name,
            "entries": entries.collect::<Vec<_>>(),
        })
    });
    let text = serde_json::to_string_pretty(&rows.collect::<Vec<_>>());
    print(&format!(
        "{}\n",
        text.map_err(|e| Failure::new(e.to_string()))?
    ))
}
