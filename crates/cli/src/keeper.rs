//! `slipstack keeper`: the process that holds a device. Started by `run`, `instance` or a program.

use std::process::ExitCode;

use clap::ArgMatches;

use crate::failure::Failure;
use crate::given::settings;
use crate::log;
use crate::net::bsd::ipfw;

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (_, settings) = settings(matches)?;
    log::start(settings.log, None)?;
    let served = slipstack_attach::keeper_main(&settings, |state| {
        let wanted = ipfw::wanted(&settings, state);
        wanted
            .map(Option::unwrap_or_default)
            .map_err(|failure| failure.to_string())
    });
    served.map_err(|error| Failure::new(error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}
