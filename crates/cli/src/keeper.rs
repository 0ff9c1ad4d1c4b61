//! `slipstack keeper`: the process that holds a device. Started by `run`, `instance` or a program.

use std::process::ExitCode;

use clap::ArgMatches;

use crate::failure::Failure;
use crate::given::settings;

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (_, settings) = settings(matches)?;
    slipstack_attach::keeper_main(&settings).map_err(|error| Failure::new(error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}
