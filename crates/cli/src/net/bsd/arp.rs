//! `slipstack arp`, `ff_arp`.

use slipstack_config::Settings;

use super::neighbours::{self, Common, Neighbour, Table};
use crate::failure::Failure;
use crate::net::words::Words;
use crate::output::print;

/// The choice that the options make.
#[derive(Default)]
struct Chosen {
    verb: Verb,
    is_all: bool,
    interface: Option<String>,
}

#[derive(Default, PartialEq)]
enum Verb {
    #[default]
    Show,
    Set,
    Delete,
    File,
}

pub fn run(settings: &Settings, words: &[String]) -> Result<(), Failure> {
    let mut words = Words::new("arp", words);
    let mut chosen = Chosen::default();
    let Common { engine, is_json } =
        neighbours::options(&mut words, "-p", |letter, words| chosen.take(letter, words))?;
    let table = Table::find(settings, engine, true)?;
    match chosen.verb {
        Verb::Show => show(&table, &chosen, is_json, &mut words),
        Verb::Set => neighbours::set(&table, &mut words, chosen.interface.as_deref()),
        Verb::File => neighbours::from_file(&table, &mut words),
        Verb::Delete if chosen.is_all => neighbours::delete_all(&table),
        Verb::Delete => delete(&table, &mut words),
    }
}

impl Chosen {
    /// Returns false if there is no such letter.
    fn take(&mut self, letter: char, words: &mut Words<'_>) -> Result<bool, Failure> {
        match letter {
            'a' => self.is_all = true,
            // Addresses are always numbers.
            'n' => {}
            'd' => self.verb = Verb::Delete,
            's' | 'S' => self.verb = Verb::Set,
            'f' => self.verb = Verb::File,
            'i' => self.interface = Some(words.value("-i")?.to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn show(
    table: &Table,
    chosen: &Chosen,
    is_json: bool,
    words: &mut Words<'_>,
) -> Result<(), Failure> {
    let wanted = neighbours::last_address(words, true)?;
    let found = table.list(chosen.interface.as_deref(), wanted)?;
    if is_json {
        return neighbours::print_json(&found);
    }
    if let (Some(ip), true) = (wanted, found.is_empty()) {
        return Err(Failure::new(format!("arp: {ip} ({ip}) -- no entry")));
    }
    print(&found.iter().map(line).collect::<String>())
}

fn line(it: &Neighbour) -> String {
    let lasting = if it.is_permanent { " permanent" } else { "" };
    format!(
        "? ({}) at {} on {}{lasting} [ethernet]\n",
        it.ip, it.mac, it.interface
    )
}

fn delete(table: &Table, words: &mut Words<'_>) -> Result<(), Failure> {
    let text = words.value("-d")?;
    let ip = neighbours::address(words, text, true)?;
    // Proxy entries, which the stack does not have.
    words.take("pub");
    words.end()?;
    neighbours::delete_one(table, ip)
}
