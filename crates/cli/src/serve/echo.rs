//! `slipstack serve echo`.

use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;
use slipstack_apps::echo::{Echo, EchoAnswerer, EchoOptions};

use super::hosting::{Common, Site};
use crate::failure::Failure;

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let mut common = Common::new(matches)?;
    let shape = common.dispatch(matches, |_| Box::new(EchoAnswerer))?;
    let number = |name: &str| *matches.get_one::<u32>(name).unwrap_or(&0);
    let options = |site: &Site| EchoOptions {
        listen: site.listen.clone(),
        backlog: number("backlog"),
        idle: Duration::from_secs(number("idle").into()),
        shape,
        mixed_max: *matches.get_one("mixed-max").unwrap_or(&0),
    };
    common.serve("echo", |site| Echo::new(options(site)))
}
