//! `ip route get`: the route that the rules and tables give for a packet.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::net::IpAddr;

use serde_json::{Value, json};
use slipstack_channel::control::net::{
    Carried, MAIN_TABLE, NetworkState, RouteRefusal, RuleAction, RuleEntry, RuleInput, RuleQuery,
};
use slipstack_config::parse_mark;

use super::options::Options;
use super::rule::{read_input, read_protocol, read_tos};
use super::tables;
use crate::failure::Failure;
use crate::net::names::{device_of, find_interface, network_of};
use crate::net::target::Target;
use crate::net::words::Words;

/// Linux's rules for the main table and for the one behind it.
const LAST: [(u32, u32); 2] = [(32_766, MAIN_TABLE), (32_767, 253)];

/// The packet that is asked about.
struct Packet {
    to: IpAddr,
    from: Option<IpAddr>,
    mark: u32,
    /// The link that it has to leave by.
    link: Option<u16>,
    tos: u8,
    carried: Carried,
    /// Origin of the packet.
    input: RuleInput,
}

impl Packet {
    fn query(&self) -> RuleQuery {
        RuleQuery {
            from: self.from,
            to: self.to,
            mark: self.mark,
            tos: self.tos,
            carried: self.carried,
            input: self.input,
            output: self.link,
        }
    }
}

/// The route that a table gives to it.
struct Way {
    via: Option<IpAddr>,
    device: String,
    table: u32,
    source: Option<IpAddr>,
    mtu: Option<u16>,
}

pub(super) fn run(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    let state = target.network()?;
    let packet = read(&state, &mut words)?;
    let found = find(&state, &packet)?;
    options.show(vec![as_json(&packet, &found)], &text(&packet, &found))
}

fn read(state: &NetworkState, words: &mut Words<'_>) -> Result<Packet, Failure> {
    let (mut to, mut from, mut mark, mut link) = (None, None, 0, None);
    let (mut tos, mut input) = (0, RuleInput::Own);
    let mut carried = Carried::NOTHING;
    while let Some(word) = words.next() {
        match word {
            "from" => from = Some(words.parsed(word)?),
            "mark" | "fwmark" => {
                let text = words.value(word)?;
                mark = parse_mark(text).ok_or_else(|| words.wrong(word, text))?.0;
            }
            "tos" | "dsfield" => tos = read_tos(words, word)?.unwrap_or(0),
            "ipproto" => carried.protocol = read_protocol(words, word)?,
            "sport" => carried.source_port = words.parsed(word)?,
            "dport" => carried.destination_port = words.parsed(word)?,
            "iif" => input = read_input(words, word, state)?,
            "oif" | "dev" => link = Some(find_interface(state, words.value(word)?)?.link),
            "to" => to = Some(words.parsed(word)?),
            text => {
                to = Some(
                    text.parse()
                        .map_err(|_| words.wrong("a destination", text))?,
                )
            }
        }
    }
    Ok(Packet {
        to: to.ok_or_else(|| words.missing("a destination"))?,
        from,
        mark,
        link,
        tos,
        carried,
        input,
    })
}

fn find(state: &NetworkState, packet: &Packet) -> Result<Way, Failure> {
    let own = state.interfaces.iter();
    let own = own.flat_map(|it| it.addresses.iter().map(move |(ip, _)| (it, *ip)));
    if let Some((it, ip)) = own.clone().find(|(_, ip)| *ip == packet.to) {
        return Ok(Way {
            via: None,
            device: it.name.clone(),
            table: 255,
            source: Some(ip),
            mtu: None,
        });
    }
    let query = packet.query();
    let last = LAST.map(|(priority, table)| RuleEntry {
        priority,
        table,
        ..RuleEntry::default()
    });
    let own = state.rules.iter().filter(|rule| rule.applies(&query));
    let mut rules: Vec<&RuleEntry> = own.chain(&last).collect();
    rules.sort_by_key(|rule| rule.priority);
    for rule in rules {
        let refusal = match rule.action {
            RuleAction::Lookup => None,
            RuleAction::Unreachable => Some("Network is unreachable"),
            RuleAction::Prohibit => Some("Permission denied"),
            RuleAction::Blackhole => Some("Invalid argument"),
        };
        if let Some(refusal) = refusal {
            return Err(Failure::new(refusal));
        }
        if let Some(found) = in_table(state, packet, rule.table) {
            return found;
        }
    }
    Err(Failure::new("Network is unreachable"))
}

