//! Sockets of running stacks, in the formats of Linux and FreeBSD: `slipstack ss`, `drop` and
//! `netstat`.

mod absent;
mod details;
pub mod drop;
mod ended;
pub mod netstat;
mod routes;
pub mod ss;
mod summary;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches};
use serde::Serialize;
use slipstack_attach::inquiry::{self, ProgramSockets};
use slipstack_channel::control::net::{EngineIdentity, Filter, Inquiry, SocketRow};
use slipstack_channel::report::{Place, Row};
use slipstack_channel::{SocketState, Transport};
use slipstack_config::Settings;

use crate::failure::Failure;
use crate::output::{print, say};

/// A process that has a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct User {
    pub pid: u32,
    pub program: String,
    pub fd: i32,
}

/// A socket of a stack with its engine and its processes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Socket {
    #[serde(flatten)]
    pub row: SocketRow,
    pub interface: String,
    /// Slot of the engine; 0 is the keeper's.
    pub engine: u16,
    pub users: Vec<User>,
}

pub fn flag(name: &'static str, letter: char, help: &'static str) -> Arg {
    Arg::new(name)
        .short(letter)
        .action(ArgAction::SetTrue)
        .help(help)
}

pub fn json() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print JSON")
}

pub fn engine() -> Arg {
    Arg::new("engine")
        .long("engine")
        .value_name("N")
        .value_parser(clap::value_parser!(u16))
        .help("Only the engine in this slot of the device; 0 is the keeper's")
}

/// The number that F-Stack's tools take.
fn fstack_process() -> Arg {
    Arg::new("engine")
        .value_name("N")
        .value_parser(clap::value_parser!(u32))
        .help("Process of F-Stack; every process of a device is shown here")
}

/// Returns the sockets that match a filter, with their processes.
pub fn sockets(
    settings: &Settings,
    filter: &Filter,
    has_figures: bool,
    slot: Option<u16>,
) -> Result<Vec<Socket>, Failure> {
    let inquiry = Inquiry::Sockets {
        filter: filter.clone(),
        has_figures,
    };
    let mut sockets = ask(settings, &inquiry, slot)?;
    let programs = inquiry::programs(settings).map_err(failed)?;
    let mut known: HashMap<Ends, Vec<(usize, usize)>> = HashMap::new();
    for (at, program) in programs.iter().enumerate() {
        let rows = program.sockets.iter().enumerate();
        for (place, (_, row)) in rows.filter(|(_, (_, row))| is_on_stack(row)) {
            let ends = (row.is_udp, row.local, row.remote);
            known.entry(ends).or_default().push((at, place));
        }
    }
    let mut used = HashSet::new();
    for socket in &mut sockets {
        let row = &socket.row;
        let ends = (row.protocol == Transport::Udp, Some(row.local), row.remote);
        let owner = socket.users.first().map(|user| user.pid);
        // Several processes may listen on one address, each on its own engine.
        let is_owner = |pid: u32| row.remote.is_some() || owner.is_none_or(|owner| owner == pid);
        let places = known.get(&ends).into_iter().flatten();
        let places: Vec<(usize, usize)> = places
            .filter(|(at, _)| row.is_held && is_owner(programs[*at].program.pid))
            .copied()
            .collect();
        used.extend(places.iter().copied());
        let users = places
            .iter()
            .map(|(at, place)| user(&programs[*at], *place));
        socket.users = users.collect();
    }
    // Listeners that no process waits on yet are no engine's.
    if slot.is_none() {
        sockets.extend(unserved(&programs, &used).filter(|it| filter.matches(&it.row)));
    }
    sockets.sort_by_key(|it| {
        let row = &it.row;
        (row.protocol, row.state, row.local, row.remote, it.engine)
    });
    Ok(sockets)
}

/// Asks the engines for rows.
pub fn ask(
    settings: &Settings,
    inquiry: &Inquiry,
    slot: Option<u16>,
) -> Result<Vec<Socket>, Failure> {
    let mut sockets = Vec::new();
    for answer in inquiry::inquire(settings, inquiry).map_err(failed)? {
        let EngineIdentity {
            slot: engine,
            pid,
            program,
            instance,
            has_answered,
        } = answer.engine;
        if slot.is_some_and(|wanted| wanted != engine) {
            continue;
        }
        // The user does not learn whose it is.
        let shown = match pid {
            0 => "an engine of another user".to_owned(),
            _ => format!("the engine of {program} (pid {pid})"),
        };
        if !has_answered {
            say(&format!(
                "slipstack: {shown} on {} did not answer; its sockets are missing",
                answer.interface
            ));
        }
        for line in answer.text.lines() {
            // A program of another version, or an invalid row.
            let Ok(row) = serde_json::from_str::<SocketRow>(line) else {
                return Err(Failure::new(format!(
                    "{shown} sent an answer that is not understood"
                )));
            };
            let of_program = (engine != 0 && pid != 0 && instance.is_none()).then_some(pid);
            sockets.push(Socket {
                row,
                interface: answer.interface.clone(),
                engine,
                users: of_program
                    .map(|pid| User {
                        pid,
                        program: program.clone(),
                        fd: -1,
                    })
                    .into_iter()
                    .collect(),
            });
        }
    }
    Ok(sockets)
}

pub fn failed(error: slipstack_attach::Error) -> Failure {
    Failure::new(error.to_string())
}

/// Protocol and addresses by which a program's socket is found: whether it is UDP, local, remote.
type Ends = (bool, Option<SocketAddr>, Option<SocketAddr>);

fn user(program: &ProgramSockets, place: usize) -> User {
    User {
        pid: program.program.pid,
        program: program.program.program.clone(),
        fd: program.sockets[place].0,
    }
}

fn is_on_stack(row: &Row) -> bool {
    matches!(row.place, Place::Stack | Place::Both)
}

/// Sockets that programs have and no engine.
fn unserved<'a>(
    programs: &'a [ProgramSockets],
    used: &'a HashSet<(usize, usize)>,
) -> impl Iterator<Item = Socket> + 'a {
    let all = programs.iter().enumerate().flat_map(|(at, program)| {
        let rows = program.sockets.iter().enumerate();
        rows.map(move |(place, (_, row))| ((at, place), program, row))
    });
    let all = all.filter(|(place, _, row)| is_on_stack(row) && !used.contains(place));
    all.filter(|(.., row)| row.remote.is_none())
        .filter_map(|((_, place), program, row)| {
            let (protocol, state) = match row.is_udp {
                true => (Transport::Udp, SocketState::Closed),
                false => (Transport::Tcp, SocketState::Listen),
            };
            Some(Socket {
                row: SocketRow {
                    protocol,
                    is_held: true,
                    ..SocketRow::between(state, row.local?, None)
                },
                interface: String::new(),
                engine: 0,
                users: vec![user(program, place)],
            })
        })
}

/// The port of a service that /etc/services names.
pub fn port_of(name: &str) -> Option<u16> {
    let services = std::fs::read_to_string("/etc/services").ok()?;
    let mut found = services.lines().filter_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let (first, port) = (words.next()?, words.next()?);
        let is_meant = first == name || words.any(|alias| alias == name);
        is_meant.then(|| port.split('/').next()?.parse().ok())?
    });
    found.next()
}

pub fn is_set(matches: &ArgMatches, name: &str) -> bool {
    matches.try_get_one::<bool>(name).ok().flatten() == Some(&true)
}

pub fn print_json<T: Serialize + ?Sized>(value: &T) -> Result<ExitCode, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Failure::new(e.to_string()))?;
    print(&format!("{text}\n"))?;
    Ok(ExitCode::SUCCESS)
}
