//! `slipstack ifconfig`, `ff_ifconfig`.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::json;
use slipstack_channel::control::net::{Change, Interface, Mode, NetworkState};
use slipstack_config::Settings;

use super::take_engine;
use crate::failure::Failure;
use crate::net::names::{broadcast_of, find_interface, link_in, mac_text, parse_net, shown_name};
use crate::net::target::Target;
use crate::net::words::Words;
use crate::output::print;

/// IEEE 802.1Q 9.6: 4095 is reserved.
const VLAN_MAX: u16 = 4094;

pub fn run(settings: &Settings, words: &[String]) -> Result<(), Failure> {
    let mut words = Words::new("ifconfig", words);
    let (mut engine, mut is_list, mut is_json) = (0, false, false);
    let (mut style, mut only_down) = (Style::default(), None);
    while words.peek().is_some_and(|word| word.starts_with('-')) {
        if let Some(number) = take_engine(&mut words, "-p")? {
            engine = number;
            continue;
        }
        match words.next() {
            Some("-l") => is_list = true,
            Some("--json") => is_json = true,
            Some("-d") => only_down = Some(true),
            Some("-u") => only_down = Some(false),
            Some("-f") => style.read(&mut words)?,
            // All of them are shown, with all that there is.
            Some("-a" | "-v" | "-m") => {}
            Some(other) => return Err(words.unknown(other)),
            None => {}
        }
    }
    let target = Target::find(settings, engine)?;
    let state = target.network()?;
    let Some(name) = words.next() else {
        let all = state.interfaces.iter();
        let all = all.filter(|it| only_down.is_none_or(|down| state.is_down(it) == down));
        if is_list {
            let names: Vec<String> = all.map(|it| shown_name(&state, it)).collect();
            return print(&match is_json {
                true => format!("{}\n", json!(names)),
                false => format!("{}\n", names.join(" ")),
            });
        }
        return match is_json {
            true => print(&format!("{}\n", json!(all.collect::<Vec<_>>()))),
            false => print(&all.map(|it| style.text(&state, it)).collect::<String>()),
        };
    };
    if words.peek().is_none() {
        let found = find_interface(&state, name)?;
        return print(&match is_json {
            true => format!("{}\n", json!([found])),
            false => style.text(&state, found),
        });
    }
    let changes = changes(&state, name, &mut words)?;
    match changes.is_empty() {
        true => Ok(()),
        false => target.change(changes),
    }
}

/// Format of addresses (`-f inet:cidr,ether:dash`).
#[derive(Default)]
struct Style {
    is_v4_cidr: bool,
    is_v4_dotted: bool,
    is_v6_cidr: bool,
    has_dashes: bool,
}

impl Style {
    fn read(&mut self, words: &mut Words<'_>) -> Result<(), Failure> {
        let text = words.value("-f")?;
        for part in text.split(',') {
            match part {
                "inet:cidr" => self.is_v4_cidr = true,
                "inet:dotted" => self.is_v4_dotted = true,
                "inet6:cidr" => self.is_v6_cidr = true,
                "ether:dash" => self.has_dashes = true,
                "inet:default" | "inet:hex" | "inet6:default" | "inet6:numeric" | "inet6:addr"
                | "ether:default" | "ether:colon" | "addr:default" | "addr:numeric" => {}
                _ => return Err(words.wrong("-f", part)),
            }
        }
        Ok(())
    }

