//! Notices of addresses, interfaces, routes and neighbours that have come and gone, for programs
//! with the library that listen for them on NETLINK_ROUTE: servers that bind each address, such as
//! BIND, look at the list again.
//!
//! The kernel lists its netlink sockets, with their groups and inodes; programs of the stack are
//! those that have one open and the library mapped. The kernel's own programs are told nothing.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use slipstack_channel::control::net::zone::plain_ip;
use slipstack_channel::control::net::{MAIN_TABLE, NetworkState, RouteEntry, zone};
use slipstack_device::{
    ListedAddress, ListedLink, ListedNeighbour, ListedRoute, Notice, Notices, RouteOrigin,
};
use tracing::debug;

use crate::neighbours::Neighbours;

/// Groups that are told something, as bits: links, neighbours, addresses and routes of both
/// families.
const GROUPS: u32 = 0x1 | 0x4 | 0x10 | 0x100 | 0x40 | 0x400;
/// Time between a change and its notice, in which others are waited for.
const GATHER_NS: u64 = 50_000_000;
/// The files by which a program of the stack is known.
const LIBRARIES: [&str; 2] = ["libslipstack", "libfstack"];
/// The bits of a netlink socket's number in which many libraries have their process.
const PROCESS_BITS: u32 = 0x3f_ffff;
/// Linux's metrics of IPv6 routes that routers advertise, and of an address's network.
const LEARNT_METRIC: u32 = 1024;
const CONNECTED_METRIC_V6: u32 = 256;

/// The network that has been told, and when the next look is due.
#[derive(Debug)]
pub struct Announcer {
    told: BTreeSet<Notice>,
    due: Option<u64>,
    /// Changes of the neighbours that have been noted ([`Neighbours::changes`]).
    counted: u64,
    /// Which sockets, by inode, are of programs with the library.
    known: HashMap<u64, bool>,
}

/// A netlink socket that listens for changes of a network.
#[derive(Debug, PartialEq, Eq)]
struct Listener {
    port: u32,
    groups: u32,
    inode: u64,
}

impl Announcer {
    /// The network that holds from the start on is no news.
    pub fn of(state: &NetworkState, neighbours: &Neighbours) -> Announcer {
        Announcer {
            told: listed(state, &neighbours.entries()),
            due: None,
            counted: neighbours.changes(),
            known: HashMap::new(),
        }
    }

    /// The network may have changed.
    pub fn note(&mut self, now: u64) {
        self.due.get_or_insert(now + GATHER_NS);
    }

    /// Returns whether neighbours have come, gone or moved since the last call.
    pub fn have_neighbours_changed(&mut self, neighbours: &Neighbours) -> bool {
        let changes = neighbours.changes();
        std::mem::replace(&mut self.counted, changes) != changes
    }

    pub fn due(&self) -> Option<u64> {
        self.due
    }

    /// Tells what has changed, if it is time.
    pub fn follow(&mut self, state: &NetworkState, neighbours: &Neighbours, now: u64) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        self.due = None;
        let before = std::mem::replace(&mut self.told, listed(state, &neighbours.entries()));
        let changes = changes(&before, &self.told);
        if changes.is_empty() {
            return;
        }
        if let Err(error) = tell(&changes, &mut self.known) {
            debug!(%error, "programs are not told of the network's changes");
        }
    }
}

/// The interfaces, and the addresses, routes and neighbours that are in force.
fn listed(state: &NetworkState, known: &[(IpAddr, [u8; 6])]) -> BTreeSet<Notice> {
    let mut all: BTreeSet<Notice> = state
        .interfaces
        .iter()
        .map(|it| {
            Notice::Link(ListedLink {
                index: it.index,
                name: it.name.clone(),
                mac: it.mac,
                mtu: it.mtu.into(),
                is_up: !state.is_down(it),
                parent: (!it.is_port()).then(|| state.parent_of(it).index),
            })
        })
        .collect();
    let state = state.in_force();
    let on = |link: u16, ip: IpAddr, prefix_len: u8| {
        let interface = state.find_link(link)?;
        Some(Notice::Address(ListedAddress {
            ip: plain_ip(ip),
            prefix_len,
            index: interface.index,
            name: interface.name.clone(),
        }))
    };
    for interface in &state.interfaces {
        let own = interface.addresses.iter();
        all.extend(own.filter_map(|&(ip, len)| on(interface.link, ip, len)));
    }
    let learnt = state.learnt.iter().flat_map(|it| &it.addresses);
    all.extend(learnt.filter_map(|it| on(it.link, it.ip.into(), it.prefix_len)));
    all.extend(routes(&state).map(Notice::Route));
    all.extend(connected(&state).map(Notice::Route));
    all.extend(neighbours(&state, known).map(Notice::Neighbour));
    all
}

