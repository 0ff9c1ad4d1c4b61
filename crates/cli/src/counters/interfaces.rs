//! `slipstack netstat -i`: the interfaces of running stacks with their traffic.

use std::collections::HashMap;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use serde::Serialize;
use slipstack_attach::admin;
use slipstack_channel::control::net::{Answer, Client, Interface, NetworkState, Query};
use slipstack_config::Settings;

use super::engines::{Sample, Which, json_line, samples};
use super::meter::{Pace, repeat, seconds};
use super::traffic::Traffic;
use crate::failure::Failure;
use crate::net::names::{find_interface, shown_name};
use crate::output::{is_printed, print};
use crate::sockets::{flag, print_json};

/// The options of `netstat` that are about interfaces.
pub fn with_options(command: Command) -> Command {
    command
        .arg(flag("interfaces", 'i', "Interfaces with their counters"))
        .arg(
            Arg::new("interface")
                .short('I')
                .value_name("IF")
                .help("Only this interface"),
        )
        .arg(flag("bytes", 'b', "With -i: bytes too"))
        .arg(flag(
            "drops",
            'd',
            "With -i or -w: packets dropped on their way out too",
        ))
        .arg(
            Arg::new("wait")
                .short('w')
                .value_name("SECONDS")
                .value_parser(seconds)
                .help("Packets and bytes of all interfaces, or that of -I, every SECONDS"),
        )
        .arg(
            Arg::new("count")
                .short('q')
                .value_name("N")
                .value_parser(clap::value_parser!(u64))
                .requires("wait")
                .help("With -w: end after N lines"),
        )
}

/// Returns whether interfaces are requested.
pub fn is_meant(matches: &ArgMatches) -> bool {
    let is_given = |name| matches.contains_id(name);
    matches.get_flag("interfaces") || is_given("interface") || is_given("wait")
}

/// An interface, or one of its addresses.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    mtu: Option<u16>,
    network: String,
    address: String,
    /// The counters of a link: those of its addresses are not separate.
    #[serde(flatten)]
    counted: Option<Counted>,
}

/// Counters of an interface.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Counted {
    #[serde(flatten)]
    pub traffic: Traffic,
    pub rx_errors: u64,
    pub tx_errors: u64,
}

impl Counted {
    fn sum(samples: &[&Sample]) -> Counted {
        let of = |name: &str| samples.iter().map(|it| it.value(name)).sum::<u64>();
        let tx_errors = of("device_tx_dropped");
        let mut traffic = Traffic::sum(samples.iter().map(|it| Traffic::of(it)));
        traffic.tx_dropped -= tx_errors;
        Counted {
            traffic,
            rx_errors: of("device_rx_truncated") + of("device_rx_malformed"),
            tx_errors,
        }
    }
}

impl Counted {
    /// Returns the counts of a link other than the first. Drops at the device are counted for each
    /// port; those of a VLAN count for its port.
    fn of_link(samples: &[&Sample], link: u16) -> Counted {
        let of = |name: &str| {
            let name = format!("link_{link}_{name}");
            samples.iter().map(|it| it.value(&name)).sum::<u64>()
        };
        Counted {
            traffic: Traffic {
                rx_packets: of("rx_frames"),
                rx_bytes: of("rx_bytes"),
                tx_packets: of("tx_frames"),
                tx_bytes: of("tx_bytes"),
                rx_dropped: of("device_rx_overrun"),
                tx_dropped: 0,
            },
            rx_errors: of("device_rx_truncated") + of("device_rx_malformed"),
            tx_errors: of("device_tx_dropped"),
        }
    }

    /// Returns the counts without those of these links.
    fn without(mut self, samples: &[&Sample], links: &[u16]) -> Counted {
        let traffic = &mut self.traffic;
        for link in links {
            let counted = Counted::of_link(samples, *link);
            self.rx_errors = self.rx_errors.saturating_sub(counted.rx_errors);
            self.tx_errors = self.tx_errors.saturating_sub(counted.tx_errors);
            let other = counted.traffic;
            traffic.rx_dropped = traffic.rx_dropped.saturating_sub(other.rx_dropped);
            traffic.rx_packets = traffic.rx_packets.saturating_sub(other.rx_packets);
            traffic.rx_bytes = traffic.rx_bytes.saturating_sub(other.rx_bytes);
            traffic.tx_packets = traffic.tx_packets.saturating_sub(other.tx_packets);
            traffic.tx_bytes = traffic.tx_bytes.saturating_sub(other.tx_bytes);
        }
        self
    }
}

