//! Several runs of `slipstack htstress`: each number of threads with each number of connections.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use clap::ArgMatches;
use serde_json::Value;
use slipstack_apps::load::{Line, lines};

use crate::failure::Failure;
use crate::names;
use crate::output::print;

/// Tells a run that it is one of a sweep.
pub const ONE: &str = "one-of-sweep";

/// Returns whether there is more than one run to do, or a plot to draw.
pub fn is_asked(matches: &ArgMatches) -> bool {
    let several = |name: &str| counts(matches, name).len() > 1;
    let has_plot = matches.get_one::<PathBuf>("svg").is_some();
    !matches.get_flag(ONE) && (several("threads") || several("concurrency") || has_plot)
}

/// The numbers that an option lists; the last is the one of a single run.
pub fn counts(matches: &ArgMatches, name: &str) -> Vec<u64> {
    let listed = matches.get_many::<u64>(name);
    listed.map_or_else(|| vec![1], |values| values.copied().collect())
}

/// One run's result.
struct Run {
    threads: u64,
    connections: u64,
    result: Value,
}

impl Run {
    fn figure(&self, path: &str) -> f64 {
        self.result
            .pointer(path)
            .and_then(Value::as_f64)
            .unwrap_or(0.0)
    }
}

/// Does each run in a process of its own, so that none inherits another's state.
pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    if matches
        .get_one::<u64>("number")
        .is_none_or(|number| *number == 0)
    {
        return Err(Failure::new(
            "several numbers of -t or -c, or --svg, need -n: how many requests each run makes",
        ));
    }
    let (threads, connections) = (counts(matches, "threads"), counts(matches, "concurrency"));
    let is_json = matches.get_flag("json");
    let mut runs = Vec::new();
    if !is_json {
        print("threads  connections  requests/s     p50 us     p99 us  failed\n")?;
    }
    for &threads in &threads {
        for &connections in &connections {
            let run = one(threads, connections)?;
            if !is_json {
                print(&row(&run))?;
            }
            runs.push(run);
        }
    }
    if is_json {
        let rows = runs.iter().map(|run| {
            let mut result = run.result.clone();
            result["threads"] = run.threads.into();
            result["connections_per_thread"] = run.connections.into();
            result
        });
        print(&format!("{}\n", Value::Array(rows.collect())))?;
    }
    if let Some(path) = matches.get_one::<PathBuf>("svg") {
        super::generator::write(path, &plot(&threads, &runs))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn one(threads: u64, connections: u64) -> Result<Run, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("a run cannot be started: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let last = |option: &str, count: u64| [option.to_owned(), count.to_string()];
    let done = Command::new(program)
        .args(names::words().into_iter().skip(1))
        .args(last("--threads", threads))
        .args(last("--concurrency", connections))
        .args(["--json", &format!("--{ONE}")])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(failed)?;
    if !done.status.success() {
        return Err(Failure::new(format!(
            "the run with {threads} threads of {connections} connections failed"
        )));
    }
    let result = serde_json::from_slice(&done.stdout)
        .map_err(|error| Failure::new(format!("a run's result cannot be read: {error}")))?;
    Ok(Run {
        threads,
        connections,
        result,
    })
}

fn row(run: &Run) -> String {
    let failed = run.figure("/bad") + run.figure("/socket_errors");
    let mut row = format!("{:>7}  {:>11}", run.threads, run.connections);
    let _ = writeln!(
        row,
        "  {:>10.0}  {:>9.1}  {:>9.1}  {failed:>6.0}",
        run.figure("/requests_per_second"),
        run.figure("/latency_us/p50"),
        run.figure("/latency_us/p99"),
    );
    row
}

/// The rate over the number of connections, a line for each number of threads.
fn plot(threads: &[u64], runs: &[Run]) -> String {
    let line = |threads: &u64| Line {
        name: match threads {
            1 => "1 thread".to_owned(),
            several => format!("{several} threads"),
        },
        points: runs
            .iter()
            .filter(|run| run.threads == *threads)
            .map(|run| (run.connections as f64, run.figure("/requests_per_second")))
            .collect(),
    };
    let all: Vec<Line> = threads.iter().map(line).collect();
    lines(
        "Requests a second",
        "connections of each thread",
        "requests/s",
        &all,
    )
}
