//! `slipstack ss`, `netstat`, `arp` and `ndp`: what running stacks have, in the words of Linux and FreeBSD.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::Serialize;
use slipstack_attach::admin;
use slipstack_channel::control::StatusReport;
use slipstack_channel::control::net::{Answer, Client, Query};

use crate::failure::{Failure, settings};
use crate::output::{print, table};

/// One socket of a program that is on the stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Socket {
    protocol: String,
    is_listening: bool,
    local: SocketAddr,
    remote: Option<SocketAddr>,
    pid: u32,
    program: String,
    fd: Option<i32>,
}

fn flag(name: &'static str, letter: char, help: &'static str) -> Arg {
    Arg::new(name)
        .short(letter)
        .action(ArgAction::SetTrue)
        .help(help)
}

fn process() -> Arg {
    Arg::new("engine")
        .value_name("N")
        .value_parser(clap::value_parser!(u32))
        .help("Process of F-Stack; every process of a device is shown here")
}

pub fn ss_command() -> Command {
    Command::new("ss")
        .about("List the sockets of running stacks, as ss does the kernel's")
        .after_help(
            "Examples:\n  \
             slipstack ss -tan\n  \
             slipstack ss -lup\n  \
             slipstack ss -t --json",
        )
        .arg(flag("tcp", 't', "TCP sockets"))
        .arg(flag("udp", 'u', "UDP sockets"))
        .arg(flag("listening", 'l', "Listening sockets only"))
        .arg(flag("all", 'a', "Listening sockets and connections"))
        .arg(flag(
            "numeric",
            'n',
            "Taken for scripts: addresses and ports are always numbers",
        ))
        .arg(flag("processes", 'p', "The process that has each socket"))
        .arg(flag("headless", 'H', "Without the line of headings"))
        .arg(flag("v4", '4', "IPv4 only"))
        .arg(flag("v6", '6', "IPv6 only"))
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print JSON"),
        )
}

pub fn netstat_command() -> Command {
    Command::new("netstat")
        .about("List the sockets, routes or counters of running stacks, as F-Stack's ff_netstat")
        .after_help(
            "Examples:\n  slipstack netstat -an\n  slipstack netstat -rn\n  ff_netstat -t 0 -s",
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
        .arg(process().short('t'))
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print JSON"),
        )
}

pub fn neighbour_command(name: &'static str, family: &'static str) -> Command {
    let about = format!("List the {family} neighbours of running stacks, as F-Stack's ff_{name}");
    let letter = if name == "arp" { 'p' } else { 'C' };
    Command::new(name)
        .about(about)
        .after_help(format!(
            "Examples:\n  slipstack {name} -a\n  ff_{name} -{letter} 0 -an"
        ))
        .arg(flag("all", 'a', "All of them, as without it"))
        .arg(flag(
            "numeric",
            'n',
            "Taken for scripts: addresses are always numbers",
        ))
        .arg(process().short(letter))
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print JSON"),
        )
}

pub fn ss(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let all = matches.get_flag("all");
    let listening = matches.get_flag("listening");
    let is_state = |socket: &Socket| match (all, listening) {
        (true, _) => true,
        (false, wanted) => socket.is_listening == wanted,
    };
    let (tcp, udp) = (matches.get_flag("tcp"), matches.get_flag("udp"));
    let is_protocol = |socket: &Socket| match socket.protocol.as_str() {
        "udp" => udp || !tcp,
        _ => tcp || !udp,
    };
    let found = sockets(matches, |it| is_state(it) && is_protocol(it))?;
    if matches.get_flag("json") {
        return print_json(&found);
    }
    let has_processes = matches.get_flag("processes");
    let row = |socket: &Socket| {
        let process = match socket.fd {
            Some(fd) => format!(
                "users:((\"{}\",pid={},fd={fd}))",
                socket.program, socket.pid
            ),
            None => format!("users:((\"{}\",pid={}))", socket.program, socket.pid),
        };
        vec![
            socket.protocol.clone(),
            socket.state(["LISTEN", "ESTAB", "UNCONN"]).to_owned(),
            socket.local.to_string(),
            socket
                .remote
                .map_or_else(|| socket.any("*"), |it| it.to_string()),
            if has_processes {
                process
            } else {
                String::new()
            },
        ]
    };
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    let head = [
        "netid",
        "state",
        "local address:port",
        "peer address:port",
        "process",
    ];
    let text = table(&head, &rows);
    let skipped = usize::from(matches.get_flag("headless"));
    let text: Vec<&str> = text.lines().skip(skipped).collect();
    print(&format!("{}\n", text.join("\n")))?;
    Ok(ExitCode::SUCCESS)
}

