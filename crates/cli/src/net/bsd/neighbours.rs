//! The table of neighbours that `arp` and `ndp` show and change.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;
use slipstack_channel::control::net::{Answer, Change, Mode, NeighbourEntry, NetworkState, Query};
use slipstack_config::Settings;

use super::take_engine;
use crate::failure::Failure;
use crate::net::names::{find_interface, mac_text, parse_mac, shown_name};
use crate::net::target::Target;
use crate::net::words::Words;
use crate::output::print;

/// A neighbour with its interface and link-layer address.
#[derive(Debug, Serialize)]
pub(super) struct Neighbour {
    pub ip: IpAddr,
    pub mac: String,
    pub interface: String,
    /// The entry was set, and stays until it is deleted.
    pub is_permanent: bool,
    #[serde(skip)]
    entry: NeighbourEntry,
}

/// Options that both commands have.
pub(super) struct Common {
    pub engine: u32,
    pub is_json: bool,
}

/// Takes the options that come first: `--json`, that of the engine, and letters that may stand
/// together (`-an`). `letter` returns false for one that the command does not have.
pub(super) fn options<'a>(
    words: &mut Words<'a>,
    of_engine: &str,
    mut letter: impl FnMut(char, &mut Words<'a>) -> Result<bool, Failure>,
) -> Result<Common, Failure> {
    let mut common = Common {
        engine: 0,
        is_json: false,
    };
    while words.peek().is_some_and(|word| word.starts_with('-')) {
        if let Some(number) = take_engine(words, of_engine)? {
            common.engine = number;
            continue;
        }
        let word = words.next().unwrap_or_default();
        if word == "--json" {
            common.is_json = true;
            continue;
        }
        for one in word.chars().skip(1) {
            if !letter(one, words)? {
                return Err(words.unknown(word));
            }
        }
    }
    Ok(common)
}

/// Takes the address that ends a command line, if there is one.
pub(super) fn last_address(words: &mut Words<'_>, is_v4: bool) -> Result<Option<IpAddr>, Failure> {
    let text = words.next();
    let wanted = text.map(|text| address(words, text, is_v4)).transpose()?;
    words.end()?;
    Ok(wanted)
}

/// The neighbours of one family in one stack.
pub(super) struct Table {
    target: Target,
    is_v4: bool,
}

impl Table {
    pub fn find(settings: &Settings, engine: u32, is_v4: bool) -> Result<Table, Failure> {
        let target = Target::find(settings, engine)?;
        Ok(Table { target, is_v4 })
    }

    pub fn network(&self) -> Result<NetworkState, Failure> {
        self.target.network()
    }

    /// Lists the neighbours of all interfaces or of one, with all addresses or with one.
    pub fn list(
        &self,
        interface: Option<&str>,
        wanted: Option<IpAddr>,
    ) -> Result<Vec<Neighbour>, Failure> {
        let state = self.network()?;
        let only = match interface {
            Some(name) => Some(find_interface(&state, name)?.link),
            None => None,
        };
        let Answer::Neighbours(known) = self.target.ask(Query::Neighbours)? else {
            return Err(Failure::new("the keeper's answer is not understood"));
        };
        let learnt = known.into_iter().map(|(link, ip, mac)| {
            let entry = NeighbourEntry { link, ip, mac };
            ((ip, link), (entry, false))
        });
        let set = state.neighbours.iter();
        let set = set.map(|entry| ((entry.ip, entry.link), (*entry, true)));
        let mut all: BTreeMap<_, _> = learnt.chain(set).collect();
        all.retain(|(ip, link), _| {
            ip.is_ipv4() == self.is_v4
                && only.is_none_or(|only| only == *link)
                && wanted.is_none_or(|wanted| wanted == *ip)
        });
        let neighbour = |(entry, is_permanent): (NeighbourEntry, bool)| Neighbour {
            ip: entry.ip,
            mac: mac_text(entry.mac),
            interface: state
                .find_link(entry.link)
                .map_or_else(String::new, |it| shown_name(&state, it)),
            is_permanent,
            entry,
        };
        Ok(all.into_values().map(neighbour).collect())
    }

