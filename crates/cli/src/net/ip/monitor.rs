//! `ip monitor`: the changes of a stack's network, neighbours, numbers and filter as they happen.

use std::net::IpAddr;

use serde_json::{Value, json};
use slipstack_channel::control::net::zone::plain_ip;
use slipstack_channel::control::net::{Answer, NeighbourEntry, NetworkState, Query};
use slipstack_config::Settings;

use super::options::Options;
use super::{address, link, neighbour, route, rule};
use crate::failure::Failure;
use crate::net::names::mac_text;
use crate::net::target::Target;
use crate::net::words::Words;
use crate::output::print;

/// `slipstack monitor`, which is `ip monitor`.
pub fn watch(settings: &Settings, words: &[String]) -> Result<(), Failure> {
    let mut words = Words::new("monitor", words);
    let (mut engine, mut is_json) = (0, false);
    while let Some(word) = words.next() {
        match word {
            "-j" | "--json" => is_json = true,
            "-p" | "--engine" => engine = words.parsed(word)?,
            other => return Err(words.unknown(other)),
        }
    }
    run(&Target::find(settings, engine)?, is_json)
}

/// Tells of each change until it is ended.
pub fn run(target: &Target, is_json: bool) -> Result<(), Failure> {
    let failure = || Failure::new("the keeper's answer is not understood");
    let Answer::Neighbours(mut known) = target.ask(Query::Neighbours)? else {
        return Err(failure());
    };
    let Answer::Network(mut state) = target.ask(Query::Watch)? else {
        return Err(failure());
    };
    loop {
        let next = target.client.next();
        match next.map_err(|error| Failure::new(error.to_string()))? {
            Answer::Network(next) => {
                print(&match is_json {
                    true => json_differences(&state, &next),
                    false => differences(&state, &next),
                })?;
                state = next;
            }
            Answer::Neighbours(next) => {
                print(&neighbours(&state, (&known, &next), is_json))?;
                known = next;
            }
            _ => return Err(failure()),
        }
    }
}

type Known = Vec<(u16, IpAddr, [u8; 6])>;

/// Returns a line for each neighbour that is gone, and for each that has come or moved.
fn neighbours(state: &NetworkState, (before, now): (&Known, &Known), is_json: bool) -> String {
    let line = |(link, ip, mac): (u16, IpAddr, [u8; 6]), is_deleted: bool| {
        let device = &state.find_link(link).unwrap_or(state.own()).name;
        let ip = plain_ip(ip);
        let line = neighbour::Line {
            entry: NeighbourEntry { link, ip, mac },
            device: device.clone(),
            state: "REACHABLE",
        };
        let deleted = if is_deleted { "Deleted " } else { "" };
        match is_json {
            true => json_line("neigh", &line.as_json(), is_deleted),
            false => format!("{deleted}{}", line.text()),
        }
    };
    let has = |all: &Known, ip: IpAddr| all.iter().any(|(_, other, _)| *other == ip);
    let gone = before.iter().filter(|(_, ip, _)| !has(now, *ip));
    let gone = gone.map(|it| line(*it, true));
    let come = now.iter().filter(|it| !before.contains(it));
    gone.chain(come.map(|it| line(*it, false))).collect()
}

fn json_line(object: &str, entry: &Value, is_deleted: bool) -> String {
    format!(
        "{}\n",
        json!({"object": object, "deleted": is_deleted, "entry": entry})
    )
}

/// Returns the lines that were added and removed.
fn differences(before: &NetworkState, after: &NetworkState) -> String {
    let all = |state: &NetworkState| -> Vec<String> {
        let rules = |is_v6| Options {
            is_v6: Some(is_v6),
            ..Options::default()
        };
        let texts = [
            address::text(state, Options::default()),
            route::text(state, &route::Selection::all(), Options::default()),
            rule::text(state, rules(false)),
            rule::text(state, rules(true)),
        ];
        let lines = texts.iter().flat_map(|text| text.lines());
        let lines = lines.map(|line| line.trim().to_owned());
        let others = others(state).into_iter().map(|(_, line, _)| line);
        lines.chain(others).collect()
    };
    let (old, new) = (all(before), all(after));
    let gone = old.iter().filter(|line| !new.contains(line));
    let come = new.iter().filter(|line| !old.contains(line));
    let gone = gone.map(|line| format!("Deleted {line}\n"));
    let come = come.map(|line| format!("{line}\n"));
    gone.chain(come).collect()
}

/// Settings that `ip` has no lists of: the object, a line, and the entry of JSON. Neighbours that
/// are learnt are no configuration and not among them.
fn others(state: &NetworkState) -> Vec<(&'static str, String, Value)> {
    let neighbours = state.neighbours.iter().map(|it| {
        let found = state.find_link(it.link);
        let name = found.map_or_else(|| "unknown".to_owned(), |it| it.name.clone());
        let (ip, mac) = (it.ip, mac_text(it.mac));
        let line = format!("{ip} dev {name} lladdr {mac} PERMANENT");
        let entry = json!({"dst": ip, "dev": name, "lladdr": mac, "state": ["PERMANENT"]});
        ("neigh", line, entry)
    });
    let numbers = state.tunables.iter().map(|(name, value)| {
        let entry = json!({"name": name, "value": value});
        ("sysctl", format!("sysctl {name} = {value}"), entry)
    });
    let switch = |name: &str, is_on: bool| {
        let value = u8::from(is_on);
        let entry = json!({"name": name, "value": value});
        ("sysctl", format!("sysctl {name} = {value}"), entry)
    };
    let revision = state.filter;
    let filter = (
        "filter",
        format!("filter revision {revision}"),
        json!({"revision": revision}),
    );
    let single = [
        switch("forwarding", state.is_forwarding),
        switch("add_addr_allfibs", state.connects_all_tables),
        filter,
    ];
    neighbours.chain(numbers).chain(single).collect()
}

/// Returns an object a line for each entry that was added, removed or replaced.
fn json_differences(before: &NetworkState, after: &NetworkState) -> String {
    let all = |state: &NetworkState| -> Vec<(&str, Value)> {
        let addresses = address::entries(state).map(|it| ("address", it));
        let links = state.interfaces.iter();
        let links = links.map(|it| ("link", link::as_json(state, it)));
        let routes = route::entries(state).map(|it| ("route", it));
        let families = [false, true].into_iter();
        let rules = families.flat_map(|is_v6| rule::entries(state, is_v6));
        let rules = rules.map(|it| ("rule", it));
        let others = others(state).into_iter();
        let others = others.map(|(object, _, entry)| (object, entry));
        let shown = links.chain(addresses).chain(routes).chain(rules);
        shown.chain(others).collect()
    };
    let (old, new) = (all(before), all(after));
    let line = |(object, entry): &(&str, Value), is_deleted| json_line(object, entry, is_deleted);
    let gone = old.iter().filter(|it| !new.contains(it));
    let come = new.iter().filter(|it| !old.contains(it));
    let gone = gone.map(|it| line(it, true));
    gone.chain(come.map(|it| line(it, false))).collect()
}
