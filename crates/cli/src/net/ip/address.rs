//! `ip addr`.

use std::fmt::Write as _;

use serde_json::{Value, json};
use slipstack_channel::control::net::zone::plain;
use slipstack_channel::control::net::{Change, Interface, Mode, NetworkState};

use super::options::Options;
use crate::failure::Failure;
use crate::net::names::{broadcast_of, find_interface, mac_text, parse_net};
use crate::net::target::Target;
use crate::net::words::Words;

pub(super) fn run(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    match words.next() {
        None | Some("show" | "list" | "ls" | "sh" | "s") => show(target, options, words),
        Some("add" | "a") => add(target, words, Mode::Add),
        Some("replace") => add(target, words, Mode::Replace),
        Some("change" | "chg") => add(target, words, Mode::Change),
        Some("del" | "delete" | "d") => delete(target, words),
        Some(other) => Err(words.unknown(other)),
    }
}

fn show(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    let state = target.network()?;
    words.take("dev");
    let only = match words.next() {
        Some(name) => Some(find_interface(&state, name)?.name.clone()),
        None => None,
    };
    words.end()?;
    let interfaces = chosen(&state, only.as_deref());
    let json = interfaces.map(|it| as_json(&state, it, options)).collect();
    options.show(json, &text(&state, only.as_deref(), options))
}

fn chosen<'a>(
    state: &'a NetworkState,
    only: Option<&'a str>,
) -> impl Iterator<Item = &'a Interface> {
    let all = state.interfaces.iter();
    all.filter(move |it| only.is_none_or(|name| it.name == name))
}

pub(super) fn text(state: &NetworkState, only: Option<&str>, options: Options) -> String {
    let mut text = String::new();
    for it in chosen(state, only) {
        text.push_str(&super::link::head(state, it));
        let wanted = it.addresses.iter();
        for net in wanted.filter(|(ip, _)| options.wants(ip.is_ipv6())) {
            let (ip, len) = net;
            let word = if ip.is_ipv4() { "inet" } else { "inet6" };
            let _ = write!(text, "    {word} {ip}/{len}");
            if let Some(broadcast) = broadcast_of(*net) {
                let _ = write!(text, " brd {broadcast}");
            }
            let _ = writeln!(text, " scope global {}", it.name);
        }
        let learnt = state.learnt.iter().flat_map(|learnt| &learnt.addresses);
        for known in learnt.filter(|known| known.link == it.link && options.wants(true)) {
            let scope = if known.ip.is_unicast_link_local() {
                "link"
            } else {
                "global"
            };
            let _ = writeln!(
                text,
                "    inet6 {}/{} scope {scope} dynamic",
                plain(known.ip),
                known.prefix_len
            );
        }
    }
    text
}

fn as_json(state: &NetworkState, it: &Interface, options: Options) -> Value {
    let addresses = it.addresses.iter();
    let addresses = addresses.filter(|(ip, _)| options.wants(ip.is_ipv6()));
    let addresses: Vec<Value> = addresses
        .map(|net| {
            let mut told = json!({
                "family": if net.0.is_ipv4() { "inet" } else { "inet6" },
                "local": net.0,
                "prefixlen": net.1,
                "scope": "global",
                "label": it.name,
            });
            if let Some(broadcast) = broadcast_of(*net) {
                told["broadcast"] = json!(broadcast);
            }
            told
        })
        .collect();
    let mut told = super::link::as_json(state, it);
    told["addr_info"] = Value::Array(addresses);
    told["address"] = json!(mac_text(it.mac));
    told
}

fn add(target: &Target, mut words: Words<'_>, mode: Mode) -> Result<(), Failure> {
    let state = target.network()?;
    let (mut address, mut interface, mut is_certain) = (None, None, false);
    while let Some(word) = words.next() {
        match word {
            "dev" => interface = Some(find_interface(&state, words.value(word)?)?.name.clone()),
            // They follow from the address.
            "broadcast" | "brd" | "scope" | "label" | "metric" => _ = words.value(word)?,
            "nodad" => is_certain = true,
            "noprefixroute" => {}
            "local" => continue,
            text => address = Some(parse_net(text).ok_or_else(|| words.wrong("an address", text))?),
        }
    }
    let address = address.ok_or_else(|| words.missing("an address"))?;
    let interface = interface.ok_or_else(|| words.missing("dev NAME"))?;
    target.change(vec![Change::AddAddress {
        interface,
        address,
        mode,
        is_certain,
    }])
}

fn delete(target: &Target, mut words: Words<'_>) -> Result<(), Failure> {
    let state = target.network()?;
    let (mut found, mut interface) = (None, None);
    while let Some(word) = words.next() {
        match word {
            "dev" => interface = Some(find_interface(&state, words.value(word)?)?.name.clone()),
            text => {
                let net = parse_net(text).ok_or_else(|| words.wrong("an address", text))?;
                found = Some((net.0, text.contains('/').then_some(net.1)));
            }
        }
    }
    let (ip, prefix_len) = found.ok_or_else(|| words.missing("an address"))?;
    let interface = interface.ok_or_else(|| words.missing("dev NAME"))?;
    target.change(vec![Change::DelAddress {
        interface,
        ip,
        prefix_len,
    }])
}
