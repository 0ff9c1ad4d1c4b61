//! The command lines of the load generators.

use clap::{Arg, ArgAction, Command, value_parser};
use slipstack_config::Scope;

use super::sweep;
use crate::args::with_options;
use crate::arguments::long_help;

pub fn bench_command() -> Command {
    let command = Command::new("bench")
        .about("Release many connections at one instant and time each answer")
        .long_about(
            "\
            Opens N connections to an echo server, has all of them send a message at one instant,\n\
            and measures how long each waits for its answer; R times. FILE gets a line `index us`\n\
            for each connection, with its average.",
        )
        .after_help(
            "Examples:\n  \
             slipstack bench --if eth1 --ip 10.0.0.1/24 -n 1000 -r 10 10.0.0.2:12345\n  \
             slipstack bench --kernel -n 1000 -r 10 --out kernel.txt --svg kernel.svg 127.0.0.1:7",
        )
        .arg(target(
            "HOST:PORT",
            "Echo server, such as `slipstack serve echo`",
        ))
        .arg(number(
            'n',
            "connections",
            "N",
            "1000",
            "Connections, at most 16384",
        ))
        .arg(number(
            'r',
            "rounds",
            "R",
            "10",
            "Rounds, whose average is taken",
        ))
        .arg(
            Arg::new("message")
                .long("message")
                .value_name("TEXT")
                .default_value("dummy message")
                .help("Message that each connection sends"),
        )
        .arg(file(
            "out",
            "bench.txt",
            "File for the times of each connection",
        ))
        .arg(file("svg", "", "File for a plot of them"))
        .arg(flag(
            "json",
            None,
            "Write the distribution as one JSON object",
        ))
        .arg(kernel());
    with_options(command, &[Scope::RunAndInstance, Scope::All])
}

pub fn stress_command() -> Command {
    let command = Command::new("htstress")
        .about("Send HTTP requests as fast as they are answered, and count them")
        .long_about(
            "\
        Sends requests to one URL, each on a connection of its own unless --keep-alive is given,\n\
        and counts the answers: good are those with status 200. -c is the number of connections\n\
        of each thread (of each engine, on the stack).",
        )
        .after_help(
            "\
    Examples:\n  \
    slipstack htstress --kernel -n 100000 -c 20 -t 3 http://127.0.0.1:8081/\n  \
    slipstack htstress --if eth1 --ip 10.0.0.1/24 -c 64 --keep-alive http://10.0.0.2/hello\n  \
    slipstack htstress --kernel -n 20000 -t 1,2 -c 1,10,100 --svg rates.svg http://127.0.0.1:8081/",
        )
        // -h names a host here, as it does for the program of this name.
        .disable_help_flag(true)
        .arg(long_help())
        .arg(target("http://HOST[:PORT]/PATH", "URL to request"))
        .arg(number(
            'n',
            "number",
            "COUNT",
            "0",
            "Requests in all; 0 = until Ctrl-C",
        ))
        .arg(list(
            'c',
            "concurrency",
            "Connections of each thread; of several, a run for each",
        ))
        .arg(list(
            't',
            "threads",
            "Threads, or engines on the stack; of several, a run for each",
        ))
        .arg(file(
            "svg",
            "",
            "File for a plot of the rates over -c, a line for each of -t",
        ));
    let command = stress_requests(command)
        .arg(flag("json", None, "Write the result as one JSON object"))
        .arg(kernel());
    with_options(command, &[Scope::RunAndInstance, Scope::All])
}

/// Adds the options for the requests of `htstress` and their rate.
fn stress_requests(command: Command) -> Command {
    command
        .arg(flag(sweep::ONE, None, "One run of several").hide(true))
        .args_override_self(true)
        .arg(
            Arg::new("udaddr")
                .short('u')
                .long("udaddr")
                .value_name("PATH")
                .help("Unix domain socket to use instead: the stack has none, so this is refused"),
        )
        .arg(
            Arg::new("host")
                .short('h')
                .long("host")
                .value_name("NAME")
                .help("Value of the request's Host field"),
        )
        .arg(flag("debug", Some('d'), "Print the heads of answers"))
        .arg(flag("ipv4", Some('4'), "Use an IPv4 address").conflicts_with("ipv6"))
        .arg(flag("ipv6", Some('6'), "Use an IPv6 address"))
        .arg(flag(
            "keep-alive",
            None,
            "Send further requests on the same connection",
        ))
        .arg(
            Arg::new("rate")
                .long("rate")
                .value_name("REQUESTS")
                .value_parser(value_parser!(u64).range(1..=1_000_000_000))
                .help(
                    "Requests a second of all threads, whether or not they are answered; \
                     a request's time runs from when it was due",
                ),
        )
}

