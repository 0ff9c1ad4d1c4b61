//! `ip addr`.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

use serde_json::{Value, json};
use slipstack_channel::control::net::zone::plain;
use slipstack_channel::control::net::{Change, Interface, Mode, NetworkState};

use super::layout::{self, Shown};
use super::link::{Links, with_counts};
use super::options::Options;
use crate::failure::Failure;
use crate::net::names::{broadcast_of, find_interface, mac_text, network_of, parse_net};
use crate::net::target::Target;
use crate::net::words::Words;

pub(super) fn run(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    match words.next() {
        None | Some("show" | "list" | "ls" | "sh" | "s") => show(target, options, words),
        Some("add" | "a") => add(target, words, Mode::Add),
        Some("replace") => add(target, words, Mode::Replace),
        Some("change" | "chg") => add(target, words, Mode::Change),
        Some("del" | "delete" | "d") => delete(target, words),
        Some("flush" | "f") => flush(target, options, words),
        Some(other) => Err(words.unknown(other)),
    }
}

/// The addresses that are listed.
#[derive(Clone, Copy, Default)]
struct Wanted<'a> {
    options: Options,
    scope: Option<&'a str>,
    /// Network of the addresses.
    to: Option<(IpAddr, u8)>,
}

impl Wanted<'_> {
    fn has(&self, ip: IpAddr) -> bool {
        let is_within = |(net, len): (IpAddr, u8)| {
            net.is_ipv4() == ip.is_ipv4() && network_of((ip, len)) == network_of((net, len))
        };
        self.options.wants(ip.is_ipv6())
            && self.scope.is_none_or(|scope| scope == scope_of(ip))
            && self.to.is_none_or(is_within)
    }

    /// Returns whether an interface with none of them is listed: one that has no address at all,
    /// where nothing is wanted of an address.
    fn has_bare(&self, it: &Interface) -> bool {
        let is_any = self.scope.is_none() && self.to.is_none();
        is_any || (self.to.is_none() && it.addresses.is_empty())
    }
}

/// The scope of an address, as the kernel would give it one.
fn scope_of(ip: IpAddr) -> &'static str {
    match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => "link",
        ip if ip.is_loopback() => "host",
        _ => "global",
    }
}

fn show(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    let state = target.network()?;
    let mut wanted = Wanted {
        options,
        ..Wanted::default()
    };
    let mut links = Links::default();
    while let Some(word) = words.next() {
        match word {
            "scope" => {
                wanted.scope = match words.value(word)? {
                    "global" | "universe" => Some("global"),
                    known @ ("link" | "host") => Some(known),
                    other => return Err(words.wrong(word, other)),
                }
            }
            "to" => {
                let text = words.value(word)?;
                wanted.to = Some(parse_net(text).ok_or_else(|| words.wrong(word, text))?);
            }
            word => links.take(word, &mut words, &state)?,
        }
    }
    let counted = target.counted(&state, options.has_statistics)?;
    let mut text = String::new();
    let mut json = Vec::new();
    for it in links.of(&state) {
        let lines = lines(&state, it, &wanted);
        if lines.is_empty() && !wanted.has_bare(it) {
            continue;
        }
        let counted = counted.get(&it.name);
        text += &layout::text(
            &Shown {
                state: &state,
                it,
                addresses: Some(&lines),
                counted,
            },
            options,
        );
        json.push(with_counts(as_json(&state, it, &wanted), counted));
    }
    options.show(json, &text)
}

/// Removes the addresses of an interface.
fn flush(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    let state = target.network()?;
    words.take("dev");
    let it = find_interface(&state, words.value("flush dev")?)?;
    words.end()?;
    let addresses = it.addresses.iter();
    let addresses = addresses.filter(|(ip, _)| options.wants(ip.is_ipv6()));
    let changes = addresses.map(|&(ip, len)| Change::DelAddress {
        interface: it.name.clone(),
        ip,
        prefix_len: Some(len),
    });
    let changes: Vec<Change> = changes.collect();
    match changes.is_empty() {
        true => Ok(()),
        false => target.change(changes),
    }
}

