//! `slipstack route`, `ff_route`.

use std::fmt::Write as _;
use std::net::IpAddr;

use serde_json::{Value, json};
use slipstack_channel::control::net::{
    Change, MAIN_TABLE, Mode, NetworkState, RouteEntry, RouteKey,
};
use slipstack_config::Settings;

use super::ifconfig::mask_len;
use super::{fib_of, table_of, take_engine};
use crate::failure::Failure;
use crate::net::names::{find_interface, network_of, parse_net, shown_name};
use crate::net::target::Target;
use crate::net::words::Words;
use crate::output::print;

pub fn run(settings: &Settings, words: &[String]) -> Result<(), Failure> {
    let mut words = Words::new("route", words);
    let (mut engine, mut is_quiet, mut is_v6, mut is_json) = (0, false, false, false);
    while words.peek().is_some_and(|word| word.starts_with('-')) {
        if let Some(number) = take_engine(&mut words, "-p")? {
            engine = number;
            continue;
        }
        match words.next() {
            Some("-q") => is_quiet = true,
            Some("-6") => is_v6 = true,
            Some("--json") => is_json = true,
            Some("-n" | "-v" | "-4" | "-d" | "-t") | None => {}
            Some(other) => return Err(words.unknown(other)),
        }
    }
    let target = Target::find(settings, engine)?;
    let state = target.network()?;
    let verb = words
        .next()
        .ok_or_else(|| words.missing("add, delete, change, get, flush or monitor"))?;
    let said = match verb {
        "add" | "change" => {
            let asked = Asked::read(&state, &mut words, is_v6)?;
            let mode = if verb == "add" {
                Mode::Add
            } else {
                Mode::Change
            };
            if asked.route.via.is_none() && asked.route.link.is_none() {
                return Err(words.missing("the gateway"));
            }
            let route = asked.route.clone();
            target.change(vec![Change::AddRoute { route, mode }])?;
            asked.said(verb)
        }
        "delete" | "del" => {
            let asked = Asked::read(&state, &mut words, is_v6)?;
            target.change(vec![Change::DelRoute(RouteKey {
                via: asked.route.via,
                table: asked.route.table,
                ..RouteKey::to(asked.route.to)
            })])?;
            asked.said("delete")
        }
        "get" | "show" => {
            let asked = Asked::read(&state, &mut words, is_v6)?;
            let found = Found::of(&state, asked.route.to.0, asked.route.table)?;
            return print(&match is_json {
                true => format!("{}\n", found.as_json()),
                false => found.text(),
            });
        }
        "monitor" => return crate::net::ip::monitor(&target, is_json),
        "flush" => flush(&target, &state, &mut words)?,
        other => return Err(words.unknown(other)),
    };
    if is_quiet { Ok(()) } else { print(&said) }
}

/// Removes all routes, or those of one FIB.
fn flush(target: &Target, state: &NetworkState, words: &mut Words<'_>) -> Result<String, Failure> {
    let table = match words.take("-fib") {
        true => Some(table_of(words.parsed("-fib")?)?),
        false => None,
    };
    let routes = state.routes.iter();
    let routes = routes.filter(|route| table.is_none_or(|table| route.table == table));
    let removal = |route: &RouteEntry| {
        Change::DelRoute(RouteKey {
            to: route.to,
            table: route.table,
            via: route.via,
            metric: Some(route.metric),
            link: None,
        })
    };
    target.change(routes.map(removal).collect())?;
    Ok("done\n".to_owned())
}

/// The description of a route in the words.
struct Asked {
    route: RouteEntry,
    is_host: bool,
}

