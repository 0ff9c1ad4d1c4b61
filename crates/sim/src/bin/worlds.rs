//! Plays the families of worlds, for a number of seeds or a time. A failure prints its family and
//! seed and leaves a pcap.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use slipstack_sim::worlds::{FAMILIES, Family};
use slipstack_sim::{Failure, Report};

const USAGE: &str = "\
usage: worlds [--second-port] [--family NAME] [--count SEEDS] [--minutes N] [--start SEED]
              [--jobs N]
       worlds [--second-port] --family NAME --seed SEED [--pcap FILE]
       worlds --list";
const PROGRESS: Duration = Duration::from_secs(10);

struct Arguments {
    families: Vec<&'static Family>,
    start: u64,
    /// Seeds of each family.
    count: u64,
    minutes: Option<f64>,
    jobs: u64,
    pcap: Option<PathBuf>,
    /// The hosts meet on the second of their two interfaces.
    is_on_second_port: bool,
}

/// Counts of the worlds played so far.
#[derive(Default)]
struct Tally {
    worlds: u64,
    connections: u64,
    bytes: u64,
    steps: u64,
    virtual_s: f64,
    failed: Vec<(&'static str, u64)>,
}

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--list") {
        for family in FAMILIES {
            println!("{:20} {}", family.name, family.story);
        }
        return ExitCode::SUCCESS;
    }
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let begin = Instant::now();
    let tally = Mutex::new(Tally::default());
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(|| work(&arguments, &next, &tally, begin));
        }
    });
    let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{}", summary(&tally, begin));
    for (family, seed) in &tally.failed {
        println!("failed: worlds --family {family} --seed {seed}");
    }
    if tally.worlds == 0 {
        eprintln!("worlds: no world was played: --count and --minutes must be above 0");
        return ExitCode::from(2);
    }
    match tally.failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Takes one world after the other: all families of a seed, then the next seed.
fn work(arguments: &Arguments, next: &AtomicU64, tally: &Mutex<Tally>, begin: Instant) {
    let families = arguments.families.len() as u64;
    let mut said = Instant::now();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let seed = arguments.start + number / families;
        let is_over = match arguments.minutes {
            Some(minutes) => begin.elapsed().as_secs_f64() > minutes * 60.0,
            None => number >= arguments.count * families,
        };
        if is_over {
            return;
        }
        let family = arguments.families[(number % families) as usize];
        let outcome = run_named(
            family,
            seed,
            arguments.pcap.clone(),
            arguments.is_on_second_port,
        );
        if let Err(failure) = &outcome {
            explain(family, seed, failure, arguments.is_on_second_port);
        }
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.add(family, seed, &outcome);
        if number.is_multiple_of(arguments.jobs) && said.elapsed() > PROGRESS {
            said = Instant::now();
            eprintln!("{}, at seed {seed}", summary(&tally, begin));
        }
    }
}

impl Tally {
    fn add(&mut self, family: &'static Family, seed: u64, outcome: &Result<Report, Failure>) {
        self.worlds += 1;
        match outcome {
            Ok(report) => {
                self.connections += u64::from(report.connections);
                self.bytes += report.bytes;
                self.steps += report.steps;
                self.virtual_s += report.virtual_ns as f64 / 1e9;
            }
            Err(_) => self.failed.push((family.name, seed)),
        }
    }
}

fn summary(tally: &Tally, begin: Instant) -> String {
    format!(
        "{} worlds in {:.1} s: {} connections, {} MB, {} steps, {:.0} s of virtual time, {} failed",
        tally.worlds,
        begin.elapsed().as_secs_f64(),
        tally.connections,
        tally.bytes / 1_000_000,
        tally.steps,
        tally.virtual_s,
        tally.failed.len(),
    )
}

/// Each world has a thread of its name, so that a panic names it.
fn run_named(
    family: &'static Family,
    seed: u64,
    pcap: Option<PathBuf>,
    is_on_second_port: bool,
) -> Result<Report, Failure> {
    let thread = thread::Builder::new()
        .name(format!("{} seed {seed}", family.name))
        .spawn(move || match is_on_second_port {
            true => family.run_on_second_port(seed, pcap),
            false => family.run(seed, pcap),
        });
    let panicked = || Failure {
        at: slipstack_stack::Instant::ZERO,
        message: "panicked, see above".into(),
    };
    thread.map_or_else(
        |_| Err(panicked()),
        |thread| thread.join().unwrap_or_else(|_| Err(panicked())),
    )
}

fn explain(family: &'static Family, seed: u64, failure: &Failure, is_on_second_port: bool) {
    let path = PathBuf::from(format!("slipstack-{}-{seed}.pcap", family.name));
    let again = run_named(family, seed, Some(path.clone()), is_on_second_port);
    let note = match again.as_ref() == Err(failure) {
        true => "",
        false => " (not the same when run again!)",
    };
    let seconds = failure.at.0 as f64 / 1e9;
    eprintln!(
        "{} seed {seed} failed at {seconds:.6} s{note}: {}",
        family.name, failure.message
    );
    eprintln!(
        "  frames are in {}; again: worlds{} --family {} --seed {seed}",
        path.display(),
        if is_on_second_port {
            " --second-port"
        } else {
            ""
        },
        family.name
    );
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Arguments> {
    let jobs = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let mut parsed = Arguments {
        families: Vec::new(),
        start: 0,
        count: 50,
        minutes: None,
        jobs,
        pcap: None,
        is_on_second_port: false,
    };
    while let Some(name) = arguments.next() {
        if name == "--second-port" {
            parsed.is_on_second_port = true;
            continue;
        }
        let value = arguments.next()?;
        match name.as_str() {
            "--family" => parsed.families.push(Family::find(&value)?),
            "--count" => parsed.count = value.parse().ok()?,
            "--minutes" => parsed.minutes = Some(value.parse().ok()?),
            "--start" => parsed.start = value.parse().ok()?,
            "--jobs" => parsed.jobs = value.parse::<u64>().ok()?.max(1),
            "--seed" => (parsed.start, parsed.count) = (value.parse().ok()?, 1),
            "--pcap" => parsed.pcap = Some(value.into()),
            _ => return None,
        }
    }
    if parsed.families.is_empty() {
        parsed.families = FAMILIES.iter().collect();
    }
    Some(parsed)
}
