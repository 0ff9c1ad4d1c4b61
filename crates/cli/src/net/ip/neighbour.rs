//! `ip neigh`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};
use slipstack_channel::control::net::{Answer, Change, Mode, NeighbourEntry, Query};

use super::options::Options;
use crate::failure::Failure;
use crate::net::names::{find_interface, mac_text, parse_mac};
use crate::net::target::Target;
use crate::net::words::Words;

pub(super) fn run(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    match words.next() {
        None | Some("show" | "list" | "ls" | "sh" | "s") => show(target, options, words),
        Some("get" | "g") => get(target, options, words),
        Some("flush" | "f") => flush(target, options, words),
        Some("add" | "a") => add(target, words, Mode::Add),
        Some("replace") => add(target, words, Mode::Replace),
        Some("change" | "chg") => add(target, words, Mode::Change),
        Some("del" | "delete" | "d") => delete(target, words),
        Some(other) => Err(words.unknown(other)),
    }
}

/// A neighbour as it is shown.
pub(super) struct Line {
    pub entry: NeighbourEntry,
    pub device: String,
    pub state: &'static str,
}

impl Line {
    pub fn text(&self) -> String {
        let (ip, mac) = (self.entry.ip, mac_text(self.entry.mac));
        format!("{ip} dev {} lladdr {mac} {}\n", self.device, self.state)
    }

    pub fn as_json(&self) -> Value {
        let (ip, mac) = (self.entry.ip, mac_text(self.entry.mac));
        json!({"dst": ip, "dev": self.device, "lladdr": mac, "state": [self.state]})
    }
}

/// Returns the lines of the neighbours that the words and the family mean.
fn lines(target: &Target, options: Options, words: &mut Words<'_>) -> Result<Vec<Line>, Failure> {
    let state = target.network()?;
    let (mut device, mut kind, mut only) = (None, None, None);
    while let Some(word) = words.next() {
        match word {
            "dev" => device = Some(find_interface(&state, words.value(word)?)?.name.clone()),
            "nud" => kind = Some(words.value(word)?.to_uppercase()),
            "to" | "all" => continue,
            text => only = Some(text.parse().map_err(|_| words.wrong("a neighbour", text))?),
        }
    }
    let Answer::Neighbours(known) = target.ask(Query::Neighbours)? else {
        return Err(Failure::new("the keeper's answer is not understood"));
    };
    let mut all: BTreeMap<IpAddr, Line> = BTreeMap::new();
    for (_, ip, mac) in known {
        let interface = state.interface_towards(ip).unwrap_or(state.own());
        let entry = NeighbourEntry {
            link: interface.link,
            ip,
            mac,
        };
        let device = interface.name.clone();
        let state = "REACHABLE";
        all.insert(
            ip,
            Line {
                entry,
                device,
                state,
            },
        );
    }
    for entry in &state.neighbours {
        let interface = state.find_link(entry.link).unwrap_or(state.own());
        let line = Line {
            entry: *entry,
            device: interface.name.clone(),
            state: "PERMANENT",
        };
        all.insert(entry.ip, line);
    }
    let is_meant = |line: &Line| {
        options.wants(line.entry.ip.is_ipv6())
            && device.as_ref().is_none_or(|name| *name == line.device)
            && kind
                .as_ref()
                .is_none_or(|kind| kind == "ALL" || kind == line.state)
            && only.is_none_or(|ip: IpAddr| ip == line.entry.ip)
    };
    Ok(all.into_values().filter(is_meant).collect())
}

fn show(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    let all = lines(target, options, &mut words)?;
    let text: String = all.iter().map(Line::text).collect();
    options.show(all.iter().map(Line::as_json).collect(), &text)
}

/// Shows one neighbour.
fn get(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    if !words.has("dev") {
        return Err(words.missing("dev IF"));
    }
    let known = lines(target, options, &mut words)?;
    match known.as_slice() {
        [one] => options.show(vec![one.as_json()], &one.text()),
        [] => Err(Failure::new("Neighbour entry not found")),
        _ => Err(words.missing("the neighbour's address")),
    }
}

/// Forgets what was learnt; what was set goes where the words name it (`nud permanent`).
fn flush(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    if words.peek().is_none() {
        return Err(words.missing("which neighbours (dev IF, nud STATE, ADDRESS or all)"));
    }
    let is_named = words.has("permanent");
    let all = lines(target, options, &mut words)?;
    let mut changes = Vec::new();
    for Line { entry, state, .. } in all {
        if state == "PERMANENT" && !is_named {
            continue;
        }
        if state != "PERMANENT" {
            // A configured entry can be deleted.
            let mode = Mode::Replace;
            changes.push(Change::AddNeighbour { entry, mode });
        }
        let NeighbourEntry { link, ip, .. } = entry;
        changes.push(Change::DelNeighbour { link, ip });
    }
    match changes.is_empty() {
        true => Ok(()),
        false => target.change(changes),
    }
}

fn add(target: &Target, mut words: Words<'_>, mode: Mode) -> Result<(), Failure> {
    let state = target.network()?;
    let (mut ip, mut mac, mut link) = (None, None, None);
    while let Some(word) = words.next() {
        match word {
            "lladdr" => {
                let text = words.value(word)?;
                mac = Some(parse_mac(text).ok_or_else(|| words.wrong(word, text))?);
            }
            "dev" => link = Some(find_interface(&state, words.value(word)?)?.link),
            "nud" => match words.value(word)? {
                "permanent" | "reachable" => {}
                other => return Err(words.wrong(word, other)),
            },
            text => ip = Some(text.parse().map_err(|_| words.wrong("a neighbour", text))?),
        }
    }
    let entry = NeighbourEntry {
        ip: ip.ok_or_else(|| words.missing("the neighbour's address"))?,
        mac: mac.ok_or_else(|| words.missing("lladdr ADDRESS"))?,
        link: link.ok_or_else(|| words.missing("dev NAME"))?,
    };
    target.change(vec![Change::AddNeighbour { entry, mode }])
}

fn delete(target: &Target, mut words: Words<'_>) -> Result<(), Failure> {
    let state = target.network()?;
    let (mut ip, mut link) = (None, 0);
    while let Some(word) = words.next() {
        match word {
            "dev" => link = find_interface(&state, words.value(word)?)?.link,
            "lladdr" => _ = words.value(word)?,
            text => ip = Some(text.parse().map_err(|_| words.wrong("a neighbour", text))?),
        }
    }
    let ip = ip.ok_or_else(|| words.missing("the neighbour's address"))?;
    target.change(vec![Change::DelNeighbour { link, ip }])
}