/// The networks of the interfaces' addresses. As on Linux, a further address in a network brings
/// none.
fn connected(state: &NetworkState) -> impl Iterator<Item = ListedRoute> {
    let network = |&(ip, len): &(IpAddr, u8)| {
        let to = RouteEntry {
            to: (ip, len),
            ..RouteEntry::default_by(ip)
        };
        to.normalized().to
    };
    state.interfaces.iter().flat_map(move |interface| {
        let all = &interface.addresses;
        let networks = all.iter().enumerate().filter(move |(at, own)| {
            let mut before = all[..*at].iter();
            // An address alone is in the table of local addresses.
            (own.0.is_ipv6() || own.1 < 32) && !before.any(|it| network(it) == network(own))
        });
        networks.map(move |(_, own)| {
            let (to, len) = network(own);
            let is_v6 = to.is_ipv6();
            ListedRoute {
                to: (plain_ip(to), len),
                via: None,
                out: Some(interface.index),
                table: MAIN_TABLE,
                metric: if is_v6 { CONNECTED_METRIC_V6 } else { 0 },
                source: (!is_v6).then_some(own.0),
                origin: RouteOrigin::Connected,
            }
        })
    })
}

/// The neighbours that are set, and those that are known.
fn neighbours<'a>(
    state: &'a NetworkState,
    known: &'a [(IpAddr, [u8; 6])],
) -> impl Iterator<Item = ListedNeighbour> + 'a {
    let is_set = |ip: IpAddr| state.neighbours.iter().any(|it| it.ip == ip);
    let known = known.iter().filter(move |(ip, _)| !is_set(*ip));
    let known = known.filter_map(|&(ip, mac)| {
        Some(ListedNeighbour {
            index: state.interface_towards(ip)?.index,
            ip: plain_ip(ip),
            mac,
            is_permanent: false,
        })
    });
    let set = state.neighbours.iter().filter_map(|it| {
        Some(ListedNeighbour {
            index: state.find_link(it.link)?.index,
            ip: plain_ip(it.ip),
            mac: it.mac,
            is_permanent: true,
        })
    });
    known.chain(set)
}

fn routes(state: &NetworkState) -> impl Iterator<Item = ListedRoute> {
    let index = |link| state.find_link(link).map(|it| it.index);
    let configured = state.routes.iter().map(move |route| ListedRoute {
        to: route.to,
        via: route.via.map(plain_ip),
        out: state.link_of(route).and_then(index),
        table: route.table,
        metric: route.metric,
        source: route.source.map(plain_ip),
        origin: RouteOrigin::Operator,
    });
    let routers = state.learnt.iter().flat_map(|it| &it.routers);
    let learnt = routers.map(move |router| ListedRoute {
        to: (IpAddr::from([0; 16]), 0),
        via: Some(plain_ip((*router).into())),
        out: index(zone::zone_of(*router).0),
        table: MAIN_TABLE,
        metric: LEARNT_METRIC,
        source: None,
        origin: RouteOrigin::Router,
    });
    configured.chain(learnt)
}

