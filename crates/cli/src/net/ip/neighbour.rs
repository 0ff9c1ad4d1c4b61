//! `ip neigh`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::json;
use slipstack_channel::control::net::{Answer, Change, Mode, NeighbourEntry, Query};

use super::options::Options;
use crate::failure::Failure;
use crate::net::names::{find_interface, mac_text, parse_mac};
use crate::net::target::Target;
use crate::net::words::Words;

pub(super) fn run(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    match words.next() {
        None | Some("show" | "list" | "ls" | "sh" | "s") => show(target, options),
        Some("add" | "a") => add(target, words, Mode::Add),
        Some("replace") => add(target, words, Mode::Replace),
        Some("change" | "chg") => add(target, words, Mode::Change),
        Some("del" | "delete" | "d") => delete(target, words),
        Some(other) => Err(words.unknown(other)),
    }
}

fn show(target: &Target, options: Options) -> Result<(), Failure> {
    let state = target.network()?;
    let Answer::Neighbours(known) = target.ask(Query::Neighbours)? else {
        return Err(Failure::new("the keeper gave an answer that does not fit"));
    };
    let mut all: BTreeMap<IpAddr, (String, [u8; 6], &str)> = BTreeMap::new();
    for (_, ip, mac) in known {
        let interface = state.interface_towards(ip).unwrap_or(state.own());
        all.insert(ip, (interface.name.clone(), mac, "REACHABLE"));
    }
    for entry in &state.neighbours {
        let interface = state.find_link(entry.link).unwrap_or(state.own());
        all.insert(entry.ip, (interface.name.clone(), entry.mac, "PERMANENT"));
    }
    all.retain(|ip, _| options.wants(ip.is_ipv6()));
    let lines = all.iter().map(|(ip, (name, mac, kind))| {
        format!("{ip} dev {name} lladdr {} {kind}\n", mac_text(*mac))
    });
    let text: String = lines.collect();
    let json = all.iter().map(|(ip, (name, mac, kind))| {
        json!({"dst": ip, "dev": name, "lladdr": mac_text(*mac), "state": [kind]})
    });
    options.show(json.collect(), &text)
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
