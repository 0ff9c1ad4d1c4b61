//! `slipstack netstat`, `ff_netstat`: sockets, routes, interfaces and counters in FreeBSD's format.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use slipstack_channel::control::net::Filter;
use slipstack_channel::{SocketState, Transport};
use slipstack_config::Settings;

use super::{Socket, absent, flag, fstack_process, json, print_json, routes, sockets};
use crate::arguments::long_help;
use crate::counters::engines::{Values, Which, samples};
use crate::counters::{bsd, interfaces};
use crate::failure::Failure;
use crate::output::print;

pub fn command() -> Command {
    let command = Command::new("netstat")
        .about(
            "List the sockets, routes, interfaces or counters of running stacks, as F-Stack's \
            ff_netstat",
        )
        .after_help(
            "\
        Examples:\n  slipstack netstat -an\n  slipstack netstat -rn\n  slipstack netstat -ib\n  \
        slipstack netstat -I eth1 -w 1\n  ff_netstat -t 0 -s",
        )
        // -h is that of FreeBSD's netstat.
        .disable_help_flag(true)
        .arg(long_help())
        .arg(flag("all", 'a', "Listening sockets too"))
        .arg(flag(
            "numeric",
            'n',
            "Accepted for scripts: addresses and ports are always numbers",
        ))
        .arg(flag("listening", 'L', "Listening sockets only"))
        .arg(flag("statistics", 's', "Counters, of one protocol with -p"))
        .arg(flag("v4", '4', "IPv4 only"))
        .arg(flag("v6", '6', "IPv6 only"))
        .arg(
            Arg::new("family")
                .short('f')
                .value_name("FAMILY")
                .value_parser(["inet", "inet6"])
                .help("inet or inet6 only"),
        )
        .arg(flag(
            "ports",
            'S',
            "Accepted for scripts: ports are always numbers",
        ))
        .arg(flag(
            "long",
            'l',
            "Accepted for scripts: addresses are never cut",
        ))
        .arg(
            Arg::new("protocol")
                .short('p')
                .value_name("PROTOCOL")
                .help("tcp or udp; with -s also ip, ip6, icmp and icmp6"),
        )
        .arg(fstack_process().short('t').long("engine"))
        .arg(json());
    let command = command
        .arg(flag(
            "congestion",
            'C',
            "The congestion control of each connection",
        ))
        .arg(flag(
            "human",
            'h',
            "Accepted for scripts: numbers are whole",
        ));
    absent::with_options(interfaces::with_options(routes::with_options(command)))
}

pub fn run(settings: &Settings, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    absent::check(matches)?;
    if interfaces::is_meant(matches) {
        return interfaces::run(settings, matches);
    }
    if matches.get_flag("routes") {
        return routes::run(settings, matches, families(matches));
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
    let has_congestion = matches.get_flag("congestion");
    text.push_str(&format!(
        "{:<5} {:>6} {:>6} {:<45} {:<45} {}\n",
        "Proto",
        "Recv-Q",
        "Send-Q",
        "Local Address",
        "Foreign Address",
        if has_congestion {
            "(state)     CC"
        } else {
            "(state)"
        }
    ));
    for socket in &found {
        text.push_str(&line(socket, has_congestion));
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether sockets and routes of IPv4 are shown, and those of IPv6.
fn families(matches: &ArgMatches) -> [bool; 2] {
    let family = matches.get_one::<String>("family").map(String::as_str);
    let is_v4 = matches.get_flag("v4") || family == Some("inet");
    let is_v6 = matches.get_flag("v6") || family == Some("inet6");
    [is_v4 || !is_v6, is_v6 || !is_v4]
}

fn found(settings: &Settings, matches: &ArgMatches) -> Result<Vec<Socket>, Failure> {
    let is_set = |name: &str| matches.get_flag(name);
    let [has_v4, has_v6] = families(matches);
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
        has_v4,
        has_v6,
        ..Filter::of_states(Filter::STATES_ALL)
    };
    sockets(settings, &filter, is_set("congestion"), None)
}

fn line(socket: &Socket, has_congestion: bool) -> String {
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
    let figures = row.figures.as_ref().filter(|_| has_congestion);
    let congestion = figures.map_or(String::new(), |it| it.congestion.clone());
    let line = match congestion.as_str() {
        "" => line,
        name => format!("{}{name}", padded(&line, state)),
    };
    format!("{}\n", line.trim_end())
}

/// A line whose last column, the state, has its full width.
fn padded(line: &str, state: &str) -> String {
    const STATE_WIDTH: usize = 12;
    format!(
        "{line}{}",
        " ".repeat(STATE_WIDTH.saturating_sub(state.len()))
    )
}

/// FreeBSD's way of writing an address: the port behind a dot, `*` for all addresses.
fn dotted(address: SocketAddr) -> String {
    match address.ip() {
        ip if ip.is_unspecified() => format!("*.{}", address.port()),
        ip => format!("{ip}.{}", address.port()),
    }
}

fn counters(settings: &Settings, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let protocol = matches.get_one::<String>("protocol").map(String::as_str);
    if let Some(name) = protocol.filter(|name| bsd::protocols().all(|it| it != *name)) {
        let why = format!("netstat: {name}: unknown or uninstrumented protocol");
        return Err(Failure::new(why));
    }
    let which = match matches.get_one::<u32>("engine") {
        Some(&number) if number > 0 => Which::Processes(number, number),
        _ => Which::All,
    };
    let mut sum = Values::new();
    for sample in samples(settings, which)? {
        for (name, value) in sample.values {
            *sum.entry(name).or_default() += value;
        }
    }
    if matches.get_flag("json") {
        return print_json(&sum);
    }
    print(&bsd::text(&sum, protocol))?;
    Ok(ExitCode::SUCCESS)
}
