//! `slipstack serve`: a server inside the engine.

mod args;
mod demo;
mod dispatch;
mod dns;
mod echo;
mod faulty;
mod hosting;
mod http;
mod proxy;
mod tls;

use std::process::ExitCode;

use clap::ArgMatches;

use crate::failure::Failure;

pub use args::command;

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    match matches.subcommand() {
        Some(("echo", matches)) => echo::run(matches),
        Some(("faulty", matches)) => faulty::run(matches),
        Some(("demo", matches)) => demo::run(matches),
        Some(("dns", matches)) => dns::run(matches),
        Some(("http", matches)) => http::run(matches),
        Some(("proxy", matches)) => proxy::run(matches),
        _ => Ok(ExitCode::from(2)),
    }
}