    fn text(&self, state: &NetworkState, it: &Interface) -> String {
        let flags = match it.is_down {
            true => "8802<BROADCAST,SIMPLEX,MULTICAST>",
            false => "8843<UP,BROADCAST,RUNNING,SIMPLEX,MULTICAST>",
        };
        let mac = mac_text(it.mac);
        let mut text = format!(
            "{}: flags={flags} metric 0 mtu {}\n\tether {}\n",
            shown_name(state, it),
            it.mtu,
            if self.has_dashes {
                mac.replace(':', "-")
            } else {
                mac
            }
        );
        for &net in &it.addresses {
            text.push_str(&self.address(net));
        }
        if !it.is_port() {
            let port = shown_name(state, state.parent_of(it));
            let vlan = it.tag.id;
            let kind = if it.tag.is_provider {
                "802.1ad"
            } else {
                "802.1q"
            };
            let priority = it.tag.priorities[0];
            let _ = writeln!(
                text,
                "\tvlan: {vlan} vlanproto: {kind} vlanpcp: {priority} parent interface: {port}"
            );
        }
        text
    }

    fn address(&self, (ip, len): (IpAddr, u8)) -> String {
        match ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                let broadcast = broadcast_of((ip.into(), len)).unwrap_or(ip.into());
                let net = match (self.is_v4_cidr, self.is_v4_dotted) {
                    (true, _) => format!("{ip}/{len}"),
                    (_, true) => format!("{ip} netmask {}", Ipv4Addr::from(mask)),
                    _ => format!("{ip} netmask {mask:#010x}"),
                };
                format!("\tinet {net} broadcast {broadcast}\n")
            }
            IpAddr::V6(ip) if self.is_v6_cidr => format!("\tinet6 {ip}/{len}\n"),
            IpAddr::V6(ip) => format!("\tinet6 {ip} prefixlen {len}\n"),
        }
    }
}

/// The port and the VLAN in the name of an interface: `eth1.10`, `f-stack-0.10`, `vlan10`.
fn vlan_in<'a>(state: &'a NetworkState, name: &str) -> (&'a Interface, Option<u16>) {
    let of_vlan = name.strip_prefix("vlan").and_then(|id| id.parse().ok());
    match link_in(state, name) {
        Some((port, vlan)) => (port, vlan),
        None => (state.own(), of_vlan),
    }
}

fn changes(
    state: &NetworkState,
    name: &str,
    words: &mut Words<'_>,
) -> Result<Vec<Change>, Failure> {
    let mut changes = Vec::new();
    let found = find_interface(state, name);
    let mut called = found
        .as_ref()
        .map_or(name, |it| it.name.as_str())
        .to_owned();
    while let Some(word) = words.next() {
        match word {
            "create" | "plumb" => {
                let (mut port, mut vlan) = vlan_in(state, name);
                if words.take("vlan") {
                    vlan = Some(words.parsed("vlan")?);
                }
                if words.take("vlandev") {
                    port = find_interface(state, words.value("vlandev")?)?;
                }
                let known = vlan.filter(|id| (1..=VLAN_MAX).contains(id));
                let id = known.ok_or_else(|| {
                    let own = &state.own().name;
                    Failure::new(format!(
                        "ifconfig: {name} cannot be created: a VLAN is named as {own}.10"
                    ))
                })?;
                name.clone_into(&mut called);
                changes.push(state.new_vlan(port, name, id, read_protocol(words)?));
            }
            "vlanpcp" => {
                let priority = words.parsed(word)?;
                changes.push(Change::SetPriorities {
                    name: called.clone(),
                    priorities: [priority; 8],
                });
            }
            "destroy" | "unplumb" => changes.push(Change::DelInterface {
                name: found.as_ref().map_err(again)?.name.clone(),
            }),
            "mtu" => changes.push(Change::SetMtu {
                name: called.clone(),
                mtu: words.parsed(word)?,
            }),
            "up" | "down" => changes.push(Change::SetUp {
                name: called.clone(),
                is_up: word == "up",
            }),
            "inet" | "inet6" => {
                let it = found.as_ref().ok();
                if it.is_none() && changes.is_empty() {
                    return Err(again(&Failure::new(format!(
                        "interface {name} does not exist"
                    ))));
                }
                changes.extend(address(it.copied(), &called, word == "inet6", words)?);
            }
            other => return Err(words.unknown(other)),
        }
    }
    Ok(changes)
}

