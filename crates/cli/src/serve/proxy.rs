//! `slipstack serve proxy`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use slipstack_apps::proxy::{Balance, Figures, Protocol, Proxy, ProxyOptions};
use slipstack_apps::tls::HTTP11;

use super::hosting::Site;
use super::tls;
use crate::failure::Failure;

/// The proxy's own limit.
const BACKENDS_MAX: usize = 64;

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let backends: Vec<SocketAddr> = matches
        .get_many::<SocketAddr>("backend")
        .unwrap_or_default()
        .copied()
        .collect();
    if backends.len() > BACKENDS_MAX {
        return Err(Failure::new(format!(
            "--backend may be given {BACKENDS_MAX} times"
        )));
    }
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let number = |name: &str| *matches.get_one::<u32>(name).unwrap_or(&0);
    let seconds = |name: &str| Duration::from_secs(number(name).into());
    let balance: Balance = text("balance")
        .map_or(Ok(Balance::RoundRobin), |text| text.parse())
        .map_err(|wanted| Failure::new(format!("--balance is {wanted}")))?;
    let is_tcp = text("protocol").as_deref() == Some("tcp");
    let protocols: &[&[u8]] = if is_tcp { &[] } else { &[HTTP11] };
    let (common, keys) = tls::common(matches, protocols)?;
    let options = |site: &Site| ProxyOptions {
        listen: site.listen.clone(),
        backlog: number("backlog"),
        backends: backends.clone(),
        balance,
        protocol: if is_tcp {
            Protocol::Tcp
        } else {
            Protocol::Http
        },
        idle: seconds("idle"),
        answer: seconds("answer-timeout"),
        idle_backends: number("idle-backends") as usize,
        check_every: Some(seconds("check-every")).filter(|every| !every.is_zero()),
        check_path: text("check-path"),
        figures: Arc::new(Figures::default()),
        keys: keys.clone(),
    };
    common.serve("the proxy", |site| Proxy::new(options(site)))
}
