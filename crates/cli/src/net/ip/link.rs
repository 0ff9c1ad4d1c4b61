//! `ip link`.

use serde_json::{Value, json};
use slipstack_channel::control::net::{Change, Interface, NetworkState};

use super::layout::{self, Shown};
use super::options::Options;
use crate::counters::Counted;
use crate::failure::Failure;
use crate::net::names::{find_interface, mac_text};
use crate::net::target::Target;
use crate::net::words::Words;

/// IEEE 802.1Q 9.6: 4095 is reserved.
const VLAN_MAX: u16 = 4094;

pub(super) fn run(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    match words.next() {
        None | Some("show" | "list" | "ls" | "sh" | "s") => show(target, options, words),
        Some("add" | "a") => add(target, words),
        Some("del" | "delete" | "d") => delete(target, words),
        Some("set") => set(target, words),
        Some(other) => Err(words.unknown(other)),
    }
}

/// The interfaces that are listed.
#[derive(Default)]
pub(super) struct Links {
    name: Option<String>,
    is_up: bool,
    is_vlan: bool,
}

impl Links {
    /// Takes a word that selects interfaces.
    pub(super) fn take(
        &mut self,
        word: &str,
        words: &mut Words<'_>,
        state: &NetworkState,
    ) -> Result<(), Failure> {
        match word {
            "up" => self.is_up = true,
            "type" => match words.value(word)? {
                "vlan" => self.is_vlan = true,
                other => return Err(words.wrong(word, other)),
            },
            "dev" => {
                let name = words.value(word)?;
                self.name = Some(find_interface(state, name)?.name.clone());
            }
            name => self.name = Some(find_interface(state, name)?.name.clone()),
        }
        Ok(())
    }

    pub(super) fn of<'a>(&'a self, state: &'a NetworkState) -> impl Iterator<Item = &'a Interface> {
        let all = state.interfaces.iter();
        all.filter(|it| {
            self.name.as_ref().is_none_or(|name| it.name == *name)
                && !(self.is_up && it.is_down)
                && !(self.is_vlan && it.is_port())
        })
    }
}

fn show(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    let state = target.network()?;
    let mut links = Links::default();
    while let Some(word) = words.next() {
        links.take(word, &mut words, &state)?;
    }
    let counted = target.counted(&state, options.has_statistics)?;
    let mut text = String::new();
    let mut json = Vec::new();
    for it in links.of(&state) {
        let counted = counted.get(&it.name);
        text += &layout::text(
            &Shown {
                state: &state,
                it,
                addresses: None,
                counted,
            },
            options,
        );
        json.push(with_counts(as_json(&state, it), counted));
    }
    options.show(json, &text)
}

/// Adds the counters of an interface as iproute2 has them.
pub(super) fn with_counts(mut row: Value, counted: Option<&Counted>) -> Value {
    if let Some(Counted {
        traffic,
        rx_errors,
        tx_errors,
    }) = counted
    {
        row["stats64"] = json!({
            "rx": {"bytes": traffic.rx_bytes, "packets": traffic.rx_packets,
                "errors": rx_errors, "dropped": traffic.rx_dropped},
            "tx": {"bytes": traffic.tx_bytes, "packets": traffic.tx_packets,
                "errors": tx_errors, "dropped": traffic.tx_dropped},
        });
    }
    row
}

/// The two lines that every interface begins with.
pub(super) fn head(state: &NetworkState, it: &Interface) -> String {
    let at = match it.is_port() {
        true => String::new(),
        false => format!("@{}", state.parent_of(it).name),
    };
    let tag = match it.tag.id {
        0 => String::new(),
        id => format!(
            "    vlan protocol {} id {id}{}\n",
            protocol(it),
            priorities(it)
        ),
    };
    format!(
        "{}: {}{at}: <{}> mtu {} state {}\n    link/ether {} brd ff:ff:ff:ff:ff:ff\n{tag}",
        it.index,
        it.name,
        flags(it).join(","),
        it.mtu,
        operstate(it),
        mac_text(it.mac)
    )
}

pub(super) fn flags(it: &Interface) -> &'static [&'static str] {
    match it.is_down {
        true => &["BROADCAST", "MULTICAST"],
        false => &["BROADCAST", "MULTICAST", "UP", "LOWER_UP"],
    }
}

pub(super) fn operstate(it: &Interface) -> &'static str {
    match it.is_down {
        true => "DOWN",
        false => "UP",
    }
}

