//! `slipstack netstat`, `ff_netstat`: sockets, routes, interfaces and counters in the words of
//! FreeBSD.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use slipstack_attach::admin;
use slipstack_channel::control::StatusReport;
use slipstack_channel::control::net::Filter;
use slipstack_channel::{SocketState, Transport};
use slipstack_config::Settings;

use super::{Socket, flag, fstack_process, json, print_json, sockets};
use crate::counters::interfaces;
use crate::failure::Failure;
use crate::output::{print, table};

pub fn command() -> Command {
    let command = Command::new("netstat")
        .about("List the sockets, routes, interfaces or counters of running stacks, as F-Stack's ff_netstat")
        .after_help(
            "Examples:\n  slipstack netstat -an\n  slipstack netstat -rn\n  slipstack netstat -ib\n  \
             slipstack netstat -I eth1 -w 1\n  ff_netstat -t 0 -s",
        )
        .arg(flag("all", 'a', "Listening sockets too"))
        .arg(flag(
            "numeric",
            'n',
            "Taken for scripts: addresses and ports are always numbers",
        ))
        .arg(flag("listening", 'L', "Listening sockets only"))
        .arg(flag("routes", 'r', "Routes"))
        .arg(flag("statistics", 's', "Counters"))
        .arg(flag("v4", '4', "IPv4 only"))
        .arg(flag("v6", '6', "IPv6 only"))
        .arg(
            Arg::new("protocol")
                .short('p')
                .value_name("PROTOCOL")
                .help("tcp or udp"),
        )
        .arg(fstack_process().short('t'))
        .arg(json());
    interfaces::with_options(command)
}

pub fn run(settings: &Settings, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    if interfaces::is_meant(matches) {
        return interfaces::run(settings, matches);
    }
    if matches.get_flag("routes") {
        return routes(settings, matches);
    }
    if matches.get_flag("statistics") {
        return counters(settings, matches);
    }
    let (found, all) = (found(settings, matches)?, matches.get_flag("all"));
    if matches.get_flag("json") {
        return print_json(&found);
    }
    let mut text = String::from("Active Internet connections");
    text.push_str(if all { " (including servers)\n" } else { "\n" });
    text.push_str(&format!(
        "{:<5} {:>6} {:>6} {:<45} {:<45} {}\n",
        "Proto", "Recv-Q", "Send-Q", "Local Address", "Foreign Address", "(state)"
    ));
    for socket in &found {
        text.push_str(&line(socket));
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn found(settings: &Settings, matches: &ArgMatches) -> Result<Vec<Socket>, Failure> {
    let is_set = |name: &str| matches.get_flag(name);
    let listening = SocketState::Listen.bit();
    let servers = listening | SocketState::Closed.bit();
    let protocol = matches.get_one::<String>("protocol").map(String::as_str);
    let filter = Filter {
        states: match (is_set("listening"), is_set("all")) {
            (true, _) => listening,
            (false, true) => Filter::STATES_ALL,
            (false, false) => Filter::STATES_ALL & !servers,
        },
        has_tcp: protocol.is_none_or(|it| it == "tcp"),
        has_udp: protocol.is_none_or(|it| it == "udp"),
        has_v4: is_set("v4") || !is_set("v6"),
        has_v6: is_set("v6") || !is_set("v4"),
        ..Filter::of_states(Filter::STATES_ALL)
    };
    sockets(settings, &filter, false, None)
}

fn line(socket: &Socket) -> String {
    let row = &socket.row;
    let family = if row.local.is_ipv4() { '4' } else { '6' };
    let state = match row.protocol {
        Transport::Tcp => row.state.bsd_word(),
        Transport::Udp => "",
    };
    let line = format!(
        "{:<5} {:>6} {:>6} {:<45} {:<45} {state}",
        format!("{}{family}", row.protocol.name()),
        row.recv_q,
        // FreeBSD has a listener's backlog elsewhere (-L).
        if row.state == SocketState::Listen {
            0
        } else {
            row.send_q
        },
        dotted(row.local),
        row.remote.map_or("*.*".to_owned(), dotted),
    );
    format!("{}\n", line.trim_end())
}

fn reports(settings: &Settings) -> Result<Vec<StatusReport>, Failure> {
    admin::status(settings).map_err(super::failed)
}

/// FreeBSD's way of writing an address: the port behind a dot, `*` for all addresses.
fn dotted(address: SocketAddr) -> String {
    match address.ip() {
        ip if ip.is_unspecified() => format!("*.{}", address.port()),
        ip => format!("{ip}.{}", address.port()),
    }
}

fn routes(settings: &Settings, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let reports = reports(settings)?;
    let mut lines = Vec::new();
    for report in &reports {
        for route in &report.device.routes {
            lines.push(format!("{route} dev {}", report.device.interface));
        }
    }
    if matches.get_flag("json") {
        return print_json(&lines);
    }
    print(&format!("Routing tables\n{}\n", lines.join("\n")))?;
    Ok(ExitCode::SUCCESS)
}

fn counters(settings: &Settings, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let reports = reports(settings)?;
    let mut all: Vec<(String, String, u64)> = Vec::new();
    for report in &reports {
        let keeper = format!("keeper of {}", report.device.interface);
        for (name, value) in &report.counters {
            all.push((keeper.clone(), name.clone(), *value));
        }
        for instance in &report.instances {
            for (name, value) in &instance.counters {
                all.push((format!("instance {}", instance.name), name.clone(), *value));
            }
        }
    }
    if matches.get_flag("json") {
        return print_json(&all);
    }
    let rows: Vec<Vec<String>> = all
        .into_iter()
        .map(|(of, name, value)| vec![of, value.to_string(), name])
        .collect();
    print(&table(&["of", "value", "counter"], &rows))?;
    Ok(ExitCode::SUCCESS)
}
