//! `ip link`.

use serde_json::{Value, json};
use slipstack_channel::control::net::{Change, Interface, NetworkState};
use slipstack_device::LinkId;

use super::options::Options;
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

fn show(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    let state = target.network()?;
    words.take("dev");
    let only = match words.next() {
        Some(name) => Some(find_interface(&state, name)?.name.clone()),
        None => None,
    };
    words.end()?;
    let wanted = state.interfaces.iter();
    let wanted = wanted.filter(|it| only.as_ref().is_none_or(|name| it.name == *name));
    let wanted: Vec<&Interface> = wanted.collect();
    let text: String = wanted.iter().map(|it| head(&state, it)).collect();
    let json = wanted.iter().map(|it| as_json(&state, it)).collect();
    options.show(json, &text)
}

/// The two lines that every interface begins with.
pub(super) fn head(state: &NetworkState, it: &Interface) -> String {
    let at = match it.is_port() {
        true => String::new(),
        false => format!("@{}", state.port_of(it).name),
    };
    let tag = match it.link().vlan() {
        0 => String::new(),
        id => format!("    vlan protocol 802.1Q id {id}\n"),
    };
    let state = match it.is_down {
        true => "BROADCAST,MULTICAST> mtu",
        false => "BROADCAST,MULTICAST,UP,LOWER_UP> mtu",
    };
    format!(
        "{}: {}{at}: <{state} {}\n    link/ether {}\n{tag}",
        it.index,
        it.name,
        it.mtu,
        mac_text(it.mac)
    )
}

pub(super) fn as_json(state: &NetworkState, it: &Interface) -> Value {
    let flags: &[&str] = match it.is_down {
        true => &["BROADCAST", "MULTICAST"],
        false => &["BROADCAST", "MULTICAST", "UP", "LOWER_UP"],
    };
    let mut told = json!({
        "ifindex": it.index,
        "ifname": it.name,
        "flags": flags,
        "mtu": it.mtu,
        "operstate": if it.is_down { "DOWN" } else { "UP" },
        "link_type": "ether",
        "address": mac_text(it.mac),
    });
    if !it.is_port() {
        let id = it.link().vlan();
        told["link"] = json!(state.port_of(it).name);
        told["linkinfo"] =
            json!({"info_kind": "vlan", "info_data": {"protocol": "802.1Q", "id": id}});
    }
    told
}

/// `link add link eth1 name eth1.10 type vlan id 10`
fn add(target: &Target, mut words: Words<'_>) -> Result<(), Failure> {
    let state = target.network()?;
    let (mut name, mut kind, mut vlan) = (None, None, None);
    let mut parent = state.own();
    while let Some(word) = words.next() {
        match word {
            "link" => {
                parent = find_interface(&state, words.value(word)?)?;
                if !parent.is_port() {
                    return Err(Failure::new("ip: a VLAN within a VLAN is not supported"));
                }
            }
            "name" | "dev" => name = Some(words.value(word)?.to_owned()),
            "type" => kind = Some(words.value(word)?),
            "id" => vlan = Some(words.parsed(word)?),
            "protocol" | "proto" => match words.value(word)? {
                "802.1Q" | "802.1q" => {}
                other => return Err(words.wrong(word, other)),
            },
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
    let vlan = LinkId::new(parent.link().port(), id).0;
    target.change(vec![Change::AddVlan { name, vlan }])
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
    let name = find_interface(&state, words.value("set")?)?.name.clone();
    let mut changes = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "mtu" => changes.push(Change::SetMtu {
                name: name.clone(),
                mtu: words.parsed(word)?,
            }),
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
