//! `slipstack bench`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use clap::ArgMatches;
use slipstack_apps::load::bench::{Bench, BenchFigures, BenchOptions};
use slipstack_apps::load::scatter;

use super::generator::{generate, resolve, write};
use super::times;
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
        progress,
    };
    let figures = Arc::new(Mutex::new(BenchFigures::new(options.connections)));
    generate(matches, 1, &|| {
        Bench::new(options.clone(), Arc::clone(&figures))
    })?;
    let figures = figures.lock().unwrap_or_else(PoisonError::into_inner);
    report(matches, &figures)
}

/// Reports each tenth of the rounds.
fn progress(done: usize, rounds: usize) {
    if done < rounds && done.is_multiple_of(rounds.div_ceil(10)) {
        say(&format!("{done} of {rounds} rounds"));
    }
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
    let micros: Vec<u64> = averages.iter().map(|(_, micros)| *micros).collect();
    if let Some(path) = matches.get_one::<PathBuf>("svg") {
        let plot = scatter("Time to the answer", "connection", "microseconds", &micros);
        write(path, &plot)?;
    }
    let min = figures.times.min() as f64 / 1000.0;
    if matches.get_flag("json") {
        let mut latency = times::json(&figures.times);
        latency.insert("min".to_owned(), min.into());
        let report = serde_json::json!({
            "connections": averages.len(),
            "rounds": figures.rounds,
            "failed": figures.failed,
            "latency_us": latency,
        });
        crate::output::print(&format!("{report}\n"))?;
    }
    say(&format!(
        "{} connections, {} rounds, {} failed; us: min {min:.1} {}",
        averages.len(),
        figures.rounds,
        figures.failed,
        times::line(&figures.times)
    ));
    Ok(match figures.failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}
