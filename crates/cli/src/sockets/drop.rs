//! `slipstack drop`: closes connections of running stacks.

use std::io::{BufRead as _, IsTerminal as _};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use slipstack_channel::control::net::{
    Comparison, Expression, Filter, Inquiry, Side, parse_filter,
};
use slipstack_config::Settings;

use super::{Socket, ask, json, port_of, print_json};
use crate::failure::Failure;
use crate::output::print;

/// Pairs in one question: with them it still fits a message.
const PAIRS_MAX: usize = 500;

pub fn command() -> Command {
    Command::new("drop")
        .about("Close connections of running stacks, TIME-WAIT included, and print how many")
        .long_about(
            "\
            Closes connections of running stacks: RST to the peer, ECONNABORTED to the program; \
            what is in\n\
            TIME-WAIT or half open is forgotten. Connections are named as pairs LOCAL REMOTE, as \
            arguments\n\
            or as lines of standard input (-), or by what they have in common. Listeners stay.",
        )
        .after_help(
            "Examples:\n  \
             slipstack drop 10.0.0.2:80 10.0.0.1:5000\n  \
             netstat -tn | awk '{print $4, $5}' | slipstack drop -\n  \
             slipstack drop --state time-wait\n  \
             slipstack drop --state established --peer 10.0.0.0/8 --port 80 --idle 600",
        )
        .arg(
            Arg::new("pairs")
                .value_name("LOCAL REMOTE")
                .num_args(0..)
                .help("Ends of each connection; - reads pairs from standard input"),
        )
        .arg(
            Arg::new("state")
                .long("state")
                .value_name("STATE")
                .action(ArgAction::Append)
                .help("In this state, such as established, close-wait, time-wait, all"),
        )
        .arg(
            Arg::new("port")
                .long("port")
                .value_name("PORT")
                .value_parser(clap::value_parser!(u16).range(1..))
                .help("To or from this local port"),
        )
        .arg(
            Arg::new("peer")
                .long("peer")
                .value_name("ADDRESS[/LEN][:PORT]")
                .help("With this peer"),
        )
        .arg(
            Arg::new("local")
                .long("local")
                .value_name("ADDRESS[/LEN][:PORT]")
                .help("With this local address"),
        )
        .arg(
            Arg::new("idle")
                .long("idle")
                .value_name("SECONDS")
                .value_parser(clap::value_parser!(u64))
                .help("Idle for at least this time; for TIME-WAIT, its age"),
        )
        .arg(
            Arg::new("list")
                .long("list")
                .action(ArgAction::SetTrue)
                .help("Name the connections that were closed"),
        )
        .arg(json())
}

