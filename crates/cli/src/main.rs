//! The `slipstack` command.

mod admin;
mod args;
mod arguments;
mod capture;
mod command_line;
mod config;
mod counters;
mod failure;
mod given;
mod given_texts;
mod group;
mod host;
mod instance;
mod keeper;
mod load;
mod log;
mod names;
mod net;
mod notify;
mod output;
mod program;
mod reload;
mod run;
mod serve;
mod sockets;
mod sysctl;
mod topology;
mod tune;
mod wait;

use std::process::ExitCode;

/// Exit codes: 0 done, 1 refused or failed (one sentence on standard error), 2 wrong usage.
fn main() -> ExitCode {
    slipstack_attach::abort_at_panics(slipstack_service::is_in_handler);
    let matches = command_line::command().get_matches_from(names::words());
    let Some((name, matches)) = matches.subcommand() else {
        return ExitCode::from(2);
    };
    let outcome = match name {
        "run" => run::run(matches),
        "instance" => instance::run(matches),
        "serve" => serve::run(matches),
        "bench" => load::run_bench(matches),
        "htstress" => load::run_stress(matches),
        "dnsbench" => load::run_dns(matches),
        "keeper" => keeper::run(matches),
        "status" => admin::status(matches),
        "tune" => tune::run(matches),
        "why" => admin::why(matches),
        "stop" => admin::stop(matches),
        "capture" => capture::run(matches),
        "sysctl" => sysctl::run(matches),
        "ss" => asked(matches, |settings| sockets::ss::run(settings, matches)),
        "drop" => asked(matches, |settings| sockets::drop::run(settings, matches)),
        "netstat" => asked(matches, |settings| sockets::netstat::run(settings, matches)),
        "locality" => asked(matches, |settings| {
            counters::locality::run(settings, matches)
        }),
        "nstat" => asked(matches, |settings| counters::nstat::run(settings, matches)),
        "top" => asked(matches, |settings| counters::top::run(settings, matches)),
        "traffic" => asked(matches, |settings| {
            counters::traffic::run(settings, matches)
        }),
        "reload" => reload::run(matches),
        "config" => config::run(matches),
        "wait" => wait::run(matches),
        "ip" => net::run(matches, net::ip::run),
        "monitor" => net::run(matches, net::ip::watch),
        "ifconfig" => net::run(matches, net::bsd::ifconfig::run),
        "route" => net::run(matches, net::bsd::route::run),
        "arp" => net::run(matches, net::bsd::arp::run),
        "ndp" => net::run(matches, net::bsd::ndp::run),
        "ipfw" => net::run(matches, net::bsd::ipfw::run),
        "knictl" => net::run(matches, net::bsd::knictl::run),
        _ => return ExitCode::from(2),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            output::say(&format!("slipstack: {failure}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs a command of which the settings are only the device and where it is.
fn asked(
    matches: &clap::ArgMatches,
    command: impl FnOnce(&slipstack_config::Settings) -> Result<ExitCode, failure::Failure>,
) -> Result<ExitCode, failure::Failure> {
    given::asking(matches).and_then(|settings| command(&settings))
}
