//! `slipstack arp`, `ff_arp`.

use std::net::IpAddr;

use slipstack_config::Settings;

use super::neighbours::{self, Neighbour, Table};
use super::take_engine;
use crate::failure::Failure;
use crate::net::words::Words;
use crate::output::print;

/// The choice that the options make.
#[derive(Default)]
struct Chosen {
    verb: Verb,
    is_all: bool,
    interface: Option<String>,
    is_json: bool,
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
    let mut engine = 0;
    while words.peek().is_some_and(|word| word.starts_with('-')) {
        match take_engine(&mut words, "-p")? {
            Some(number) => engine = number,
            None => option(&mut chosen, &mut words)?,
        }
    }
    let table = Table::find(settings, engine, true)?;
    match chosen.verb {
        Verb::Show => show(&table, &chosen, &mut words),
        Verb::Set => neighbours::set(&table, &mut words, chosen.interface.as_deref()),
        Verb::File => neighbours::from_file(&table, &mut words),
        Verb::Delete if chosen.is_all => neighbours::delete_all(&table),
        Verb::Delete => {
            let ip = delete(&table, &mut words)?;
            print(&format!("{ip} ({ip}) deleted\n"))
        }
    }
}

/// Takes letters that stand together (`-an`).
fn option(chosen: &mut Chosen, words: &mut Words<'_>) -> Result<(), Failure> {
    let word = words.next().unwrap_or_default();
    if word == "--json" {
        chosen.is_json = true;
        return Ok(());
    }
    for letter in word.chars().skip(1) {
        match letter {
            'a' => chosen.is_all = true,
            // Addresses are always numbers.
            'n' => {}
            'd' => chosen.verb = Verb::Delete,
            's' | 'S' => chosen.verb = Verb::Set,
            'f' => chosen.verb = Verb::File,
            'i' => chosen.interface = Some(words.value("-i")?.to_owned()),
            _ => return Err(words.unknown(word)),
        }
    }
    Ok(())
}

fn show(table: &Table, chosen: &Chosen, words: &mut Words<'_>) -> Result<(), Failure> {
    let wanted = match words.next() {
        Some(text) => Some(neighbours::address(words, text, true)?),
        None => None,
    };
    words.end()?;
    let mut found = table.list(chosen.interface.as_deref())?;
    found.retain(|it| wanted.is_none_or(|ip| it.ip == ip));
    if chosen.is_json {
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

fn delete(table: &Table, words: &mut Words<'_>) -> Result<IpAddr, Failure> {
    let text = words.value("-d")?;
    let ip = neighbours::address(words, text, true)?;
    // Proxy entries, which the stack does not have.
    words.take("pub");
    words.end()?;
    neighbours::delete(table, ip)?;
    Ok(ip)
}