pub fn dns_command() -> Command {
    let command = Command::new("dnsbench")
        .about("Send DNS queries as fast as they are answered, or at a constant rate")
        .long_about(
            "\
    Sends queries over UDP to one server and counts the answers by their code. By itself so many\n\
    queries are under way at a time (-q, of each thread, or engine on the stack); with --rate\n\
    they are sent at a constant rate, and a query's time runs from when it was due.",
        )
        .after_help(
            "Examples:\n  \
             slipstack dnsbench --kernel --name www.example.org -l 5 127.0.0.1:5353\n  \
             slipstack dnsbench --if eth1 --ip 10.0.0.1/24 -d queries.txt -q 200 10.0.0.2\n  \
             slipstack dnsbench --kernel -d queries.txt --rate 100000 -l 10 --json 10.0.0.2",
        )
        .arg(target("HOST[:PORT]", "Name server"))
        .arg(
            Arg::new("data")
                .short('d')
                .long("data")
                .value_name("FILE")
                .value_parser(value_parser!(std::path::PathBuf))
                .conflicts_with("name")
                .required_unless_present("name")
                .help("Queries, a name and a type on each line, as dnsperf has them"),
        )
        .arg(text("name", "NAME", "Name to query"))
        .arg(
            text("type", "TYPE", "Its type")
                .default_value("A")
                .conflicts_with("data"),
        )
        .arg(number(
            'n',
            "number",
            "COUNT",
            "0",
            "Queries in all; 0 = as many as there is time \
            for",
        ))
        .arg(
            Arg::new("limit")
                .short('l')
                .long("limit")
                .value_name("SECONDS")
                .value_parser(value_parser!(u64).range(1..=1_000_000))
                .help("Send no query after this time; 10 without -n"),
        )
        .arg(
            Arg::new("edns")
                .long("edns")
                .value_name("BYTES")
                .value_parser(value_parser!(u16))
                .help("Send an OPT record with this UDP payload size"),
        )
        .arg(flag("dnssec", None, "Ask for DNSSEC records (the DO bit)"))
        .arg(flag("json", None, "Write the result as one JSON object"))
        .arg(kernel());
    with_options(dns_load(command), &[Scope::RunAndInstance, Scope::All])
}

/// Number of queries, and their rate.
fn dns_load(command: Command) -> Command {
    command
        .arg(
            number(
                'q',
                "outstanding",
                "COUNT",
                "100",
                "Outstanding queries of each thread",
            )
            .value_parser(value_parser!(u64).range(1..=1_000_000)),
        )
        .arg(
            number(
                'c',
                "sockets",
                "COUNT",
                "4",
                "Sockets, each with its own port, of each thread",
            )
            .value_parser(value_parser!(u64).range(1..=1024)),
        )
        .arg(
            number(
                't',
                "threads",
                "COUNT",
                "1",
                "Threads, or engines on the stack",
            )
            .value_parser(value_parser!(u64).range(1..=1024)),
        )
        .arg(
            Arg::new("rate")
                .long("rate")
                .value_name("QUERIES")
                .value_parser(value_parser!(u64).range(1..=1_000_000_000))
                .help("Queries a second of all threads, whether or not they are answered"),
        )
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("MILLISECONDS")
                .default_value("5000")
                .value_parser(value_parser!(u64).range(1..=3_600_000))
                .help("Longest time for an answer"),
        )
}

fn text(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn target(name: &'static str, help: &'static str) -> Arg {
    Arg::new("target")
        .value_name(name)
        .required(true)
        .help(help)
}

fn number(
    short: char,
    long: &'static str,
    value: &'static str,
    default: &'static str,
    help: &'static str,
) -> Arg {
    Arg::new(long)
        .short(short)
        .long(long)
        .value_name(value)
        .default_value(default)
        .value_parser(value_parser!(u64))
        .help(help)
}

/// Numbers separated by commas; given twice, the last holds.
fn list(short: char, long: &'static str, help: &'static str) -> Arg {
    number(short, long, "COUNT[,COUNT]", "1", help)
        .value_delimiter(',')
        .value_parser(value_parser!(u64).range(1..=1_000_000))
        .action(ArgAction::Set)
        .num_args(1)
}

fn file(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    let arg = Arg::new(name)
        .long(name)
        .value_name("FILE")
        .value_parser(value_parser!(std::path::PathBuf))
        .help(help);
    match default {
        "" => arg,
        default => arg.default_value(default),
    }
}

fn flag(name: &'static str, short: Option<char>, help: &'static str) -> Arg {
    let arg = Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help);
    match short {
        Some(short) => arg.short(short),
        None => arg,
    }
}

fn kernel() -> Arg {
    flag(
        "kernel",
        None,
        "Use the kernel's sockets instead of a stack of our own",
    )
}
