//! Load generators: `slipstack bench`, `slipstack htstress` and `slipstack dnsbench`.

mod args;
mod bench;
mod dns;
mod generator;
mod stress;
mod sweep;
mod times;

use std::process::ExitCode;

use clap::ArgMatches;

use crate::failure::Failure;

pub use args::{bench_command, dns_command, stress_command};

pub fn run_bench(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    bench::run(matches)
}

pub fn run_dns(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    dns::run(matches)
}

pub fn run_stress(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    match sweep::is_asked(matches) {
        true => sweep::run(matches),
        false => stress::run(matches),
    }
}
