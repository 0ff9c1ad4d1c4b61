//! Runs the rough link's worlds for a range of seeds. A failure prints its seed and leaves a pcap.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use slipstack_sim::{Failure, Options, Report, run_seed};

const USAGE: &str = "\
usage: seeds [--second-port] [--link rough|offloads] [--seeds N] [--start SEED] [--jobs N]
       seeds [--second-port] [--link rough|offloads] --seed SEED [--pcap FILE]";

struct Arguments {
    start: u64,
    count: u64,
    jobs: u64,
    options: Options,
}

fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if arguments.count == 0 {
        eprintln!("seeds: no seed was run: --count must be above 0");
        return ExitCode::from(2);
    }
    let begin = Instant::now();
    let next = AtomicU64::new(arguments.start);
    let end = arguments.start + arguments.count;
    let total = Mutex::new(Report::default());
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    match run_named(seed, arguments.options.clone()) {
                        Ok(report) => add(
                            &mut total.lock().unwrap_or_else(PoisonError::into_inner),
                            report,
                        ),
                        Err(failure) => {
                            explain(seed, &failure, &arguments.options);
                            failed
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .push(seed);
                        }
                    }
                }
            });
        }
    });
    let total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{} seeds in {:.1} s: {} connections, {} bytes, {} steps, {:.0} s of virtual time, {} \
         failed",
        arguments.count,
        begin.elapsed().as_secs_f64(),
        total.connections,
        total.bytes,
        total.steps,
        total.virtual_ns as f64 / 1e9,
        failed.len(),
    );
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Each seed has a thread of its name, so that a panic names it.
fn run_named(seed: u64, options: Options) -> Result<Report, Failure> {
    let run = move || run_seed(seed, &options);
    let thread = thread::Builder::new()
        .name(format!("seed {seed}"))
        .spawn(run);
    let panicked = || Failure {
        at: slipstack_stack::Instant::ZERO,
        message: "panicked, see above".into(),
    };
    thread.map_or_else(
        |_| Err(panicked()),
        |thread| thread.join().unwrap_or_else(|_| Err(panicked())),
    )
}

fn explain(seed: u64, failure: &Failure, options: &Options) {
    let path = PathBuf::from(format!("slipstack-seed-{seed}.pcap"));
    let options = Options {
        pcap: Some(path.clone()),
        ..options.clone()
    };
    let again = run_named(seed, options);
    let note = if again.as_ref() == Err(failure) {
        ""
    } else {
        " (not the same when run again!)"
    };
    let seconds = failure.at.0 as f64 / 1e9;
    eprintln!(
        "seed {seed} failed at {seconds:.6} s{note}: {}",
        failure.message
    );
    eprintln!(
        "  frames are in {}; again: seeds --seed {seed}",
        path.display()
    );
}

fn add(total: &mut Report, report: Report) {
    total.connections += report.connections;
    total.bytes += report.bytes;
    total.steps += report.steps;
    total.virtual_ns += report.virtual_ns;
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Arguments> {
    let jobs = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let mut parsed = Arguments {
        start: 0,
        count: 100,
        jobs,
        options: Options::default(),
    };
    while let Some(name) = arguments.next() {
        if name == "--second-port" {
            parsed.options.is_on_second_port = true;
            continue;
        }
        let value = arguments.next()?;
        match name.as_str() {
            "--count" | "--seeds" => parsed.count = value.parse().ok()?,
            "--start" => parsed.start = value.parse().ok()?,
            "--jobs" => parsed.jobs = value.parse::<u64>().ok()?.max(1),
            "--seed" => (parsed.start, parsed.count) = (value.parse().ok()?, 1),
            "--pcap" => parsed.options.pcap = Some(value.into()),
            "--link" if value == "rough" => parsed.options.offloads = false,
            "--link" if value == "offloads" => parsed.options.offloads = true,
            _ => return None,
        }
    }
    Some(parsed)
}
