//! `slipstack bench`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use clap::ArgMatches;
use slipstack_apps::load::bench::{Bench, BenchFigures, BenchOptions};
use slipstack_apps::load::{quantile, scatter};

use super::generator::{generate, resolve, write};
use crate::failure::Failure;
use crate::output::say;

/// Connections that one engine's channel takes.
const CONNECTIONS_MAX: u64 = 16_384;

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let number = |name: &str| *matches.get_one::<u64>(name).unwrap_or(&0);
    let connections = number("connections");
    if !(1..=CONNECTIONS_MAX).contains(&connections) {
        return Err(Failure::new(format!(
            "-n is between 1 and {CONNECTIONS_MAX}"
        )));
    }
    if text("message").is_empty() {
        return Err(Failure::new("an empty message has no answer"));
    }
    let options = BenchOptions {
        target: resolve(&text("target"), 12_345, |_| true)?,
        connections: connections as usize,
        rounds: number("rounds").max(1) as usize,
        message: text("message").into_bytes(),
    };
    let figures: Arc<Mutex<BenchFigures>> = Arc::default();
    generate(matches, 1, &|| {
        Bench::new(options.clone(), Arc::clone(&figures))
    })?;
    let figures = figures.lock().unwrap_or_else(PoisonError::into_inner);
    report(matches, &figures)
}

fn report(matches: &ArgMatches, figures: &BenchFigures) -> Result<ExitCode, Failure> {
    let averages = figures.averages();
    let mut lines = String::new();
    for (index, micros) in &averages {
        let _ = writeln!(lines, "{index} {micros}");
    }
    if let Some(path) = matches.get_one::<PathBuf>("out") {
        write(path, &lines)?;
    }
    let mut sorted: Vec<u64> = averages.iter().map(|(_, micros)| *micros).collect();
    if let Some(path) = matches.get_one::<PathBuf>("svg") {
        let plot = scatter("Time to the answer", "connection", "microseconds", &sorted);
        write(path, &plot)?;
    }
    sorted.sort_unstable();
    let at = |share| quantile(&sorted, share);
    if matches.get_flag("json") {
        let report = serde_json::json!({
            "connections": averages.len(),
            "rounds": figures.rounds,
            "failed": figures.failed,
            "latency_us": {
                "min": at(0.0), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1.0),
            },
        });
        crate::output::print(&format!("{report}\n"))?;
    }
    say(&format!(
        "{} connections, {} rounds, {} failed; us: min {} p50 {} p90 {} p99 {} max {}",
        averages.len(),
        figures.rounds,
        figures.failed,
        at(0.0),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    ));
    Ok(match figures.failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}
