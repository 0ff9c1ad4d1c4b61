//! `slipstack ndp`, `ff_ndp`.

use std::fmt::Write as _;
use std::time::Duration;

use slipstack_channel::control::net::NetworkState;
use slipstack_channel::control::net::zone::{plain, zone_of};
use slipstack_config::Settings;

use super::neighbours::{self, Table};
use super::take_engine;
use crate::failure::Failure;
use crate::net::names::{network_of, shown_name};
use crate::net::words::Words;
use crate::output::print;

/// The choice that the options make.
#[derive(Default)]
struct Chosen {
    verb: Verb,
    interface: Option<String>,
    /// Seconds after which the list is shown again.
    again: Option<u64>,
    is_json: bool,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Verb {
    #[default]
    Show,
    Set,
    Delete,
    Clear,
    File,
    Prefixes,
    Routers,
}

pub fn run(settings: &Settings, words: &[String]) -> Result<(), Failure> {
    let mut words = Words::new("ndp", words);
    let mut chosen = Chosen::default();
    let mut engine = 0;
    while words.peek().is_some_and(|word| word.starts_with('-')) {
        match take_engine(&mut words, "-C")? {
            Some(number) => engine = number,
            None => option(&mut chosen, &mut words)?,
        }
    }
    let table = Table::find(settings, engine, false)?;
    match chosen.verb {
        Verb::Show => show(&table, &chosen, &mut words),
        Verb::Set => neighbours::set(&table, &mut words, chosen.interface.as_deref()),
        Verb::File => neighbours::from_file(&table, &mut words),
        Verb::Clear => neighbours::delete_all(&table),
        Verb::Prefixes => print(&prefixes(&table.network()?)),
        Verb::Routers => print(&routers(&table.network()?)),
        Verb::Delete => {
            let text = words.value("-d")?;
            let ip = neighbours::address(&words, text, false)?;
            words.end()?;
            neighbours::delete(&table, ip)?;
            print(&format!("{ip} ({ip}) deleted\n"))
        }
    }
}

fn option(chosen: &mut Chosen, words: &mut Words<'_>) -> Result<(), Failure> {
    let word = words.next().unwrap_or_default();
    if word == "--json" {
        chosen.is_json = true;
        return Ok(());
    }
    for letter in word.chars().skip(1) {
        match letter {
            // Addresses are always numbers, and all of them are shown.
            'a' | 'n' => {}
            'A' => chosen.again = Some(words.parsed("-A")?),
            'c' => chosen.verb = Verb::Clear,
            'd' => chosen.verb = Verb::Delete,
            's' => chosen.verb = Verb::Set,
            'f' => chosen.verb = Verb::File,
            'p' => chosen.verb = Verb::Prefixes,
            'r' => chosen.verb = Verb::Routers,
            'i' => chosen.interface = Some(words.value("-i")?.to_owned()),
            'H' | 'I' | 'P' | 'R' => {
                return Err(Failure::new(format!(
                    "ndp: -{letter} changes what routers have told; it ends with its lifetime, or \
                     without --slaac"
                )));
            }
            _ => return Err(words.unknown(word)),
        }
    }
    Ok(())
}

fn show(table: &Table, chosen: &Chosen, words: &mut Words<'_>) -> Result<(), Failure> {
    let wanted = match words.next() {
        Some(text) => Some(neighbours::address(words, text, false)?),
        None => None,
    };
    words.end()?;
    loop {
        let mut found = table.list(chosen.interface.as_deref())?;
        found.retain(|it| wanted.is_none_or(|ip| it.ip == ip));
        if chosen.is_json {
            neighbours::print_json(&found)?;
        } else {
            let mut text = row(["Neighbor", "Linklayer Address", "Netif", "Expire", "S"]);
            for it in &found {
                let until = if it.is_permanent { "permanent" } else { "" };
                text.push_str(&row([
                    &it.ip.to_string(),
                    &it.mac,
                    &it.interface,
                    until,
                    "R",
                ]));
            }
            print(&text)?;
        }
        let Some(seconds) = chosen.again else {
            return Ok(());
        };
        std::thread::sleep(Duration::from_secs(seconds));
    }
}

fn row([ip, mac, interface, until, state]: [&str; 5]) -> String {
    let text = format!("{ip:<40} {mac:<18} {interface:<12} {until:<9} {state}");
    format!("{}\n", text.trim_end())
}

/// Returns the on-link networks.
fn prefixes(state: &NetworkState) -> String {
    let mut text = String::new();
    let mut one = |(ip, len), name: &str, flags: &str| {
        let (ip, len) = network_of((ip, len));
        let _ = writeln!(text, "{ip}/{len} if={name}\nflags={flags}");
    };
    for it in &state.interfaces {
        for (ip, len) in it.addresses.iter().filter(|(ip, _)| ip.is_ipv6()) {
            one((*ip, *len), &shown_name(state, it), "LO");
        }
    }
    for net in state.learnt.iter().flat_map(|learnt| &learnt.networks) {
        let it = state.find_link(net.link).unwrap_or(state.own());
        let ip = plain(net.address);
        one((ip.into(), net.prefix_len), &shown_name(state, it), "LAO");
    }
    text
}

/// Returns the known default routers.
fn routers(state: &NetworkState) -> String {
    let mut text = String::new();
    for router in state.learnt.iter().flat_map(|learnt| &learnt.routers) {
        let it = state.find_link(zone_of(*router).0);
        let name = shown_name(state, it.unwrap_or(state.own()));
        let ip = plain(*router);
        let _ = writeln!(text, "{ip}%{name} if={name}, flags=, pref=medium");
    }
    text
}