pub fn run(settings: &Settings, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let filter = filter_of(matches)?;
    let pairs = pairs(matches)?;
    let dropped = match (pairs.is_empty(), filter) {
        (true, None) => {
            return Err(Failure::new(
                "which connections? Name pairs LOCAL REMOTE, or --state, --port, --peer, --local, \
                 --idle",
            ));
        }
        (true, Some(filter)) => drop_all(settings, filter)?,
        (false, filter) => drop_pairs(settings, &pairs, filter)?,
    };
    if matches.get_flag("json") {
        return print_json(&dropped);
    }
    let mut text = String::new();
    if matches.get_flag("list") {
        for Socket { row, .. } in &dropped {
            let remote = row.remote.map(|it| it.to_string()).unwrap_or_default();
            text.push_str(&format!("{} {} {remote}\n", row.state.word(), row.local));
        }
    }
    let plural = if dropped.len() == 1 { "" } else { "s" };
    text.push_str(&format!("{} connection{plural} dropped\n", dropped.len()));
    print(&text)?;
    // As of kill: nothing that was named was there.
    Ok(match dropped.is_empty() && !pairs.is_empty() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

fn drop_all(settings: &Settings, filter: Filter) -> Result<Vec<Socket>, Failure> {
    ask(settings, &Inquiry::Drop { filter }, None)
}

fn drop_pairs(
    settings: &Settings,
    pairs: &[(SocketAddr, SocketAddr)],
    filter: Option<Filter>,
) -> Result<Vec<Socket>, Failure> {
    let mut dropped = Vec::new();
    for some in pairs.chunks(PAIRS_MAX) {
        let ends = some.iter().map(|(a, b)| Expression::Ends(*a, *b));
        let mut filter = filter.clone().unwrap_or_else(everything);
        let named = Expression::Any(ends.collect());
        filter.expression = Expression::All(vec![filter.expression, named]);
        dropped.extend(drop_all(settings, filter)?);
    }
    Ok(dropped)
}

fn everything() -> Filter {
    Filter {
        has_udp: false,
        ..Filter::of_states(Filter::STATES_ALL)
    }
}

/// Returns the filter of the options; `None` without any.
fn filter_of(matches: &ArgMatches) -> Result<Option<Filter>, Failure> {
    let read =
        |text: &str| parse_filter(text, &port_of).map_err(|error| Failure::new(error.to_string()));
    let mut filter = everything();
    let mut all = Vec::new();
    let states = matches.get_many::<String>("state").unwrap_or_default();
    let states: Vec<String> = states.map(|it| format!("state {it}")).collect();
    if let (Some(states), _) = read(&states.join(" "))? {
        filter.states = states;
    }
    if let Some(port) = matches.get_one::<u16>("port") {
        all.push(Expression::Port(Side::Local, Comparison::Equal, *port));
    }
    for (name, side) in [("peer", "dst"), ("local", "src")] {
        if let Some(address) = matches.get_one::<String>(name) {
            all.push(read(&format!("{side} {address}"))?.1);
        }
    }
    if let Some(seconds) = matches.get_one::<u64>("idle") {
        all.push(Expression::IdleMs(seconds.saturating_mul(1000)));
    }
    let is_empty = states.is_empty() && all.is_empty();
    filter.expression = Expression::All(all);
    Ok((!is_empty).then_some(filter))
}

/// The pairs that were named, those of standard input among them.
fn pairs(matches: &ArgMatches) -> Result<Vec<(SocketAddr, SocketAddr)>, Failure> {
    let words: Vec<&String> = matches.get_many("pairs").unwrap_or_default().collect();
    if words.iter().any(|word| *word == "-") {
        if words.len() > 1 {
            return Err(Failure::new(
                "- reads all pairs: no others may be named beside it",
            ));
        }
        return read_pairs();
    }
    let (pairs, rest) = words.as_chunks::<2>();
    if let [odd] = rest {
        return Err(Failure::new(format!(
            "{odd} has no other end: pairs are LOCAL REMOTE"
        )));
    }
    let pairs = pairs.iter();
    pairs
        .map(|[local, remote]| {
            let end = |word: &str| {
                end_of(word).ok_or_else(|| Failure::new(format!("\"{word}\" is not ADDRESS:PORT")))
            };
            Ok((end(local)?, end(remote)?))
        })
        .collect()
}

/// Reads lines of standard input; lines without a pair, such as headings, are skipped.
fn read_pairs() -> Result<Vec<(SocketAddr, SocketAddr)>, Failure> {
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(Failure::new(
            "standard input is a terminal: pairs are expected from a pipe",
        ));
    }
    let mut pairs = Vec::new();
    for line in input.lock().lines() {
        let line = line.map_err(|error| Failure::new(format!("standard input: {error}")))?;
        let mut words = line.split_whitespace();
        if let (Some(local), Some(remote)) = (words.next(), words.next())
            && let (Some(local), Some(remote)) = (end_of(local), end_of(remote))
        {
            pairs.push((local, remote));
        }
    }
    match pairs.is_empty() {
        true => Err(Failure::new("standard input has no line LOCAL REMOTE")),
        false => Ok(pairs),
    }
}

/// `ADDRESS:PORT`, also as netstat writes IPv6 addresses, and v4-mapped ones.
fn end_of(word: &str) -> Option<SocketAddr> {
    if let Ok(end) = word.parse::<SocketAddr>() {
        return Some(SocketAddr::new(end.ip().to_canonical(), end.port()));
    }
    let (address, port) = word.rsplit_once(':')?;
    let address: IpAddr = address.parse().ok()?;
    Some(SocketAddr::new(address.to_canonical(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_parsed_as_netstat_and_ss_print_them() {
        let v6: SocketAddr = "[fd00::1]:80".parse().unwrap();
        assert_eq!(end_of("fd00::1:80"), Some(v6));
        assert_eq!(end_of("[fd00::1]:80"), Some(v6));
        assert_eq!(end_of("::ffff:10.0.0.1:80"), "10.0.0.1:80".parse().ok());
        assert_eq!(end_of("10.0.0.1:80"), "10.0.0.1:80".parse().ok());
        assert_eq!(end_of("Address"), None);
    }
}
