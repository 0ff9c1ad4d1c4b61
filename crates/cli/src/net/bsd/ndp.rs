//! `slipstack ndp`, `ff_ndp`.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use serde_json::{Value, json};
use slipstack_channel::control::net::NetworkState;
use slipstack_channel::control::net::zone::{plain, zone_of};
use slipstack_config::Settings;

use super::neighbours::{self, Common, Table};
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
    let Common { engine, is_json } =
        neighbours::options(&mut words, "-C", |letter, words| chosen.take(letter, words))?;
    let table = Table::find(settings, engine, false)?;
    match chosen.verb {
        Verb::Show => show(&table, &chosen, is_json, &mut words),
        Verb::Set => neighbours::set(&table, &mut words, chosen.interface.as_deref()),
        Verb::File => neighbours::from_file(&table, &mut words),
        Verb::Clear => neighbours::delete_all(&table),
        Verb::Prefixes => {
            let found = prefixes(&table.network()?);
            print(&match is_json {
                true => json_text(found.iter().map(Prefix::as_json)),
                false => found.iter().map(Prefix::text).collect(),
            })
        }
        Verb::Routers => {
            let found = routers(&table.network()?);
            print(&match is_json {
                true => json_text(found.iter().map(Router::as_json)),
                false => found.iter().map(Router::text).collect(),
            })
        }
        Verb::Delete => {
            let text = words.value("-d")?;
            let ip = neighbours::address(&words, text, false)?;
            words.end()?;
            neighbours::delete_one(&table, ip)
        }
    }
}

impl Chosen {
    /// Returns false if there is no such letter.
    fn take(&mut self, letter: char, words: &mut Words<'_>) -> Result<bool, Failure> {
        match letter {
            // Addresses are always numbers, and all of them are shown.
            'a' | 'n' => {}
            'A' => self.again = Some(words.parsed("-A")?),
            'c' => self.verb = Verb::Clear,
            'd' => self.verb = Verb::Delete,
            's' => self.verb = Verb::Set,
            'f' => self.verb = Verb::File,
            'p' => self.verb = Verb::Prefixes,
            'r' => self.verb = Verb::Routers,
            'i' => self.interface = Some(words.value("-i")?.to_owned()),
            'H' | 'I' | 'P' | 'R' => {
                return Err(Failure::new(format!(
                    "ndp: -{letter} changes what routers have told; it ends with its lifetime, or \
                     without --slaac"
                )));
            }
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
    let wanted = neighbours::last_address(words, false)?;
    loop {
        let found = table.list(chosen.interface.as_deref(), wanted)?;
        if is_json {
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

fn json_text(rows: impl Iterator<Item = Value>) -> String {
    format!("{}\n", Value::Array(rows.collect()))
}

/// An on-link network.
struct Prefix {
    net: (IpAddr, u8),
    interface: String,
    /// Usable on the link, and for addresses of one's own; learnt from a router.
    is_learnt: bool,
}

impl Prefix {
    fn flags(&self) -> &'static str {
        if self.is_learnt { "LAO" } else { "LO" }
    }

    fn text(&self) -> String {
        let (ip, len) = self.net;
        format!("{ip}/{len} if={}\nflags={}\n", self.interface, self.flags())
    }

    fn as_json(&self) -> Value {
        let (ip, len) = self.net;
        let flags = self.flags();
        json!({"prefix": format!("{ip}/{len}"), "interface": self.interface, "flags": flags})
    }
}

fn prefixes(state: &NetworkState) -> Vec<Prefix> {
    let of_interface = state.interfaces.iter().flat_map(|it| {
        let nets = it.addresses.iter().filter(|(ip, _)| ip.is_ipv6());
        nets.map(|net| Prefix {
            net: network_of(*net),
            interface: shown_name(state, it),
            is_learnt: false,
        })
    });
    let learnt = state.learnt.iter().flat_map(|learnt| &learnt.networks);
    let learnt = learnt.map(|net| Prefix {
        net: network_of((plain(net.address).into(), net.prefix_len)),
        interface: shown_name(state, state.find_link(net.link).unwrap_or(state.own())),
        is_learnt: true,
    });
    of_interface.chain(learnt).collect()
}

/// A known default router.
struct Router {
    ip: Ipv6Addr,
    interface: String,
}

impl Router {
    fn text(&self) -> String {
        let Router { ip, interface } = self;
        format!("{ip}%{interface} if={interface}, flags=, pref=medium\n")
    }

    fn as_json(&self) -> Value {
        json!({"router": self.ip, "interface": self.interface, "preference": "medium"})
    }
}

fn routers(state: &NetworkState) -> Vec<Router> {
    let learnt = state.learnt.iter().flat_map(|learnt| &learnt.routers);
    let router = |router: &Ipv6Addr| {
        let it = state.find_link(zone_of(*router).0);
        Router {
            ip: plain(*router),
            interface: shown_name(state, it.unwrap_or(state.own())),
        }
    };
    learnt.map(router).collect()
}
