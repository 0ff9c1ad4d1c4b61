//! `slipstack ss`: sockets in iproute2's format.

use std::net::IpAddr;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use slipstack_channel::control::net::{Filter, Inquiry, parse_filter};
use slipstack_channel::{SocketState, Transport};
use slipstack_config::Settings;

use super::details::{extended, internal, memory};
use super::summary::Summary;
use super::{Socket, ask, ended, engine, flag, is_set, json, port_of, print_json, sockets};
use crate::failure::Failure;
use crate::output::{print, table};

pub fn command() -> Command {
    Command::new("ss")
        .about("List the sockets of running stacks, as ss does the kernel's; -K closes them")
        .long_about(
            "\
            Lists the sockets of running stacks, whichever program and engine has them. Without -a \
            and -l\n\
            those that are connected. A filter follows the options, as that of ss: `state STATE`,\n\
            `exclude STATE`, and conditions `src ADDRESS[/LEN][:PORT]`, `dst …`, `sport = :PORT`, \
            `dport …`\n\
            (= != < <= > >=) with and, or, not and parentheses. -K closes the connections that the \
            filter\n\
            names, TIME-WAIT and half-open ones among them: RST to the peer, ECONNABORTED to the \
            program.\n\
            -E lists TCP connections as they end: the last 1024 of each engine between two looks.",
        )
        .after_help(
            "Examples:\n  \
             slipstack ss -tan\n  \
             slipstack ss -tip state established dst 10.0.0.0/8\n  \
             slipstack ss -ltnp '( sport = :80 or sport = :443 )'\n  \
             slipstack ss -t --json\n  \
             slipstack ss -tEi dst 10.0.0.9\n  \
             slipstack ss -K dst 10.0.0.9 dport = :5000",
        )
        .args([
            flag("tcp", 't', "TCP sockets"),
            flag("udp", 'u', "UDP sockets"),
            flag("listening", 'l', "Listening sockets only"),
            flag("all", 'a', "Listening sockets, connections, TIME-WAIT"),
            flag(
                "numeric",
                'n',
                "Accepted for scripts: addresses and ports are always numbers",
            ),
            flag("processes", 'p', "The processes that have each socket"),
            flag(
                "info",
                'i',
                "TCP's state: window, round trip, retransmissions, rates",
            ),
            flag("extended", 'e', "Interface, engine, idle time"),
            flag("memory", 'm', "Memory and the sizes of the buffers"),
            flag(
                "options",
                'o',
                "Accepted for scripts: with -e the time that TIME-WAIT has left",
            ),
            flag("summary", 's', "How many sockets there are of each kind"),
            flag(
                "kill",
                'K',
                "Close the connections that the filter names, and list them",
            ),
            events(),
            flag("headless", 'H', "Without the line of headings"),
            flag("v4", '4', "IPv4 only"),
            flag("v6", '6', "IPv6 only"),
        ])
        .args([json(), engine()])
        .arg(
            Arg::new("filter")
                .value_name("FILTER")
                .num_args(0..)
                .help("States and conditions"),
        )
}

fn events() -> Arg {
    let help = "Connections as they end, until Ctrl-C; with --json an object a line";
    let others = ["listening", "kill", "summary"];
    flag("events", 'E', help)
        .long("events")
        .conflicts_with_all(others)
}

/// The filter that the options and the words make.
pub fn filter_of(matches: &ArgMatches, default: u16) -> Result<Filter, Failure> {
    let words = matches.get_many::<String>("filter").unwrap_or_default();
    let words: Vec<&str> = words.map(String::as_str).collect();
    let (states, expression) = parse_filter(&words.join(" "), &port_of)
        .map_err(|error| Failure::new(format!("the filter cannot be read: {error}")))?;
    let [tcp, udp, v4, v6] = ["tcp", "udp", "v4", "v6"].map(|name| is_set(matches, name));
    Ok(Filter {
        states: states.unwrap_or(default),
        has_tcp: tcp || !udp,
        has_udp: udp || !tcp,
        has_v4: v4 || !v6,
        has_v6: v6 || !v4,
        expression,
    })
}

