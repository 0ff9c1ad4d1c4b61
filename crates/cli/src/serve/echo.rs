//! `slipstack serve echo`.

use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;
use slipstack_apps::echo::{Echo, EchoOptions, Shape};

use super::hosting::{Common, Site};
use crate::failure::Failure;

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let common = Common::new(matches)?;
    let shape = matches.get_one::<String>("shape");
    let shape: Shape = shape
        .map_or(Ok(Shape::Run), |text| text.parse())
        .map_err(|wanted| Failure::new(format!("--shape is one of {wanted}")))?;
    if shape != Shape::Run && common.pool.is_none() {
        return Err(Failure::new(format!(
            "--shape {shape} needs workers: --workers 1 or more"
        )));
    }
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