fn contains((net, len): (IpAddr, u8), ip: IpAddr) -> bool {
    net.is_ipv4() == ip.is_ipv4() && network_of((ip, len)) == network_of((net, len))
}

/// `None`: the table has no route.
fn in_table(state: &NetworkState, packet: &Packet, table: u32) -> Option<Result<Way, Failure>> {
    let is_meant = |link: u16| packet.link.is_none_or(|wanted| wanted == link);
    let configured = state.routes.iter().filter(|route| {
        route.table == table
            && contains(route.to, packet.to)
            && is_meant(state.link_of(route).unwrap_or(0))
    });
    let best = configured.min_by_key(|route| (Reverse(route.to.1), route.metric));
    let connected = state.interfaces.iter().filter(|it| is_meant(it.link));
    let connected = connected.flat_map(|it| it.addresses.iter().map(move |net| (it, *net)));
    let near = connected
        .filter(|(_, net)| state.is_connected_in(table) && contains(*net, packet.to))
        .max_by_key(|(_, (_, len))| *len);
    if let Some((it, (own, len))) = near
        && best.is_none_or(|best| best.to.1 < len || (best.to.1 == len && table == MAIN_TABLE))
    {
        return Some(Ok(Way {
            via: None,
            device: it.name.clone(),
            table,
            source: packet.from.or(Some(own)),
            mtu: None,
        }));
    }
    let route = best?;
    if let Some(refusal) = route.refusal {
        let sentence = match refusal {
            RouteRefusal::Unreachable => "No route to host",
            RouteRefusal::Prohibit => "Permission denied",
            RouteRefusal::Blackhole => "Invalid argument",
        };
        return Some(Err(Failure::new(sentence)));
    }
    let hop = route.via.unwrap_or(packet.to);
    let near = state.interface_towards(hop);
    let near = near.and_then(|it| it.addresses.iter().find(|net| contains(**net, hop)));
    let source = packet.from.or(route.source);
    Some(Ok(Way {
        via: route.via,
        device: device_of(state, route).to_owned(),
        table,
        source: source.or(near.map(|(ip, _)| *ip)),
        mtu: route.mtu,
    }))
}

fn text(packet: &Packet, found: &Way) -> String {
    let mut text = match found.table {
        255 => format!("local {}", packet.to),
        _ => packet.to.to_string(),
    };
    if let Some(from) = packet.from {
        let _ = write!(text, " from {from}");
    }
    if let Some(via) = found.via {
        let _ = write!(text, " via {via}");
    }
    let _ = write!(text, " dev {}", found.device);
    if ![MAIN_TABLE, 255].contains(&found.table) {
        let _ = write!(text, " table {}", tables::name_of(found.table));
    }
    if let Some(source) = found.source.filter(|_| packet.from.is_none()) {
        let _ = write!(text, " src {source}");
    }
    if packet.mark != 0 {
        let _ = write!(text, " mark {:#x}", packet.mark);
    }
    if let Some(mtu) = found.mtu {
        let _ = write!(text, " mtu {mtu}");
    }
    text + "\n"
}

fn as_json(packet: &Packet, found: &Way) -> Value {
    json!({
        "dst": packet.to,
        "from": packet.from,
        "gateway": found.via,
        "dev": found.device,
        "table": found.table,
        "prefsrc": found.source,
        "mtu": found.mtu,
    })
}
