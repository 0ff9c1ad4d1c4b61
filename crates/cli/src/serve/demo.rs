//! `slipstack serve demo`: one page for every request, or a proxy, with a count each second.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use slipstack_apps::demo::{Demo, DemoOptions};
use slipstack_apps::proxy::{Balance, Figures, Protocol, Proxy, ProxyOptions};

use super::hosting::{Common, Site};
use crate::failure::Failure;

const SECOND: Duration = Duration::from_secs(1);
/// Connections to each backend that are kept.
const IDLE_BACKENDS: usize = 64;
const ANSWER: Duration = Duration::from_secs(60);

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let number = |name: &str| *matches.get_one::<u32>(name).unwrap_or(&0);
    let addresses = |name: &str| -> Vec<SocketAddr> {
        let found = matches.get_many::<SocketAddr>(name).unwrap_or_default();
        found.copied().collect()
    };
    let mut common = Common::new(matches)?;
    let (count, first) = (number("engines") as usize, number("first-core") as usize);
    if matches.get_one::<u32>("first-core").is_some() || count > 1 {
        common.settings.cores = (first..first + count).collect();
    }
    let figures: Vec<Arc<Figures>> = (0..count).map(|_| Arc::default()).collect();
    report_each_second(matches, figures.clone())?;
    let (listen, backends) = (addresses("listen"), addresses("backend"));
    let listen = |site: &Site| match listen.is_empty() {
        true => site.listen.clone(),
        false => listen.clone(),
    };
    let idle = Duration::from_secs(number("idle").into());
    let backlog = number("backlog");
    let keeps_alive = matches.get_flag("keep-alive");
    let figures_of = |site: &Site| Arc::clone(&figures[site.number % figures.len()]);
    if backends.is_empty() {
        return common.serve("the demo", |site| {
            Demo::new(DemoOptions {
                listen: listen(site),
                backlog,
                idle,
                keeps_alive,
                figures: figures_of(site),
            })
        });
    }
    common.serve("the demo's proxy", |site| {
        Proxy::new(ProxyOptions {
            listen: listen(site),
            backlog,
            backends: backends.clone(),
            balance: Balance::RoundRobin,
            protocol: Protocol::Http,
            idle,
            answer: ANSWER,
            idle_backends: if keeps_alive { IDLE_BACKENDS } else { 0 },
            check_every: None,
            check_path: None,
            figures: figures_of(site),
            keys: None,
        })
    })
}

/// Writes `Request/s` once a second, with each worker's share if that is wanted.
fn report_each_second(matches: &ArgMatches, figures: Vec<Arc<Figures>>) -> Result<(), Failure> {
    let mut out: Box<dyn Write + Send> = match matches.get_one::<PathBuf>("output") {
        None => Box::new(std::io::stdout()),
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let name = path.display();
            Box::new(
                file.map_err(|error| Failure::new(format!("{name} cannot be written: {error}")))?,
            )
        }
    };
    let is_verbose = matches.get_flag("verbose");
    let report = move || {
        let mut before = vec![0; figures.len()];
        let mut next = Instant::now() + SECOND;
        loop {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            next += SECOND;
            let counts = figures.iter().map(|it| it.requests.load(Ordering::Relaxed));
            let now: Vec<u64> = counts.collect();
            let rates: Vec<u64> = now.iter().zip(&before).map(|(now, it)| now - it).collect();
            let mut line = format!("Request/s {}", rates.iter().sum::<u64>());
            for (worker, rate) in rates.iter().enumerate().filter(|_| is_verbose) {
                line.push_str(&format!(" worker {worker} {rate}"));
            }
            // There may be no reader left.
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
            before = now;
        }
    };
    std::thread::Builder::new()
        .name("report".to_owned())
        .spawn(report)
        .map_err(|error| Failure::new(format!("cannot start a thread: {error}")))?;
    Ok(())
}