pub fn run(settings: &Settings, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let which = match matches.get_one::<u32>("engine") {
        Some(&number) => Which::Processes(number, number),
        None => Which::All,
    };
    if matches.contains_id("wait") {
        return watch(settings, matches, which);
    }
    let mut rows = Vec::new();
    let samples = samples(settings, which)?;
    for path in admin::control_sockets(settings).map_err(crate::sockets::failed)? {
        let client = Client::connect(&path).map_err(|error| Failure::new(error.to_string()))?;
        let answer = client.ask(Query::Network);
        let answer = answer.map_err(|error| Failure::new(error.to_string()))?;
        let Answer::Network(state) = answer else {
            return Err(Failure::new("the keeper's answer is not understood"));
        };
        let counts = counts(&samples, &state);
        let wanted = matches.get_one::<String>("interface");
        let wanted =
            wanted.map(|name| find_interface(&state, name).map_or(u32::MAX, |it| it.index));
        let shown = state.interfaces.iter();
        for interface in shown.filter(|it| wanted.is_none_or(|index| it.index == index)) {
            let counted = counts.get(&interface.name).copied();
            rows.extend(interface_rows(
                &shown_name(&state, interface),
                interface,
                counted,
            ));
        }
    }
    if let (Some(name), true) = (matches.get_one::<String>("interface"), rows.is_empty()) {
        return Err(no_interface(name));
    }
    if matches.get_flag("json") {
        return print_json(&rows);
    }
    let style = Style::of(matches);
    let lines: Vec<String> = rows.iter().map(|row| style.line(row)).collect();
    print(&format!("{}{}", style.head(), lines.concat()))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the counters of the interfaces of a stack by their names.
pub fn of_interfaces(
    settings: &Settings,
    state: &NetworkState,
) -> Result<HashMap<String, Counted>, Failure> {
    Ok(counts(&samples(settings, Which::All)?, state))
}

/// Nothing is known where no engine of the device has answered.
fn counts(samples: &[Sample], state: &NetworkState) -> HashMap<String, Counted> {
    let own = &state.own().name;
    let of_device: Vec<&Sample> = samples.iter().filter(|it| it.interface == *own).collect();
    let others = state.interfaces.iter().map(|it| it.link);
    let others: Vec<u16> = others.filter(|link| *link != 0).collect();
    let interfaces = state.interfaces.iter().filter(|_| !of_device.is_empty());
    let counted = interfaces.map(|it| {
        let counted = match it.link {
            0 => Counted::sum(&of_device).without(&of_device, &others),
            link => Counted::of_link(&of_device, link),
        };
        (it.name.clone(), counted)
    });
    counted.collect()
}

fn no_interface(name: &str) -> Failure {
    Failure::new(format!("{name}: no such interface of a stack"))
}

/// The link's row, then one for each address.
fn interface_rows(name: &str, interface: &Interface, counted: Option<Counted>) -> Vec<Row> {
    let mac = interface.mac.map(|byte| format!("{byte:02x}")).join(":");
    let link = Row {
        name: name.to_owned(),
        mtu: Some(interface.mtu),
        network: format!("<Link#{}>", interface.index),
        address: mac,
        counted,
    };
    let of_address = |&(ip, len): &(IpAddr, u8)| Row {
        name: name.to_owned(),
        mtu: None,
        network: format!("{}/{len}", network_of(ip, len)),
        address: ip.to_string(),
        counted: None,
    };
    let addresses = interface.addresses.iter().map(of_address);
    std::iter::once(link).chain(addresses).collect()
}

fn network_of(ip: IpAddr, len: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            IpAddr::V4((ip.to_bits() & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            IpAddr::V6((ip.to_bits() & mask).into())
        }
    }
}

/// Which columns there are.
struct Style {
    has_bytes: bool,
    has_drops: bool,
}

impl Style {
    fn of(matches: &ArgMatches) -> Style {
        Style {
            has_bytes: matches.get_flag("bytes"),
            has_drops: matches.get_flag("drops"),
        }
    }

    fn head(&self) -> String {
        self.text(
            "Name",
            ["Mtu", "Network", "Address"],
            &[
                "Ipkts", "Ierrs", "Idrop", "Ibytes", "Opkts", "Oerrs", "Obytes", "Coll", "Drop",
            ],
        )
    }

    fn line(&self, row: &Row) -> String {
        let cells = match &row.counted {
            None => vec!["-".to_owned(); 9],
            Some(counted) => counted_cells(counted),
        };
        let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
        let mtu = row.mtu.map_or_else(|| "-".to_owned(), |it| it.to_string());
        self.text(&row.name, [&mtu, &row.network, &row.address], &cells)
    }

    fn text(&self, name: &str, [mtu, network, address]: [&str; 3], cells: &[&str]) -> String {
        let mut text = format!("{name:<11} {mtu:>5} {network:<18} {address:<18}");
        for (column, cell) in cells.iter().enumerate() {
            let width = match column {
                3 | 6 if !self.has_bytes => continue,
                8 if !self.has_drops => continue,
                3 | 6 => 12,
                0 | 4 => 9,
                _ => 5,
            };
            text.push_str(&format!(" {cell:>width$}"));
        }
        text.push('\n');
        text
    }
}

/// In the order of netstat's columns. Collisions are a thing of half duplex.
fn counted_cells(counted: &Counted) -> Vec<String> {
    let Traffic {
        rx_packets,
        rx_bytes,
        tx_packets,
        tx_bytes,
        rx_dropped,
        tx_dropped,
    } = counted.traffic;
    [
        rx_packets,
        counted.rx_errors,
        rx_dropped,
        rx_bytes,
        tx_packets,
        counted.tx_errors,
        tx_bytes,
        0,
        tx_dropped,
    ]
    .map(|n| n.to_string())
    .to_vec()
}

/// Prints the counters of each interval.
fn watch(settings: &Settings, matches: &ArgMatches, which: Which) -> Result<ExitCode, Failure> {
    let delay: Duration = matches.get_one("wait").copied().unwrap_or_default();
    let count = matches.get_one("count").copied().unwrap_or(0);
    let name = matches.get_one::<String>("interface");
    let (is_json, has_drops) = (matches.get_flag("json"), matches.get_flag("drops"));
    repeat(settings, which, Pace { delay, count }, |interval| {
        let is_meant = |it: &&Sample| name.is_none_or(|name| &it.interface == name);
        let added: Vec<&Sample> = interval.added.iter().filter(is_meant).collect();
        if let (Some(name), true) = (name, added.is_empty()) {
            return Err(no_interface(name));
        }
        let counted = Counted::sum(&added);
        if is_json {
            return is_printed(&json_line(&[counted])?);
        }
        let mut text = String::new();
        if interval.has_head {
            text = watch_head(name.map_or("Total", String::as_str), has_drops);
        }
        text.push_str(&watch_line(&counted_cells(&counted), has_drops));
        is_printed(&text)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn watch_head(of: &str, has_drops: bool) -> String {
    let names = [
        "packets", "errs", "idrops", "bytes", "packets", "errs", "bytes", "colls", "drops",
    ];
    let names = names.map(str::to_owned);
    let title = format!("({of})");
    format!(
        "{:>17} {title:^22} {:>10}\n{}",
        "input",
        "output",
        watch_line(&names, has_drops)
    )
}

fn watch_line(cells: &[String], has_drops: bool) -> String {
    let widths = [10, 5, 6, 10, 10, 5, 10, 5, 5];
    let shown = if has_drops { 9 } else { 8 };
    let cells = cells.iter().zip(widths).take(shown);
    let cells: Vec<String> = cells
        .map(|(cell, width)| format!("{cell:>width$}"))
        .collect();
    format!("{}\n", cells.join(" "))
}

#[cfg(test)]
mod tests {
    use super::super::engines::tests::sample;
    use super::*;

    fn interface() -> Interface {
        Interface {
            name: "eth1".into(),
            index: 3,
            mtu: 1500,
            addresses: vec![("10.0.0.5".parse().unwrap(), 24)],
            ..Interface::default()
        }
    }

    #[test]
    fn columns_are_those_of_netstat() {
        let engine = sample(1, None, &[("rx_frames", 7), ("rx_bytes", 420)]);
        let rows = interface_rows(
            "eth1",
            &interface(),
            Some(Counted::sum(&[&engine, &engine])),
        );
        let words = |has_bytes, row: &Row| -> Vec<String> {
            let style = Style {
                has_bytes,
                has_drops: false,
            };
            let line = style.line(row);
            line.split_whitespace().map(str::to_owned).collect()
        };
        let link = "eth1 1500 <Link#3> 00:00:00:00:00:00 14 0 0 0 0 0";
        assert_eq!(words(false, &rows[0]).join(" "), link);
        let address = "eth1 - 10.0.0.0/24 10.0.0.5 - - - - - -";
        assert_eq!(words(false, &rows[1]).join(" "), address);
        assert_eq!(words(true, &rows[0])[7], "840");
    }
}