/// Returns what is gone, the dependent first, and then what has come. An interface that is another
/// under its number has only come, and so has a neighbour at another link-layer address.
fn changes<'a>(before: &'a BTreeSet<Notice>, now: &'a BTreeSet<Notice>) -> Vec<(&'a Notice, bool)> {
    let numbers = |all: &BTreeSet<Notice>| -> HashSet<u32> {
        let links = all.iter().filter_map(|notice| match notice {
            Notice::Link(link) => Some(link.index),
            _ => None,
        });
        links.collect()
    };
    let kept = numbers(now);
    let stations: HashSet<(u32, IpAddr)> = now
        .iter()
        .filter_map(|notice| match notice {
            Notice::Neighbour(it) => Some((it.index, it.ip)),
            _ => None,
        })
        .collect();
    let is_gone = |notice: &&Notice| match notice {
        Notice::Link(link) => !kept.contains(&link.index),
        Notice::Neighbour(it) => !stations.contains(&(it.index, it.ip)),
        _ => true,
    };
    let gone = before.difference(now).filter(is_gone);
    let mut changes: Vec<(&Notice, bool)> = gone.map(|notice| (notice, false)).collect();
    changes.reverse();
    changes.extend(now.difference(before).map(|notice| (notice, true)));
    changes
}

fn tell(changes: &[(&Notice, bool)], known: &mut HashMap<u64, bool>) -> std::io::Result<()> {
    let mut listeners = listeners(&fs::read_to_string("/proc/net/netlink")?);
    recognize(&listeners, known);
    listeners.retain(|it| known.get(&it.inode) == Some(&true));
    if listeners.is_empty() {
        return Ok(());
    }
    let notices = Notices::open()?;
    for listener in listeners {
        for (notice, is_new) in changes {
            if listener.groups & notice.group() != 0 {
                // A listener that has ended, or is full, misses the notice.
                let _ = notices.tell(listener.port, notice, *is_new);
            }
        }
    }
    Ok(())
}

/// Reads the kernel's list (proc(5)): protocol, number, groups, and the inode last.
fn listeners(text: &str) -> Vec<Listener> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (protocol, port, groups) = (words.get(1)?, words.get(2)?, words.get(3)?);
        let groups = u32::from_str_radix(groups, 16).ok()?;
        let is_meant = *protocol == "0" && groups & GROUPS != 0;
        is_meant.then_some(Listener {
            port: port.parse().ok()?,
            groups,
            inode: words.last()?.parse().ok()?,
        })
    };
    text.lines().skip(1).filter_map(line).collect()
}

/// Finds out which sockets are of programs with the library. Those that are known are not looked
/// for again, so that the processes of the system are gone through for new ones alone.
fn recognize(found: &[Listener], known: &mut HashMap<u64, bool>) {
    known.retain(|inode, _| found.iter().any(|it| it.inode == *inode));
    for listener in found.iter().filter(|it| it.port > 0) {
        let process = format!("/proc/{}", listener.port & PROCESS_BITS);
        if !known.contains_key(&listener.inode) {
            look_at(Path::new(&process), &HashSet::from([listener.inode]), known);
        }
    }
    let left = found.iter().map(|it| it.inode);
    let left: HashSet<u64> = left.filter(|inode| !known.contains_key(inode)).collect();
    if left.is_empty() {
        return;
    }
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        look_at(&process.path(), &left, known);
    }
    for inode in left {
        known.entry(inode).or_insert(false);
    }
}

/// Returns whether the process with this directory below `/proc` has loaded the library.
pub(crate) fn has_library(process: &Path) -> bool {
    let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
    LIBRARIES.iter().any(|library| maps.contains(library))
}

