//! `ip route`.

use std::fmt::Write as _;
use std::net::IpAddr;

use serde_json::{Value, json};
use slipstack_channel::control::net::{
    Change, MAIN_TABLE, Mode, NetworkState, RouteEntry, RouteKey, RouteRefusal,
};

use super::options::Options;
use super::tables;
use crate::failure::Failure;
use crate::net::names::{device_of, find_interface, network_of, parse_net};
use crate::net::target::Target;
use crate::net::words::Words;

/// Which routes are shown.
pub(super) struct Selection {
    /// `None`: of all tables.
    table: Option<u32>,
    device: Option<String>,
    via: Option<IpAddr>,
    to: Option<(Range, (IpAddr, u8))>,
}

/// The destinations that are meant by a network.
#[derive(Clone, Copy)]
enum Range {
    /// Exactly the network.
    Exact,
    /// Networks within it.
    Root,
    /// Networks that contain it.
    Match,
}

impl Range {
    fn has(self, net: (IpAddr, u8), to: (IpAddr, u8)) -> bool {
        // The network of everything has no family of its own.
        let is_within = |inner: (IpAddr, u8), outer: (IpAddr, u8)| {
            outer.1 == 0
                || (inner.0.is_ipv4() == outer.0.is_ipv4()
                    && inner.1 >= outer.1
                    && network_of((inner.0, outer.1)) == network_of(outer))
        };
        match self {
            Range::Exact => is_within(to, net) && to.1 == net.1,
            Range::Root => is_within(to, net),
            Range::Match => is_within(net, to),
        }
    }
}

impl Selection {
    pub(super) fn all() -> Selection {
        Selection {
            table: None,
            device: None,
            via: None,
            to: None,
        }
    }

    fn read(state: &NetworkState, words: &mut Words<'_>) -> Result<Selection, Failure> {
        let mut selection = Selection {
            table: Some(MAIN_TABLE),
            ..Selection::all()
        };
        let mut range = Range::Exact;
        while let Some(word) = words.next() {
            match word {
                "table" => selection.table = table(words.value(word)?, words)?,
                "dev" | "oif" => {
                    let name = words.value(word)?;
                    selection.device = Some(find_interface(state, name)?.name.clone());
                }
                "via" => selection.via = Some(words.parsed(word)?),
                "to" | "exact" => {}
                "root" => range = Range::Root,
                "match" => range = Range::Match,
                "default" => selection.to = Some((range, (IpAddr::from([0; 4]), 0))),
                text => {
                    let net = parse_net(text).ok_or_else(|| words.wrong("a network", text))?;
                    selection.to = Some((range, network_of(net)));
                }
            }
        }
        Ok(selection)
    }

    fn has(&self, line: &Line) -> bool {
        let via = line.route.as_ref().and_then(|route| route.via);
        let is_to = |(range, net): (Range, (IpAddr, u8))| range.has(net, line.to);
        self.device.as_ref().is_none_or(|name| *name == line.device)
            && self.via.is_none_or(|wanted| Some(wanted) == via)
            && self.to.is_none_or(is_to)
    }
}

/// One line of a list.
struct Line {
    to: (IpAddr, u8),
    device: String,
    route: Option<RouteEntry>,
    /// Source address of a connected network.
    source: Option<IpAddr>,
}

pub(super) fn run(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    match words.next() {
        None | Some("show" | "list" | "ls" | "sh" | "s") => show(target, options, words),
        Some("get" | "g") => super::route_get::run(target, options, words),
        Some("flush" | "f") => flush(target, options, words),
        Some("add" | "a") => add(target, options, words, Mode::Add),
        Some("append") => add(target, options, words, Mode::Append),
        Some("replace") => add(target, options, words, Mode::Replace),
        Some("change" | "chg") => add(target, options, words, Mode::Change),
        Some("del" | "delete" | "d") => delete(target, options, words),
        Some(other) => Err(words.unknown(other)),
    }
}

fn show(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    let state = target.network()?;
    let selection = Selection::read(&state, &mut words)?;
    let lines = lines(&state, &selection, options);
    let json = lines.iter().map(as_json).collect();
    options.show(json, &text(&state, &selection, options))
}

