//! The command line of `slipstack serve`.

use std::net::SocketAddr;

use clap::{Arg, ArgAction, Command, value_parser};
use slipstack_config::Scope;

use crate::args::with_options;

pub fn command() -> Command {
    Command::new("serve")
        .about(
            "Serve echo, files over HTTP, DNS zones or a proxy inside the engine, without a \
            program",
        )
        .long_about(
            "\
        Runs a server on the stack itself: its requests are answered in the turn in which they\n\
        arrive. It ends with Ctrl-C or SIGTERM, and closes its connections in order.",
        )
        .after_help(
            "Examples:\n  \
             slipstack serve echo --if eth1 --ip 10.0.0.5/24\n  \
             slipstack serve http /var/www --if eth1 --ip 10.0.0.5/24 --port 80\n  \
             slipstack serve http --help",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(echo())
        .subcommand(http())
        .subcommand(dns())
        .subcommand(proxy())
        .subcommand(demo())
        .subcommand(faulty())
}

fn echo() -> Command {
    let command = Command::new("echo")
        .about("Send received data back, over TCP and UDP")
        .after_help(
            "Examples:\n  \
             slipstack serve echo --port 7\n  \
             slipstack serve echo --if eth1 --ip 10.0.0.5/24 --cores 0-1\n  \
             slipstack serve echo --workers 2 --shape pipeline\n  \
             slipstack serve echo --workers 3 --shape mixed --share 25",
        )
        .arg(
            Arg::new("mixed-max")
                .long("mixed-max")
                .value_name("BYTES")
                .default_value("1460")
                .value_parser(value_parser!(usize))
                .help(
                    "With --shape mixed: longest piece of TCP, and without --share longest \
                     datagram, that the engine sends back itself",
                ),
        );
    server(shaped(command), "12345")
}

fn http() -> Command {
    let command = Command::new("http")
        .about("Serve the files below a directory over HTTP/1.1 and 1.0")
        .after_help(
            "\
        Examples:\n  \
        slipstack serve http /var/www --port 80\n  \
        slipstack serve http . --if eth1 --ip 10.0.0.5/24 --cores 0-1 --access-log access.log\n  \
        slipstack serve http . --port 443 --tls-cert chain.pem --tls-key key.pem",
        )
        .arg(
            Arg::new("root")
                .value_name("ROOT")
                .required(true)
                .value_parser(value_parser!(std::path::PathBuf))
                .help("Directory whose files are served"),
        )
        .arg(
            Arg::new("no-listing")
                .long("no-listing")
                .action(ArgAction::SetTrue)
                .help("Answer 403 for directories without index.html instead of listing them"),
        )
        .arg(count(
            "cache-mb",
            "MIB",
            "64",
            "Memory of each engine's cache of files up to 1 MiB",
        ))
        .arg(count(
            "head-timeout",
            "SECONDS",
            "10",
            "Longest time for a request's head",
        ))
        .arg(
            Arg::new("connections-per-address")
                .long("connections-per-address")
                .value_name("COUNT")
                .value_parser(value_parser!(usize))
                .help("Most connections of one address on each engine; further ones are reset"),
        )
        .arg(
            Arg::new("access-log")
                .long("access-log")
                .value_name("FILE")
                .value_parser(value_parser!(std::path::PathBuf))
                .help(
                    "Append a line for each request (combined format, UTC); - is standard output",
                ),
        )
        .args(tls());
    server(command, "8081")
}

fn tls() -> [Arg; 2] {
    [
        file(
            "tls-cert",
            "Serve TLS with this chain of certificates (PEM); may be given several times",
        ),
        file(
            "tls-key",
            "Key of the chain that is named at the same place (PEM)",
        ),
    ]
}

fn dns() -> Command {
    let command = Command::new("dns")
        .about("Serve zones as an authoritative name server, over UDP and TCP")
        .after_help(
            "\
        Examples:\n  \
        slipstack serve dns --zone example.org=example.org.zone --if eth1 --ip 10.0.0.5/24\n  \
        slipstack serve dns --zone a.example=a.zone --zone b.example=b.zone --port 5353\n  \
        slipstack serve dns --zone example.org=example.org.zone --workers 3 --shape pipeline\n  \
        slipstack serve dns --config /etc/slipstack/dns.toml",
        )
        .arg(
            Arg::new("zone")
                .long("zone")
                .value_name("ORIGIN=FILE")
                .action(ArgAction::Append)
                .help(
                    "A zone and its master file; may be given several times, beside the zones of \
                     [dns] in the configuration file (--config)",
                ),
        )
        .arg(
            Arg::new("nsid")
                .long("nsid")
                .value_name("TEXT")
                .help("Name of this server, for clients that ask by the NSID option"),
        )
        .arg(
            Arg::new("stats")
                .long("stats")
                .value_name("SECONDS")
                .value_parser(value_parser!(u32).range(1..))
                .help("Interval of a line of JSON: queries by type and responses by code"),
        )
        .arg(
            Arg::new("identity")
                .long("identity")
                .value_name("TEXT")
                .help("Answer to id.server and hostname.bind in class CHAOS; otherwise REFUSED"),
        );
    server(shaped(command), "53")
}

/// Adds the options of servers whose datagrams workers may answer.
fn shaped(command: Command) -> Command {
    command
        .arg(
            Arg::new("shape")
                .long("shape")
                .value_name("SHAPE")
                .default_value("run")
                .value_parser(["run", "pipeline", "mixed"])
                .help(
                    "Where requests are answered: in the engine (run), by workers (pipeline), \
                        or, by the time they take, in either (mixed)",
                ),
        )
        .arg(
            Arg::new("share")
                .long("share")
                .value_name("PERCENT")
                .value_parser(value_parser!(u8).range(0..=100))
                .help("With --shape mixed: the engine's part of all datagrams, quick or not"),
        )
        .arg(
            Arg::new("ring")
                .long("ring")
                .value_name("COUNT")
                .default_value("2048")
                .value_parser(value_parser!(u32).range(1..=65_536))
                .help(
                    "Datagrams that may wait between an engine and a worker; further ones are \
                     dropped and counted",
                ),
        )
}

fn proxy() -> Command {
    let command = Command::new("proxy")
        .about("Forward connections to backends: HTTP requests, or plain TCP")
        .after_help(
            "\
        Examples:\n  \
        slipstack serve proxy --if eth1 --ip 10.0.0.5/24 --port 80 --backend 10.0.0.7:8080\n  \
        slipstack serve proxy --protocol tcp --backend 10.0.0.7:5432 --backend 10.0.0.8:5432\n  \
        slipstack serve proxy --port 443 --tls-cert chain.pem --tls-key key.pem --backend …",
        )
        .arg(
            Arg::new("backend")
                .long("backend")
                .value_name("ADDRESS:PORT")
                .required(true)
                .action(ArgAction::Append)
                .value_parser(value_parser!(SocketAddr))
                .help("Backend that connections are forwarded to; may be given several times"),
        )
        .arg(
            Arg::new("protocol")
                .long("protocol")
                .value_name("PROTOCOL")
                .default_value("http")
                .value_parser(["http", "tcp"])
                .help(
                    "http: each request by itself, over connections to backends that are kept; \
                     tcp: each connection has one of its own",
                ),
        )
        .arg(
            Arg::new("balance")
                .long("balance")
                .value_name("HOW")
                .default_value("round-robin")
                .value_parser(["round-robin", "least-connections"])
                .help("Choice of a backend, on each engine"),
        )
        .arg(count(
            "answer-timeout",
            "SECONDS",
            "60",
            "Longest time until a backend begins its answer",
        ))
        .arg(
            Arg::new("idle-backends")
                .long("idle-backends")
                .value_name("COUNT")
                .default_value("64")
                .value_parser(value_parser!(u32))
                .help("With http: connections to each backend that are kept, on each engine"),
        )
        .arg(
            Arg::new("check-every")
                .long("check-every")
                .value_name("SECONDS")
                .default_value("2")
                .value_parser(value_parser!(u32))
                .help("Interval of checks of backends; 0: one that refuses is skipped for 2 s"),
        )
        .arg(
            Arg::new("check-path")
                .long("check-path")
                .value_name("PATH")
                .help("Path that a check requests, expecting 2xx or 3xx; without it, it connects"),
        )
        .args(tls());
    server(command, "8080")
}

fn demo() -> Command {
    let addresses = |name: &'static str, letter: char, help: &'static str| {
        Arg::new(name)
            .short(letter)
            .long(name)
            .value_name("ADDRESS:PORT")
            .action(ArgAction::Append)
            .value_parser(value_parser!(SocketAddr))
            .help(help)
    };
    let flag = |name: &'static str, letter: char, help: &'static str| {
        Arg::new(name)
            .short(letter)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    let command = Command::new("demo")
        .about("Serve one page, or forward requests, and print the requests of each second")
        .after_help(
            "Examples:\n  \
             slipstack serve demo -w 2 -k --if eth1 --ip 10.0.0.5/24 -a 10.0.0.5:80\n  \
             slipstack serve demo -w 2 -v -x 10.0.0.7:80 -x 10.0.0.8:80",
        )
        .arg(count("engines", "COUNT", "1", "Engines, one for each core").short('w'))
        .arg(
            Arg::new("first-core")
                .short('c')
                .long("first-core")
                .value_name("CORE")
                .value_parser(value_parser!(u32))
                .help("Core of the first engine; the others have the ones after it"),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE")
                .value_parser(value_parser!(std::path::PathBuf))
                .help("Append the count of each second to this file"),
        )
        .arg(addresses(
            "listen",
            'a',
            "Address to listen on; may be given several times",
        ))
        .arg(addresses(
            "backend",
            'x',
            "Backend to forward requests to; may be given several times",
        ))
        .arg(flag(
            "keep-alive",
            'k',
            "Answer several requests on a connection",
        ))
        .arg(flag(
            "verbose",
            'v',
            "Print the requests of each engine too",
        ))
        .arg(flag(
            "debug",
            'd',
            "Log what the stack does, as --log debug",
        ));
    server(command, "80")
}

fn file(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("FILE")
        .action(ArgAction::Append)
        .value_parser(value_parser!(std::path::PathBuf))
        .help(help)
}

/// For tests: named nowhere.
fn faulty() -> Command {
    let command = Command::new("faulty")
        .about("Panic when asked to")
        .hide(true);
    server(command, "12345")
}

fn count(
    name: &'static str,
    value: &'static str,
    default: &'static str,
    help: &'static str,
) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name(value)
        .default_value(default)
        .value_parser(value_parser!(u32).range(1..))
        .help(help)
}

/// The options that every server has.
fn server(command: Command, port: &'static str) -> Command {
    let command = command
        .arg(
            Arg::new("port")
                .long("port")
                .value_name("PORT")
                .default_value(port)
                .value_parser(value_parser!(u16).range(1..))
                .help("Port to listen on"),
        )
        .arg(
            Arg::new("backlog")
                .long("backlog")
                .value_name("COUNT")
                .default_value("1024")
                .value_parser(value_parser!(u32).range(1..))
                .help("Connections that wait to be accepted, on each engine"),
        )
        .arg(
            Arg::new("connections")
                .long("connections")
                .value_name("COUNT")
                .default_value("16384")
                .value_parser(value_parser!(usize))
                .help("Open connections on each engine; further ones are reset"),
        )
        .arg(
            Arg::new("idle")
                .long("idle")
                .value_name("SECONDS")
                .default_value("300")
                .value_parser(value_parser!(u32).range(1..))
                .help("Time after which a silent connection is closed"),
        )
        .arg(
            Arg::new("workers")
                .long("workers")
                .value_name("COUNT")
                .default_value("1")
                .action(ArgAction::Set)
                .value_parser(value_parser!(usize))
                .help(
                    "Threads for work that blocks or, by --shape, answers; shared by all engines",
                ),
        )
        .arg(
            Arg::new("kernel")
                .long("kernel")
                .action(ArgAction::SetTrue)
                .help("Serve on the kernel's sockets instead of a stack, for comparison"),
        );
    with_options(command, &[Scope::RunAndInstance, Scope::All])
}