impl Asked {
    fn read(state: &NetworkState, words: &mut Words<'_>, is_v6: bool) -> Result<Asked, Failure> {
        let (mut is_v6, mut is_host, mut is_net) = (is_v6, false, false);
        let (mut to, mut via, mut len, mut link) = (None, None, None, None);
        let mut table = MAIN_TABLE;
        while let Some(word) = words.next() {
            match word {
                "-inet" | "-4" => {}
                "-inet6" | "-6" => is_v6 = true,
                "-net" => is_net = true,
                "-host" => is_host = true,
                "-fib" => table = table_of(words.parsed(word)?)?,
                "-netmask" => {
                    let mask = words.value(word)?;
                    len = Some(mask_len(mask).ok_or_else(|| words.wrong(word, mask))?);
                }
                "-prefixlen" => len = Some(words.parsed(word)?),
                "-interface" | "-iface" => {
                    link = Some(find_interface(state, words.value(word)?)?.link);
                }
                "default" if to.is_none() => to = Some("default"),
                text if to.is_none() => to = Some(text),
                text if via.is_none() => {
                    via = Some(text.parse().map_err(|_| words.wrong("a gateway", text))?);
                }
                // The mask may stand behind the gateway.
                mask if is_net && len.is_none() => {
                    len = Some(mask_len(mask).ok_or_else(|| words.unknown(mask))?);
                }
                other => return Err(words.unknown(other)),
            }
        }
        let text = to.ok_or_else(|| words.missing("a destination"))?;
        is_v6 |= via.is_some_and(|via: IpAddr| via.is_ipv6());
        let everywhere = match is_v6 {
            true => (IpAddr::from([0; 16]), 0),
            false => (IpAddr::from([0; 4]), 0),
        };
        let (ip, own_len) = match text {
            "default" => everywhere,
            text => parse_net(text).ok_or_else(|| words.wrong("a destination", text))?,
        };
        // A network of all zeros without a length is the default route.
        let is_everywhere = is_net && ip.is_unspecified() && !text.contains('/');
        let len = match (len, is_everywhere) {
            (Some(len), _) => len,
            (None, true) => 0,
            (None, false) => own_len,
        };
        let route = RouteEntry {
            to: network_of((ip, len)),
            via,
            link,
            table,
            ..RouteEntry::default_by(ip)
        };
        Ok(Asked { route, is_host })
    }

    fn said(&self, verb: &str) -> String {
        let (ip, len) = self.route.to;
        let kind = match self.is_host || len == if ip.is_ipv4() { 32 } else { 128 } {
            true => "host",
            false => "net",
        };
        let to = match len {
            0 => "default".to_owned(),
            _ => format!("{ip}/{len}"),
        };
        let mut text = format!("{verb} {kind} {to}");
        if let Some(via) = self.route.via {
            let _ = write!(text, ": gateway {via}");
        }
        let _ = writeln!(text, " fib {}", fib_of(self.route.table));
        text
    }
}

fn shown_device(state: &NetworkState, route: &RouteEntry) -> String {
    let found = state.link_of(route).and_then(|link| state.find_link(link));
    shown_name(state, found.unwrap_or(state.own()))
}

/// The route of a table that an address takes.
struct Found {
    ip: IpAddr,
    to: (IpAddr, u8),
    via: Option<IpAddr>,
    fib: u32,
    device: String,
}

impl Found {
    fn text(&self) -> String {
        let (to, len) = self.to;
        let mut text = format!("   route to: {}\ndestination: {to}/{len}\n", self.ip);
        if let Some(via) = self.via {
            let _ = writeln!(text, "    gateway: {via}");
        }
        let _ = writeln!(
            text,
            "        fib: {}\n  interface: {}",
            self.fib, self.device
        );
        text
    }

    fn as_json(&self) -> Value {
        let (to, len) = self.to;
        json!({
            "route_to": self.ip,
            "destination": format!("{to}/{len}"),
            "gateway": self.via,
            "fib": self.fib,
            "interface": self.device,
        })
    }

    fn of(state: &NetworkState, ip: IpAddr, table: u32) -> Result<Found, Failure> {
        let contains = |(net, len): (IpAddr, u8)| {
            net.is_ipv4() == ip.is_ipv4() && network_of((ip, len)) == network_of((net, len))
        };
        let configured = state.routes.iter();
        let configured = configured.filter(|route| route.table == table && contains(route.to));
        let best = configured.min_by_key(|route| (std::cmp::Reverse(route.to.1), route.metric));
        let connected = state
            .interface_towards(ip)
            .filter(|_| state.is_connected_in(table));
        let connected = connected.and_then(|it| {
            let nets = it.addresses.iter().copied().filter(|net| contains(*net));
            let net = nets.max_by_key(|(_, len)| *len)?;
            Some((network_of(net), shown_name(state, it)))
        });
        let is_nearer = |net: &(IpAddr, u8)| best.is_none_or(|best| best.to.1 < net.1);
        let (to, via, device) = match (connected, best) {
            (Some((net, name)), _) if is_nearer(&net) => (net, None, name),
            (_, Some(route)) => (route.to, route.via, shown_device(state, route)),
            _ => return Err(Failure::new("route: route has not been found")),
        };
        Ok(Found {
            ip,
            to,
            via,
            fib: fib_of(table),
            device,
        })
    }
}