/// All routes, in the form of `ip -json`.
pub(super) fn entries(state: &NetworkState) -> impl Iterator<Item = Value> {
    let lines = lines(state, &Selection::all(), Options::default());
    lines.into_iter().map(|line| as_json(&line))
}

/// Removes the routes that are meant, all or none; those that addresses bring stay.
fn flush(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    if words.peek().is_none() {
        return Err(words.missing("which routes (table T, dev IF, via GW or NET)"));
    }
    // Nothing is cached.
    if words.take("cache") {
        return words.end();
    }
    let state = target.network()?;
    let selection = Selection::read(&state, &mut words)?;
    let meant = lines(&state, &selection, options);
    let changes = meant.iter().filter_map(|line| line.route.as_ref());
    let changes = changes.map(|route| {
        Change::DelRoute(RouteKey {
            to: route.to,
            table: route.table,
            via: route.via,
            metric: Some(route.metric),
            link: route.link,
        })
    });
    let changes: Vec<Change> = changes.collect();
    match changes.is_empty() {
        true => Ok(()),
        false => target.change(changes),
    }
}

fn table(text: &str, words: &Words<'_>) -> Result<Option<u32>, Failure> {
    match text {
        "all" => Ok(None),
        text => match tables::find(text) {
            Some(table) => Ok(Some(table)),
            None => Err(words.wrong("table", text)),
        },
    }
}

fn lines(state: &NetworkState, selection: &Selection, options: Options) -> Vec<Line> {
    let is_meant = |table: u32| selection.table.is_none_or(|wanted| wanted == table);
    let configured = state.routes.iter().filter(|route| is_meant(route.table));
    let mut lines: Vec<Line> = configured
        .map(|route| Line {
            to: route.to,
            device: device_of(state, route).to_owned(),
            route: Some(route.clone()),
            source: None,
        })
        .collect();
    if selection
        .table
        .is_none_or(|table| state.is_connected_in(table))
    {
        for it in &state.interfaces {
            for &(ip, len) in &it.addresses {
                let to = network_of((ip, len));
                let is_host = len == if ip.is_ipv4() { 32 } else { 128 };
                if !is_host
                    && !lines
                        .iter()
                        .any(|line| line.route.is_none() && line.to == to)
                {
                    lines.push(Line {
                        to,
                        device: it.name.clone(),
                        route: None,
                        source: Some(ip),
                    });
                }
            }
        }
    }
    // As on Linux: IPv4 alone, where no family is named.
    let is_v6 = options.is_v6.unwrap_or(false);
    let wants_all = selection.table.is_none() && options.is_v6.is_none();
    lines.retain(|line| wants_all || line.to.0.is_ipv6() == is_v6);
    lines.retain(|line| selection.has(line));
    lines
}

pub(super) fn text(state: &NetworkState, selection: &Selection, options: Options) -> String {
    let mut text = String::new();
    for line in lines(state, selection, options) {
        let to = match line.to {
            (_, 0) => "default".to_owned(),
            (ip, len) if len == if ip.is_ipv4() { 32 } else { 128 } => ip.to_string(),
            (ip, len) => format!("{ip}/{len}"),
        };
        match &line.route {
            Some(route) => {
                if let Some(refusal) = route.refusal {
                    let _ = write!(text, "{} {to}", refusal.name());
                } else {
                    let _ = write!(text, "{to}");
                    if let Some(via) = route.via {
                        let _ = write!(text, " via {via}");
                    }
                    let _ = write!(text, " dev {}", line.device);
                }
                if route.table != MAIN_TABLE && selection.table != Some(route.table) {
                    let _ = write!(text, " table {}", tables::name_of(route.table));
                }
                if let Some(source) = route.source {
                    let _ = write!(text, " src {source}");
                }
                if route.metric != 0 {
                    let _ = write!(text, " metric {}", route.metric);
                }
                if let Some(mtu) = route.mtu {
                    let _ = write!(text, " mtu {mtu}");
                }
            }
            None => {
                let _ = write!(text, "{to} dev {} proto kernel scope link", line.device);
                if let Some(source) = line.source.filter(IpAddr::is_ipv4) {
                    let _ = write!(text, " src {source}");
                }
            }
        }
        text.push('\n');
    }
    text
}