pub fn run(settings: &Settings, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let listening = SocketState::Listen.bit() | SocketState::Closed.bit();
    let has_all = ["all", "summary", "events"]
        .iter()
        .any(|name| is_set(matches, name));
    let default = match (has_all, is_set(matches, "listening")) {
        (true, _) => Filter::STATES_ALL,
        (false, true) => listening,
        (false, false) => Filter::STATES_CONNECTED,
    };
    let filter = filter_of(matches, default)?;
    if is_set(matches, "events") {
        ended::watch(settings, &filter, matches)?;
        return Ok(ExitCode::SUCCESS);
    }
    let slot = matches.get_one::<u16>("engine").copied();
    let found = match is_set(matches, "kill") {
        true if slot.is_some() => {
            return Err(Failure::new("-K is for all engines: leave --engine out"));
        }
        true => ask(
            settings,
            &Inquiry::Drop {
                filter: filter.clone(),
            },
            None,
        )?,
        false => sockets(settings, &filter, is_set(matches, "info"), slot)?,
    };
    if is_set(matches, "summary") {
        let summary = Summary::of(&found);
        if matches.get_flag("json") {
            return print_json(&summary);
        }
        print(&summary.text())?;
        return Ok(ExitCode::SUCCESS);
    }
    if matches.get_flag("json") {
        return print_json(&found);
    }
    let has_head = !is_set(matches, "headless");
    print(&text(&found, (&filter, has_head), matches))?;
    Ok(ExitCode::SUCCESS)
}

/// The table of these sockets, whose kinds a filter selects.
pub fn text(found: &[Socket], (filter, has_head): (&Filter, bool), matches: &ArgMatches) -> String {
    let has_net_id = filter.has_tcp && filter.has_udp;
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|it| cells(it, has_net_id, matches))
        .collect();
    let head: Vec<&str> = [
        "netid",
        "state",
        "recv-q",
        "send-q",
        "local address:port",
        "peer address:port",
        "process",
    ]
    .into_iter()
    .skip(usize::from(!has_net_id))
    .collect();
    let lines = table(&head, &rows);
    let mut lines = lines.lines();
    let mut text = String::new();
    let head = lines.next().unwrap_or_default();
    if has_head {
        text.push_str(head);
        text.push('\n');
    }
    for (socket, line) in found.iter().zip(lines) {
        text.push_str(line);
        text.push('\n');
        if is_set(matches, "info")
            && let Some(figures) = &socket.row.figures
        {
            text.push_str(&format!("\t {}\n", internal(figures)));
        }
    }
    text
}

fn cells(socket: &Socket, has_net_id: bool, matches: &ArgMatches) -> Vec<String> {
    let row = &socket.row;
    let state = match (row.protocol, row.state) {
        (Transport::Udp, SocketState::Established) => "ESTAB",
        (_, state) => state.word(),
    };
    let mut last = Vec::new();
    if is_set(matches, "processes") && !socket.users.is_empty() {
        last.push(users(socket));
    }
    if is_set(matches, "extended") {
        last.push(extended(socket));
    }
    if is_set(matches, "memory") {
        last.push(memory(socket));
    }
    let any = || match row.local.ip() {
        IpAddr::V4(_) => "0.0.0.0:*".to_owned(),
        IpAddr::V6(_) => "[::]:*".to_owned(),
    };
    let net_id = has_net_id.then(|| row.protocol.name().to_owned());
    let rest = [
        state.to_owned(),
        row.recv_q.to_string(),
        row.send_q.to_string(),
        row.local.to_string(),
        row.remote.map_or_else(any, |it| it.to_string()),
        last.join(" "),
    ];
    net_id.into_iter().chain(rest).collect()
}

fn users(socket: &Socket) -> String {
    let users = socket.users.iter().map(|user| {
        let (program, pid) = (&user.program, user.pid);
        match user.fd {
            0.. => format!("(\"{program}\",pid={pid},fd={})", user.fd),
            _ => format!("(\"{program}\",pid={pid})"),
        }
    });
    let users: Vec<String> = users.collect();
    format!("users:({})", users.join(","))
}