pub(super) fn as_json(state: &NetworkState, it: &Interface) -> Value {
    let mut row = json!({
        "ifindex": it.index,
        "ifname": it.name,
        "flags": flags(it),
        "mtu": it.mtu,
        "operstate": operstate(it),
        "link_type": "ether",
        "address": mac_text(it.mac),
    });
    if !it.is_port() {
        let id = it.tag.id;
        row["link"] = json!(state.parent_of(it).name);
        row["linkinfo"] =
            json!({"info_kind": "vlan", "info_data": {"protocol": protocol(it), "id": id}});
        let of_class = |(from, to): (usize, &u8)| json!({"from": from, "to": to});
        let map = it.tag.priorities.iter().enumerate();
        let map: Vec<Value> = map.filter(|(_, to)| **to != 0).map(of_class).collect();
        if !map.is_empty() {
            row["linkinfo"]["info_data"]["egress_qos"] = json!(map);
        }
    }
    row
}

fn protocol(it: &Interface) -> &'static str {
    match it.tag.is_provider {
        true => "802.1ad",
        false => "802.1Q",
    }
}

fn priorities(it: &Interface) -> String {
    let map = it.tag.priorities.iter().enumerate();
    let map = map.filter(|(_, to)| **to != 0);
    let map: Vec<String> = map.map(|(from, to)| format!(" {from}:{to}")).collect();
    match map.is_empty() {
        true => String::new(),
        false => format!(" egress-qos-map {{{} }}", map.concat()),
    }
}

/// Reads the pairs `CLASS:PRIORITY` behind `egress-qos-map`.
fn read_priorities(words: &mut Words<'_>, map: &mut [u8; 8]) -> Result<(), Failure> {
    let pair = |word: &str| {
        let (from, to) = word.split_once(':')?;
        let (from, to): (usize, u8) = (from.parse().ok()?, to.parse().ok()?);
        (from < 8 && to < 8).then_some((from, to))
    };
    let mut count = 0;
    while let Some(word) = words.peek().filter(|word| word.contains(':')) {
        let (from, to) = pair(word).ok_or_else(|| words.wrong("egress-qos-map", word))?;
        map[from] = to;
        words.next();
        count += 1;
    }
    match count {
        0 => Err(words.missing("CLASS:PRIORITY, each from 0 to 7")),
        _ => Ok(()),
    }
}

/// `link add link eth1 name eth1.10 type vlan id 10`
fn add(target: &Target, mut words: Words<'_>) -> Result<(), Failure> {
    let state = target.network()?;
    let (mut name, mut kind, mut vlan) = (None, None, None);
    let (mut is_provider, mut priorities) = (false, [0; 8]);
    let mut parent = state.own();
    while let Some(word) = words.next() {
        match word {
            "link" => parent = find_interface(&state, words.value(word)?)?,
            "name" | "dev" => name = Some(words.value(word)?.to_owned()),
            "type" => kind = Some(words.value(word)?),
            "id" => vlan = Some(words.parsed(word)?),
            "protocol" | "proto" => match words.value(word)? {
                "802.1Q" | "802.1q" => is_provider = false,
                "802.1ad" => is_provider = true,
                other => return Err(words.wrong(word, other)),
            },
            "egress-qos-map" => read_priorities(&mut words, &mut priorities)?,
            other if name.is_none() => name = Some(other.to_owned()),
            other => return Err(words.unknown(other)),
        }
    }
    if kind != Some("vlan") {
        return Err(words.missing("type vlan"));
    }
    let id: u16 = vlan.ok_or_else(|| words.missing("id NUMBER"))?;
    if !(1..=VLAN_MAX).contains(&id) {
        return Err(words.wrong("id", &id.to_string()));
    }
    let name = name.unwrap_or_else(|| format!("{}.{id}", parent.name));
    let mut changes = vec![state.new_vlan(parent, &name, id, is_provider)];
    if priorities != [0; 8] {
        changes.push(Change::SetPriorities { name, priorities });
    }
    target.change(changes)
}

fn delete(target: &Target, mut words: Words<'_>) -> Result<(), Failure> {
    words.take("dev");
    let name = words.value("delete")?;
    let state = target.network()?;
    let name = find_interface(&state, name)?.name.clone();
    target.change(vec![Change::DelInterface { name }])
}

fn set(target: &Target, mut words: Words<'_>) -> Result<(), Failure> {
    words.take("dev");
    let state = target.network()?;
    let found = find_interface(&state, words.value("set")?)?;
    let name = found.name.clone();
    let mut changes = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "mtu" => changes.push(Change::SetMtu {
                name: name.clone(),
                mtu: words.parsed(word)?,
            }),
            // `type vlan` before it.
            "type" if words.peek() == Some("vlan") => _ = words.next(),
            "egress-qos-map" => {
                let mut priorities = found.tag.priorities;
                read_priorities(&mut words, &mut priorities)?;
                changes.push(Change::SetPriorities {
                    name: name.clone(),
                    priorities,
                });
            }
            "up" | "down" => changes.push(Change::SetUp {
                name: name.clone(),
                is_up: word == "up",
            }),
            other => return Err(words.unknown(other)),
        }
    }
    match changes.is_empty() {
        true => Ok(()),
        false => target.change(changes),
    }
}