impl Socket {
    /// Words for a listener, a connection, and neither.
    fn state(&self, words: [&'static str; 3]) -> &'static str {
        match (self.protocol.as_str(), self.is_listening) {
            ("udp", true) => words[2],
            (_, true) => words[0],
            (_, false) => words[1],
        }
    }

    /// The address of everybody.
    fn any(&self, port: &str) -> String {
        match self.local.ip() {
            IpAddr::V4(_) => format!("0.0.0.0:{port}"),
            IpAddr::V6(_) => format!("[::]:{port}"),
        }
    }
}

fn reports(matches: &ArgMatches) -> Result<Vec<StatusReport>, Failure> {
    let (_, settings) = settings(matches)?;
    admin::status(&settings).map_err(|error| Failure::new(error.to_string()))
}

/// The sockets on stacks that are wanted, in order.
fn sockets(matches: &ArgMatches, wanted: impl Fn(&Socket) -> bool) -> Result<Vec<Socket>, Failure> {
    let flag = |name: &str| matches.try_get_one::<bool>(name).ok().flatten() == Some(&true);
    let (v4, v6) = (flag("v4"), flag("v6"));
    let reports = reports(matches)?;
    let programs = reports.iter().flat_map(|report| {
        let attached = report
            .instances
            .iter()
            .flat_map(|instance| &instance.programs);
        report.programs.iter().chain(attached)
    });
    let mut found = BTreeSet::new();
    for program in programs {
        for socket in &program.sockets {
            let Some(local) = socket.local else { continue };
            if !["stack", "both"].contains(&socket.place.as_str()) {
                continue;
            }
            let is_v4 = local.is_ipv4();
            let socket = Socket {
                protocol: socket.kind.clone(),
                is_listening: socket.remote.is_none(),
                local,
                remote: socket.remote,
                pid: program.pid,
                program: program.program.clone(),
                fd: socket.fd,
            };
            if wanted(&socket) && (v4 == v6 || v4 == is_v4) {
                found.insert(socket);
            }
        }
    }
    Ok(found.into_iter().collect())
}

pub fn netstat(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    if matches.get_flag("routes") {
        return routes(matches);
    }
    if matches.get_flag("statistics") {
        return counters(matches);
    }
    let all = matches.get_flag("all");
    let listening = matches.get_flag("listening");
    let protocol = matches.get_one::<String>("protocol");
    let found = sockets(matches, |socket| {
        let is_state = if listening {
            socket.is_listening
        } else {
            all || !socket.is_listening
        };
        is_state && protocol.is_none_or(|wanted| *wanted == socket.protocol)
    })?;
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
        let family = if socket.local.is_ipv4() { '4' } else { '6' };
        let remote = socket.remote.map_or("*.*".to_owned(), dotted);
        let line = format!(
            "{:<5} {:>6} {:>6} {:<45} {:<45} {}",
            format!("{}{family}", socket.protocol),
            "-",
            "-",
            dotted(socket.local),
            remote,
            socket.state(["LISTEN", "ESTABLISHED", ""]),
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// FreeBSD's way of writing an address: the port behind a dot, `*` for all addresses.
fn dotted(address: SocketAddr) -> String {
    match address.ip() {
        ip if ip.is_unspecified() => format!("*.{}", address.port()),
        ip => format!("{ip}.{}", address.port()),
    }
}

fn routes(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let reports = reports(matches)?;
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

fn counters(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let reports = reports(matches)?;
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

/// A neighbour with its interface and link-layer address.
#[derive(Debug, Serialize)]
struct Neighbour {
    ip: IpAddr,
    mac: String,
    interface: String,
}

pub fn neighbours(matches: &ArgMatches, is_v4: bool) -> Result<ExitCode, Failure> {
    let (_, settings) = settings(matches)?;
    let failed = |error: String| Failure::new(error);
    let mut found = Vec::new();
    for path in admin::control_sockets(&settings).map_err(|e| failed(e.to_string()))? {
        let client = Client::connect(&path).map_err(|e| failed(e.to_string()))?;
        let ask = |query| client.ask(query).map_err(|e| failed(e.to_string()));
        let (Answer::Network(state), Answer::Neighbours(all)) =
            (ask(Query::Network)?, ask(Query::Neighbours)?)
        else {
            return Err(failed(
                "the keeper gave an answer that does not fit".to_owned(),
            ));
        };
        for (vlan, ip, mac) in all.into_iter().filter(|(_, ip, _)| ip.is_ipv4() == is_v4) {
            let interface = state.interfaces.iter().find(|it| it.vlan == vlan);
            found.push(Neighbour {
                ip,
                mac: mac.map(|byte| format!("{byte:02x}")).join(":"),
                interface: interface.map_or_else(String::new, |it| it.name.clone()),
            });
        }
    }
    found.sort_by_key(|it| it.ip);
    if matches.get_flag("json") {
        return print_json(&found);
    }
    let mut text = String::new();
    if !is_v4 {
        text.push_str(&format!(
            "{:<40} {:<18} {}\n",
            "Neighbor", "Linklayer Address", "Netif"
        ));
    }
    for it in &found {
        text.push_str(&match is_v4 {
            true => format!(
                "? ({}) at {} on {} [ethernet]\n",
                it.ip, it.mac, it.interface
            ),
            false => format!("{:<40} {:<18} {}\n", it.ip, it.mac, it.interface),
        });
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn print_json<T: Serialize + ?Sized>(value: &T) -> Result<ExitCode, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Failure::new(e.to_string()))?;
    print(&format!("{text}\n"))?;
    Ok(ExitCode::SUCCESS)
}