/// Notes which of the sockets a process has open, and whether it has the library.
fn look_at(process: &Path, wanted: &HashSet<u64>, known: &mut HashMap<u64, bool>) {
    let Ok(files) = fs::read_dir(process.join("fd")) else {
        return;
    };
    let names = files
        .flatten()
        .filter_map(|it| fs::read_link(it.path()).ok());
    let inodes = names.filter_map(|name| {
        let number = name.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        number.parse::<u64>().ok()
    });
    let held: Vec<u64> = inodes.filter(|inode| wanted.contains(inode)).collect();
    if held.is_empty() {
        return;
    }
    let has_library = has_library(process);
    for inode in held {
        *known.entry(inode).or_default() |= has_library;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_for_notices_are_found_in_the_kernels_list() {
        let text = "sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode\n\
                    0000000000000000 0   812 00000111 0 0 0 2 0 17755\n\
                    0000000000000000 0   813 00000008 0 0 0 2 0 17756\n\
                    0000000000000000 15  814 00000010 0 0 0 2 0 17757\n\
                    0000000000000000 0   815 00000004 0 0 0 2 0 17758\n";
        let found = listeners(text);
        let of_addresses = Listener {
            port: 812,
            groups: 0x111,
            inode: 17_755,
        };
        let of_neighbours = Listener {
            port: 815,
            groups: 0x4,
            inode: 17_758,
        };
        assert_eq!(found, [of_addresses, of_neighbours]);
    }

    #[test]
    fn the_first_network_is_not_reported_and_a_change_once() {
        let net = |ip: &str| NetworkState::of(1500, vec![(ip.parse().unwrap(), 24)], &[]);
        let table = Neighbours::create().unwrap();
        let mut announcer = Announcer::of(&net("10.0.0.5"), &table);
        assert_eq!(announcer.due(), None);
        announcer.note(10);
        announcer.note(20);
        assert_eq!(announcer.due(), Some(10 + GATHER_NS));
        announcer.follow(&net("10.0.0.7"), &table, 20);
        assert!(announcer.due().is_some(), "it is not time");
        announcer.follow(&net("10.0.0.7"), &table, 10 + GATHER_NS);
        assert_eq!(announcer.due(), None);
        table.publish("10.0.0.9".parse().unwrap(), [2, 0, 0, 0, 0, 9]);
        assert!(announcer.have_neighbours_changed(&table));
        table.publish("10.0.0.9".parse().unwrap(), [2, 0, 0, 0, 0, 9]);
        assert!(!announcer.have_neighbours_changed(&table), "it is the same");
    }

    #[test]
    fn changes_are_ordered_by_dependence_and_a_changed_link_is_not_removed() {
        let mut state = NetworkState::of(1500, vec![("10.0.0.5".parse().unwrap(), 24)], &[]);
        let before = listed(&state, &[]);
        let told = |before: &_, now: &_| -> Vec<(String, bool)> {
            let name = |notice: &Notice| match notice {
                Notice::Link(it) => format!("link {}", it.index),
                Notice::Address(it) => it.ip.to_string(),
                Notice::Route(it) => format!("to {}", it.to.0),
                Notice::Neighbour(it) => format!("at {} {}", it.ip, it.mac[5]),
            };
            let all = changes(before, now).into_iter();
            all.map(|(notice, is_new)| (name(notice), is_new)).collect()
        };
        state.interfaces[0].mtu = 1400;
        let narrow = listed(&state, &[]);
        assert_eq!(told(&before, &narrow), [("link 0".to_owned(), true)]);
        state.routes = vec![RouteEntry::default_by("10.0.0.1".parse().unwrap())];
        let mut vlan = state.interfaces[0].clone();
        (vlan.link, vlan.index) = (5, 9);
        vlan.addresses = vec![("10.5.0.5".parse().unwrap(), 24)];
        state.interfaces.push(vlan);
        let more = listed(&state, &[]);
        let come = ["link 9", "10.5.0.5", "to 0.0.0.0", "to 10.5.0.0"].map(str::to_owned);
        assert_eq!(told(&narrow, &more), come.clone().map(|it| (it, true)));
        let mut gone = come.map(|it| (it, false));
        gone.reverse();
        assert_eq!(told(&more, &narrow), gone);
        let with = |mac: u8| {
            let station = ("10.5.0.9".parse().unwrap(), [2, 0, 0, 0, 0, mac]);
            listed(&state, &[station])
        };
        let at = |mac: u8, is_new| [(format!("at 10.5.0.9 {mac}"), is_new)];
        assert_eq!(told(&more, &with(1)), at(1, true));
        assert_eq!(told(&with(1), &with(2)), at(2, true), "it has moved");
        assert_eq!(told(&with(2), &more), at(2, false));
    }
}