    /// Deletes a neighbour. A learnt one is set first, because only configured ones can be deleted.
    fn forget(&self, it: &Neighbour) -> Result<(), Failure> {
        let NeighbourEntry { link, ip, .. } = it.entry;
        if !it.is_permanent {
            let (entry, mode) = (it.entry, Mode::Replace);
            self.target
                .change(vec![Change::AddNeighbour { entry, mode }])?;
        }
        self.target.change(vec![Change::DelNeighbour { link, ip }])
    }
}

pub(super) fn print_json(found: &[Neighbour]) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(found).map_err(|e| Failure::new(e.to_string()))?;
    print(&format!("{text}\n"))
}

/// An address of the family, without `%INTERFACE`.
pub(super) fn address(words: &Words<'_>, text: &str, is_v4: bool) -> Result<IpAddr, Failure> {
    let (ip, _) = text.split_once('%').unwrap_or((text, ""));
    let ip: Option<IpAddr> = ip.parse().ok();
    ip.filter(|ip| ip.is_ipv4() == is_v4)
        .ok_or_else(|| words.wrong("a neighbour", text))
}

/// Parses `HOST ETHER`, on the named interface or the one whose network contains the host.
pub(super) fn set(
    table: &Table,
    words: &mut Words<'_>,
    interface: Option<&str>,
) -> Result<(), Failure> {
    let text = words.value("-s")?;
    let (host, zone) = text.split_once('%').unwrap_or((text, ""));
    let ip = address(words, host, table.is_v4)?;
    let mac = words.value(host)?;
    let mac = parse_mac(mac).ok_or_else(|| words.wrong("a link-layer address", mac))?;
    if let Some(word) = words.next() {
        return Err(match word {
            "temp" | "pub" | "proxy" | "reject" | "blackhole" => Failure::new(format!(
                "{word}: a neighbour that is set stays until it is deleted, and is nobody else's \
                 address"
            )),
            other => words.unknown(other),
        });
    }
    let state = table.network()?;
    let named = interface.or((!zone.is_empty()).then_some(zone));
    let found = match named {
        Some(name) => Some(find_interface(&state, name)?),
        None => state.interface_towards(ip),
    };
    let on = found.ok_or_else(|| Failure::new(format!("cannot locate {ip}: no network has it")))?;
    let entry = NeighbourEntry {
        ip,
        mac,
        link: on.link,
    };
    let mode = Mode::Replace;
    table
        .target
        .change(vec![Change::AddNeighbour { entry, mode }])
}

/// A file with the words of `-s` in each line.
pub(super) fn from_file(table: &Table, words: &mut Words<'_>) -> Result<(), Failure> {
    let path = words.value("-f")?;
    words.end()?;
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| Failure::new(format!("{path}: {error}")))?;
    for (at, line) in text.lines().enumerate() {
        let line: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        if line.first().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        let mut words = Words::new("the line", &line);
        set(table, &mut words, None)
            .map_err(|why| Failure::new(format!("{path}: line {}: {why}", at + 1)))?;
    }
    Ok(())
}

pub(super) fn delete_one(table: &Table, ip: IpAddr) -> Result<(), Failure> {
    let found = table.list(None, None)?;
    let found = found.iter().find(|it| it.ip == ip);
    delete(
        table,
        found.ok_or_else(|| Failure::new(format!("cannot locate {ip}")))?,
    )
}

pub(super) fn delete_all(table: &Table) -> Result<(), Failure> {
    table
        .list(None, None)?
        .iter()
        .try_for_each(|it| delete(table, it))
}

fn delete(table: &Table, it: &Neighbour) -> Result<(), Failure> {
    table.forget(it)?;
    print(&format!("{} ({}) deleted\n", it.ip, it.ip))
}
