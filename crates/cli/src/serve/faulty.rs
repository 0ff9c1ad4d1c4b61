//! `slipstack serve faulty`: for tests of what remains after a handler's panic.

use std::process::ExitCode;

use clap::ArgMatches;
use slipstack_apps::faulty::Faulty;

use super::hosting::{Common, Site};
use crate::failure::Failure;

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    Common::new(matches)?.serve("faults", |site: &Site| Faulty {
        listen: site.listen.clone(),
    })
}
