//! `slipstack instance`: a stack in a process of its own.

use std::process::ExitCode;

use clap::ArgMatches;

use crate::failure::{Failure, settings};
use crate::{host, run};

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (_, mut settings) = settings(matches)?;
    if settings.name.is_none() {
        return Err(Failure::new(
            "an instance needs a name: slipstack instance --name NAME",
        ));
    }
    // SLIPSTACK_INSTANCE is for programs; an instance does not use another one.
    settings.instances = Vec::new();
    settings.bin = std::env::current_exe().ok();
    host::check(&settings)?;
    run::pin(&settings)?;
    slipstack_attach::instance_main(&settings).map_err(|error| {
        host::missing_privilege(&settings).unwrap_or_else(|| Failure::new(error.to_string()))
    })?;
    Ok(ExitCode::SUCCESS)
}