fn as_json(line: &Line) -> Value {
    let to = match line.to {
        (_, 0) => "default".to_owned(),
        (ip, len) => format!("{ip}/{len}"),
    };
    let mut row = json!({"dst": to, "dev": line.device, "flags": []});
    match &line.route {
        Some(route) => {
            row["table"] = json!(route.table);
            row["metric"] = json!(route.metric);
            row["gateway"] = json!(route.via);
            row["prefsrc"] = json!(route.source);
            if let Some(refusal) = route.refusal {
                row["type"] = json!(refusal.name());
            }
        }
        None => {
            row["protocol"] = json!("kernel");
            row["scope"] = json!("link");
            row["prefsrc"] = json!(line.source);
        }
    }
    row
}

/// The description of a route in the words.
struct Described {
    route: RouteEntry,
    has_metric: bool,
}

fn describe(
    state: &NetworkState,
    options: Options,
    words: &mut Words<'_>,
) -> Result<Described, Failure> {
    let is_v6 = options.is_v6.unwrap_or(false);
    let mut to = None;
    let mut route = RouteEntry {
        via: None,
        ..RouteEntry::default_by(IpAddr::from([0; 4]))
    };
    let mut has_metric = false;
    while let Some(word) = words.next() {
        match word {
            "unicast" => {}
            "unreachable" | "blackhole" | "prohibit" => route.refusal = RouteRefusal::find(word),
            "via" => {
                let mut gateway = words.value(word)?;
                if ["inet", "inet6"].contains(&gateway) {
                    gateway = words.value(word)?;
                }
                route.via = Some(gateway.parse().map_err(|_| words.wrong(word, gateway))?);
            }
            "dev" | "oif" => route.link = Some(find_interface(state, words.value(word)?)?.link),
            "table" => {
                let text = words.value(word)?;
                route.table = table(text, words)?.ok_or_else(|| words.wrong(word, text))?;
            }
            "metric" | "priority" | "preference" => {
                route.metric = words.parsed(word)?;
                has_metric = true;
            }
            "src" => route.source = Some(words.parsed(word)?),
            "mtu" => route.mtu = Some(words.parsed(word)?),
            "proto" | "protocol" | "scope" => _ = words.value(word)?,
            "onlink" => {}
            // fib_create_info() without CONFIG_IP_ROUTE_MULTIPATH.
            "nexthop" | "nhid" => {
                return Err(Failure::new(
                    "Invalid argument: a route has one gateway; append a further one, which \
                     holds when the first is gone, or choose by rules",
                ));
            }
            "default" | "0/0" | "::/0" => to = Some(None),
            text => {
                let net = parse_net(text).ok_or_else(|| words.wrong("a network", text))?;
                to = Some(Some(net));
            }
        }
    }
    let is_v6 = route.via.map_or(is_v6, |via| via.is_ipv6());
    let everywhere = match is_v6 {
        true => (IpAddr::from([0; 16]), 0),
        false => (IpAddr::from([0; 4]), 0),
    };
    let to = to.ok_or_else(|| words.missing("a network"))?;
    route.to = to.unwrap_or(everywhere);
    Ok(Described { route, has_metric })
}

fn add(target: &Target, options: Options, mut words: Words<'_>, mode: Mode) -> Result<(), Failure> {
    let state = target.network()?;
    let Described { route, .. } = describe(&state, options, &mut words)?;
    target.change(vec![Change::AddRoute { route, mode }])
}

fn delete(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    let state = target.network()?;
    let Described { route, has_metric } = describe(&state, options, &mut words)?;
    target.change(vec![Change::DelRoute(RouteKey {
        to: route.to,
        table: route.table,
        via: route.via,
        metric: has_metric.then_some(route.metric),
        link: route.link,
    })])
}