/// All interfaces with their addresses.
pub(super) fn text(state: &NetworkState, options: Options) -> String {
    let wanted = Wanted {
        options,
        ..Wanted::default()
    };
    let shown = |it: &Interface| {
        layout::text(
            &Shown {
                state,
                it,
                addresses: Some(&lines(state, it, &wanted)),
                counted: None,
            },
            options,
        )
    };
    state.interfaces.iter().map(shown).collect()
}

/// The addresses of an interface, a line each.
fn lines(state: &NetworkState, it: &Interface, wanted: &Wanted<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for net in it.addresses.iter().filter(|(ip, _)| wanted.has(*ip)) {
        let (ip, len) = net;
        let word = if ip.is_ipv4() { "inet" } else { "inet6" };
        let mut line = format!("{word} {ip}/{len}");
        if let Some(broadcast) = broadcast_of(*net) {
            let _ = write!(line, " brd {broadcast}");
        }
        let _ = write!(line, " scope {} {}", scope_of(*ip), it.name);
        lines.push(line);
    }
    for (ip, len, scope) in learnt(state, it, wanted) {
        lines.push(format!("inet6 {ip}/{len} scope {scope} dynamic"));
    }
    lines
}

/// The addresses that routers have brought an interface, with their scopes.
fn learnt<'a>(
    state: &'a NetworkState,
    it: &Interface,
    wanted: &'a Wanted<'a>,
) -> impl Iterator<Item = (Ipv6Addr, u8, &'static str)> + 'a {
    let link = it.link;
    let all = state.learnt.iter().flat_map(|learnt| &learnt.addresses);
    let own = all.filter(move |known| known.link == link);
    let own = own.map(|known| (plain(known.ip), known.prefix_len));
    own.filter(|(ip, _)| wanted.has((*ip).into()))
        .map(|(ip, len)| (ip, len, scope_of(ip.into())))
}

/// All addresses one by one, each with its interface.
pub(super) fn entries(state: &NetworkState) -> impl Iterator<Item = Value> + '_ {
    const ALL: &Wanted<'_> = &Wanted {
        options: Options::NONE,
        scope: None,
        to: None,
    };
    state.interfaces.iter().flat_map(|it| {
        let addresses = it.addresses.iter();
        let own = addresses.map(|(ip, len)| (*ip, *len));
        let learnt = learnt(state, it, ALL);
        let all = own.chain(learnt.map(|(ip, len, _)| (ip.into(), len)));
        all.map(|(ip, len)| json!({"ifname": it.name, "local": ip, "prefixlen": len}))
    })
}

fn as_json(state: &NetworkState, it: &Interface, wanted: &Wanted<'_>) -> Value {
    let addresses = it.addresses.iter();
    let addresses = addresses.filter(|(ip, _)| wanted.has(*ip));
    let mut addresses: Vec<Value> = addresses
        .map(|net| {
            let mut row = json!({
                "family": if net.0.is_ipv4() { "inet" } else { "inet6" },
                "local": net.0,
                "prefixlen": net.1,
                "scope": scope_of(net.0),
                "label": it.name,
            });
            if let Some(broadcast) = broadcast_of(*net) {
                row["broadcast"] = json!(broadcast);
            }
            row
        })
        .collect();
    addresses.extend(learnt(state, it, wanted).map(|(ip, len, scope)| {
        json!({
            "family": "inet6", "local": ip, "prefixlen": len, "scope": scope, "dynamic": true,
        })
    }));
    let mut row = super::link::as_json(state, it);
    row["addr_info"] = Value::Array(addresses);
    row["address"] = json!(mac_text(it.mac));
    row
}

fn add(target: &Target, mut words: Words<'_>, mode: Mode) -> Result<(), Failure> {
    let state = target.network()?;
    let (mut address, mut interface, mut is_certain) = (None, None, false);
    while let Some(word) = words.next() {
        match word {
            "dev" => interface = Some(find_interface(&state, words.value(word)?)?.name.clone()),
            // These values follow from the address.
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
