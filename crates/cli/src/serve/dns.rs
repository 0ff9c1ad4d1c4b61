//! `slipstack serve dns`.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use slipstack_apps::dns::{Dns, DnsOptions, Zones};

use super::hosting::Common;
use crate::failure::Failure;

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let mut zones = Zones::default();
    for text in matches.get_many::<String>("zone").into_iter().flatten() {
        let (origin, file) = text
            .split_once('=')
            .ok_or_else(|| Failure::new(format!("--zone {text}: ORIGIN=FILE is wanted")))?;
        zones
            .load(origin, Path::new(file))
            .map_err(|error| Failure::new(error.to_string()))?;
    }
    let zones = Arc::new(zones);
    let mut common = Common::new(matches)?;
    let number = |name: &str| *matches.get_one::<u32>(name).unwrap_or(&0);
    let options = |listen: Vec<SocketAddr>| DnsOptions {
        listen,
        backlog: number("backlog"),
        zones: Arc::clone(&zones),
        idle: Duration::from_secs(number("idle").into()),
    };
    common.dispatch(matches, |_| Box::new(Dns::new(options(Vec::new()))))?;
    common.serve("dns", |site| Dns::new(options(site.listen.clone())))
}