/// `vlanproto 802.1ad`, or nothing.
fn read_protocol(words: &mut Words<'_>) -> Result<bool, Failure> {
    if !words.take("vlanproto") {
        return Ok(false);
    }
    match words.value("vlanproto")? {
        "802.1ad" | "802.1AD" | "qinq" => Ok(true),
        "802.1q" | "802.1Q" => Ok(false),
        other => Err(words.wrong("vlanproto", other)),
    }
}

fn again(failure: &Failure) -> Failure {
    Failure::new(format!("ifconfig: {failure}"))
}

/// `A netmask M broadcast B [alias|-alias|delete]`, `A prefixlen N`. Without `alias` the address
/// takes the place of the first of its family.
fn address(
    it: Option<&Interface>,
    name: &str,
    is_v6: bool,
    words: &mut Words<'_>,
) -> Result<Vec<Change>, Failure> {
    let text = words.value("an address")?;
    let (ip, mut len) = parse_net(text)
        .filter(|(ip, _)| ip.is_ipv6() == is_v6)
        .ok_or_else(|| words.wrong("an address", text))?;
    if !text.contains('/') {
        // FreeBSD's default: for IPv4 the class's.
        len = match ip {
            IpAddr::V4(ip) => class_len(ip),
            IpAddr::V6(_) => 64,
        };
    }
    let (mut is_alias, mut is_removal, mut is_certain) = (false, false, false);
    while let Some(word) = words.peek() {
        match word {
            "netmask" => {
                words.next();
                let mask = words.value(word)?;
                len = mask_len(mask).ok_or_else(|| words.wrong(word, mask))?;
            }
            "prefixlen" => {
                words.next();
                len = words.parsed(word)?;
            }
            "broadcast" | "metric" | "scopeid" => {
                words.next();
                words.value(word)?;
            }
            "alias" | "add" => is_alias = words.take(word),
            "-alias" | "delete" | "remove" => is_removal = words.take(word),
            "no_dad" => is_certain = words.take(word),
            "autoconf" => _ = words.take(word),
            _ => break,
        }
    }
    let interface = name.to_owned();
    if is_removal {
        let prefix_len = None;
        return Ok(vec![Change::DelAddress {
            interface,
            ip,
            prefix_len,
        }]);
    }
    let mut changes = Vec::new();
    let mut old = it.into_iter().flat_map(|it| &it.addresses);
    let first = old.find(|(old, _)| old.is_ipv6() == is_v6);
    if let Some((old, _)) = first.filter(|(old, _)| !is_alias && !is_v6 && *old != ip) {
        changes.push(Change::DelAddress {
            interface: interface.clone(),
            ip: *old,
            prefix_len: None,
        });
    }
    changes.push(Change::AddAddress {
        interface,
        address: (ip, len),
        // Giving an address again changes its length.
        mode: Mode::Replace,
        is_certain,
    });
    Ok(changes)
}

fn class_len(ip: Ipv4Addr) -> u8 {
    match ip.octets()[0] {
        0..=127 => 8,
        128..=191 => 16,
        _ => 24,
    }
}

/// 255.255.255.0 or 0xffffff00, without holes.
pub(super) fn mask_len(text: &str) -> Option<u8> {
    let bits = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => text.parse::<Ipv4Addr>().ok()?.to_bits(),
    };
    let len = bits.leading_ones();
    let is_whole = bits.checked_shl(len).unwrap_or(0) == 0;
    is_whole.then_some(len as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_read_in_both_ways_and_without_holes() {
        let table = [
            ("255.255.255.0", Some(24)),
            ("0xffffff00", Some(24)),
            ("255.255.255.255", Some(32)),
            ("0.0.0.0", Some(0)),
            ("255.0.255.0", None),
            ("mask", None),
        ];
        for (text, len) in table {
            assert_eq!(mask_len(text), len, "{text}");
        }
    }
}
