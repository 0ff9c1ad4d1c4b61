//! The command line of `slipstack serve`.

use clap::{Arg, ArgAction, Command, value_parser};
use slipstack_config::Scope;

use crate::args::with_options;

pub fn command() -> Command {
    Command::new("serve")
        .about("Serve echo, files over HTTP or DNS zones inside the engine, without a program")
        .long_about(
            "Runs a server on the stack itself: its requests are answered in the turn in which they\n\
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
}

fn echo() -> Command {
    let command = Command::new("echo")
        .about("Send back what comes, over TCP and UDP")
        .after_help(
            "Examples:\n  \
             slipstack serve echo --port 7\n  \
             slipstack serve echo --if eth1 --ip 10.0.0.5/24 --cores 0-1\n  \
             slipstack serve echo --workers 2 --shape pipeline",
        )
        .arg(
            Arg::new("shape")
                .long("shape")
                .value_name("SHAPE")
                .default_value("run")
                .value_parser(["run", "pipeline", "mixed"])
                .help(
                    "Who answers TCP: the engine (run), the workers (pipeline), or the engine what \
                     is short and workers the rest (mixed)",
                ),
        )
        .arg(
            Arg::new("mixed-max")
                .long("mixed-max")
                .value_name("BYTES")
                .default_value("1460")
                .value_parser(value_parser!(usize))
                .help("With --shape mixed: longest piece that the engine sends back itself"),
        );
    server(command, "12345")
}

fn http() -> Command {
    let command = Command::new("http")
        .about("Serve the files below a directory over HTTP/1.1 and 1.0")
        .after_help(
            "Examples:\n  \
             slipstack serve http /var/www --port 80\n  \
             slipstack serve http . --if eth1 --ip 10.0.0.5/24 --cores 0-1 --access-log access.log",
        )
        .arg(
            Arg::new("root")
                .value_name("ROOT")
                .required(true)
                .value_parser(value_parser!(std::path::PathBuf))
                .help("Directory whose files are served, and nothing outside of it"),
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
            "How long a request's head may take",
        ))
        .arg(
            Arg::new("per-address")
                .long("per-address")
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
        );
    server(command, "8081")
}

fn dns() -> Command {
    let command = Command::new("dns")
        .about("Serve zones as an authoritative name server, over UDP and TCP")
        .after_help(
            "Examples:\n  \
             slipstack serve dns --zone example.org=example.org.zone --if eth1 --ip 10.0.0.5/24\n  \
             slipstack serve dns --zone a.example=a.zone --zone b.example=b.zone --port 5353",
        )
        .arg(
            Arg::new("zone")
                .long("zone")
                .value_name("ORIGIN=FILE")
                .required(true)
                .action(ArgAction::Append)
                .help("A zone and its master file; may be given several times"),
        );
    server(command, "53")
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
                .help("Connections that may wait to be accepted, on each engine"),
        )
        .arg(
            Arg::new("connections")
                .long("connections")
                .value_name("COUNT")
                .default_value("16384")
                .value_parser(value_parser!(usize))
                .help("Most connections at a time on each engine; further ones are reset"),
        )
        .arg(
            Arg::new("idle")
                .long("idle")
                .value_name("SECONDS")
                .default_value("300")
                .value_parser(value_parser!(u32).range(1..))
                .help("A connection on which nothing comes for so long is closed"),
        )
        .arg(
            Arg::new("workers")
                .long("workers")
                .value_name("COUNT")
                .default_value("1")
                .action(ArgAction::Set)
                .value_parser(value_parser!(usize))
                .help("Threads for work that blocks, shared by all engines"),
        );
    with_options(command, &[Scope::RunAndInstance, Scope::All])
}
