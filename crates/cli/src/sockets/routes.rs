//! `slipstack netstat -r`: the routes of a running stack in FreeBSD's table.

use std::net::IpAddr;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use serde::Serialize;
use slipstack_attach::admin;
use slipstack_channel::control::net::{
    Answer, Client, Interface, NetworkState, Query, RouteEntry, RouteRefusal,
};
use slipstack_config::Settings;

use super::{flag, print_json};
use crate::failure::Failure;
use crate::net::bsd::table_of;
use crate::net::names::{network_of, shown_name};
use crate::output::print;

/// The options of `netstat` that are about routes.
pub fn with_options(command: Command) -> Command {
    command
        .arg(flag("routes", 'r', "Routes"))
        .arg(
            Arg::new("fib")
                .short('F')
                .value_name("FIB")
                .value_parser(clap::value_parser!(u32))
                .help("With -r: the routes of this FIB; 0 is the main table"),
        )
        .arg(flag("wide", 'W', "With -r: the MTU too"))
}

#[derive(Clone, Debug, Serialize)]
struct Line {
    destination: String,
    gateway: String,
    flags: &'static str,
    mtu: u16,
    interface: String,
    fib: u32,
    #[serde(skip)]
    is_v4: bool,
}

/// Lists the routes of a FIB; `has_v4` and `has_v6` say of which families.
pub fn run(
    settings: &Settings,
    matches: &ArgMatches,
    [has_v4, has_v6]: [bool; 2],
) -> Result<ExitCode, Failure> {
    let fib = matches.get_one::<u32>("fib").copied().unwrap_or(0);
    let table = table_of(fib)?;
    let mut lines = Vec::new();
    for path in admin::control_sockets(settings).map_err(super::failed)? {
        let client = Client::connect(&path).map_err(|e| Failure::new(e.to_string()))?;
        let answer = client.ask(Query::Network);
        match answer.map_err(|e| Failure::new(e.to_string()))? {
            Answer::Network(state) => lines.extend(lines_of(&state, table, fib)),
            _ => return Err(Failure::new("the keeper's answer is not understood")),
        }
    }
    lines.retain(|line| if line.is_v4 { has_v4 } else { has_v6 });
    if matches.get_flag("json") {
        return print_json(&lines);
    }
    let mut text = match fib {
        0 => "Routing tables\n".to_owned(),
        fib => format!("Routing tables (fib: {fib})\n"),
    };
    let is_wide = matches.get_flag("wide");
    for (is_v4, title) in [(true, "Internet"), (false, "Internet6")] {
        let family: Vec<&Line> = lines.iter().filter(|line| line.is_v4 == is_v4).collect();
        if !family.is_empty() {
            text.push_str(&format!("\n{title}:\n"));
            text.push_str(&family_text(&family, is_wide));
        }
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn family_text(lines: &[&Line], is_wide: bool) -> String {
    let width = if lines[0].is_v4 { 18 } else { 33 };
    let row = |[to, via, flags, mtu, name]: [&str; 5]| {
        let mtu = if is_wide {
            format!("{mtu:>6} ")
        } else {
            String::new()
        };
        format!("{to:<width$} {via:<width$} {flags:<8} {mtu}{name:>10}\n")
    };
    let mut text = row(["Destination", "Gateway", "Flags", "Mtu", "Netif"]);
    for line in lines {
        let mtu = line.mtu.to_string();
        text.push_str(&row([
            &line.destination,
            &line.gateway,
            line.flags,
            &mtu,
            &line.interface,
        ]));
    }
    text
}

/// The networks and addresses of interfaces, which every table may have, and the routes of one.
fn lines_of(state: &NetworkState, table: u32, fib: u32) -> Vec<Line> {
    let mut lines = Vec::new();
    let is_connected = state.is_connected_in(table);
    for interface in state.interfaces.iter().filter(|_| is_connected) {
        for &(ip, len) in &interface.addresses {
            lines.extend(connected(state, interface, (ip, len)));
        }
    }
    let routes = state.routes.iter().filter(|route| route.table == table);
    lines.extend(routes.map(|route| configured(state, route, fib)));
    lines.sort_by_key(|line| (!line.is_v4, line.destination != "default"));
    lines
}

fn connected(state: &NetworkState, interface: &Interface, net: (IpAddr, u8)) -> Vec<Line> {
    let line = |destination: String, flags| Line {
        destination,
        gateway: format!("link#{}", interface.index),
        flags,
        mtu: interface.mtu,
        interface: shown_name(state, interface),
        fib: 0,
        is_v4: net.0.is_ipv4(),
    };
    let own = line(net.0.to_string(), "UHS");
    match is_host(net) {
        true => vec![own],
        false => vec![line(net_text(network_of(net)), "U"), own],
    }
}

fn configured(state: &NetworkState, route: &RouteEntry, fib: u32) -> Line {
    let interface = state.link_of(route).and_then(|link| state.find_link(link));
    let interface = interface.unwrap_or(state.own());
    Line {
        destination: net_text(route.to),
        gateway: match route.via {
            Some(via) => via.to_string(),
            None => format!("link#{}", interface.index),
        },
        flags: match (route.refusal, route.via, is_host(route.to)) {
            (Some(RouteRefusal::Blackhole), ..) => "UBS",
            (Some(_), ..) => "URS",
            (_, Some(_), true) => "UGHS",
            (_, Some(_), false) => "UGS",
            (_, None, true) => "UHS",
            (_, None, false) => "US",
        },
        mtu: route.mtu.unwrap_or(interface.mtu),
        interface: shown_name(state, interface),
        fib,
        is_v4: route.to.0.is_ipv4(),
    }
}

fn is_host((ip, len): (IpAddr, u8)) -> bool {
    len == if ip.is_ipv4() { 32 } else { 128 }
}

fn net_text((ip, len): (IpAddr, u8)) -> String {
    match len {
        0 => "default".to_owned(),
        _ if is_host((ip, len)) => ip.to_string(),
        _ => format!("{ip}/{len}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipstack_channel::control::net::MAIN_TABLE;

    #[test]
    fn route_lines_have_freebsds_format_with_the_default_route_first() {
        let gateway = "10.0.0.1".parse().unwrap();
        let mut state = NetworkState::of(1500, vec![("10.0.0.5".parse().unwrap(), 24)], &[gateway]);
        state.own_mut().name = "eth1".to_owned();
        state.own_mut().index = 2;
        let all = lines_of(&state, MAIN_TABLE, 0);
        let text = family_text(&all.iter().collect::<Vec<_>>(), false);
        let words: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(words[1], ["default", "10.0.0.1", "UGS", "eth1"]);
        assert_eq!(words[2], ["10.0.0.0/24", "link#2", "U", "eth1"]);
        assert_eq!(words[3], ["10.0.0.5", "link#2", "UHS", "eth1"]);
        assert!(lines_of(&state, 20, 20).is_empty());
    }
}
