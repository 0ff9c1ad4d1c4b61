//! `slipstack dnsbench`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clap::ArgMatches;
use serde_json::Value;
use slipstack_apps::load::dns::{DnsFigures, DnsLoad, DnsLoadOptions, OUTSTANDING_MAX};
use slipstack_apps::load::queries::{QueryOptions, parse_queries, query};

use super::generator::{generate, interval, resolve};
use super::times;
use crate::failure::Failure;

/// Interval of progress reports.
const STEP: Duration = Duration::from_secs(1);
/// Interval at which it is looked whether all is over.
const LOOK: Duration = Duration::from_millis(50);
/// Default duration.
const LIMIT: Duration = Duration::from_secs(10);

/// Response codes by number.
const RCODES: [&str; 16] = [
    "NOERROR",
    "FORMERR",
    "SERVFAIL",
    "NXDOMAIN",
    "NOTIMP",
    "REFUSED",
    "YXDOMAIN",
    "YXRRSET",
    "NXRRSET",
    "NOTAUTH",
    "NOTZONE",
    "DSOTYPENI",
    "RCODE12",
    "RCODE13",
    "RCODE14",
    "RCODE15",
];

fn queries(matches: &ArgMatches) -> Result<Vec<Vec<u8>>, Failure> {
    let options = QueryOptions {
        edns: matches.get_one::<u16>("edns").copied(),
        is_dnssec_ok: matches.get_flag("dnssec"),
    };
    if let Some(path) = matches.get_one::<PathBuf>("data") {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("{shown} cannot be read: {error}")))?;
        return parse_queries(&text, options)
            .map_err(|error| Failure::new(format!("{shown}: {error}")));
    }
    let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    let query = query(text("name"), text("type"), options);
    Ok(vec![query.map_err(Failure::new)?])
}

fn options(matches: &ArgMatches, threads: usize) -> Result<DnsLoadOptions, Failure> {
    let number = |name: &str| *matches.get_one::<u64>(name).unwrap_or(&0);
    let (sockets, outstanding) = (number("sockets") as usize, number("outstanding") as usize);
    if outstanding > sockets * OUTSTANDING_MAX {
        return Err(Failure::new(format!(
            "-q {outstanding} needs more sockets: -c {} or more, as each has 65536 ids",
            outstanding.div_ceil(OUTSTANDING_MAX)
        )));
    }
    let limit = matches.get_one::<u64>("limit").copied();
    let limit = limit.map(Duration::from_secs);
    let target = matches.get_one::<String>("target");
    Ok(DnsLoadOptions {
        target: resolve(target.map_or("", String::as_str), 53, |_| true)?,
        queries: queries(matches)?.into(),
        sockets,
        outstanding,
        interval_ns: matches
            .get_one::<u64>("rate")
            .map(|rate| interval(*rate, threads)),
        timeout: Duration::from_millis(number("timeout")),
        limit: limit.or((number("number") == 0).then_some(LIMIT)),
    })
}

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let number = |name: &str| *matches.get_one::<u64>(name).unwrap_or(&0);
    let threads = number("threads").max(1) as usize;
    let options = options(matches, threads)?;
    let figures = Arc::new(DnsFigures::new(number("number")));
    let (began, is_over) = (OnceLock::new(), AtomicBool::new(false));
    let is_json = matches.get_flag("json");
    let (outcome, time) = std::thread::scope(|scope| {
        let (figures, is_over) = (&figures, &is_over);
        let outcome = generate(matches, threads, &|| {
            // By now the signals are held that end the process: they are not this thread's.
            began.get_or_init(|| {
                if !is_json {
                    scope.spawn(move || follow(figures, is_over));
                }
                Instant::now()
            });
            DnsLoad::new(options.clone(), Arc::clone(figures))
        });
        // Without the thread that reports, which ends a moment later.
        let time = began.get().map_or(Duration::ZERO, Instant::elapsed);
        is_over.store(true, Ordering::SeqCst);
        (outcome, time)
    });
    outcome?;
    match is_json {
        true => report_json(&figures, time)?,
        false => report(&figures, time),
    }
    Ok(match figures.answered() {
        0 => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

fn read(place: &AtomicU64) -> u64 {
    place.load(Ordering::Relaxed)
}

/// Reports each second's number of answers.
fn follow(figures: &DnsFigures, is_over: &AtomicBool) {
    let (mut before, mut report) = (0, Instant::now());
    while !is_over.load(Ordering::SeqCst) {
        std::thread::sleep(LOOK);
        if report.elapsed() >= STEP {
            let answered = figures.answered();
            let rate = times::per_second(answered - before, report.elapsed());
            println!("{answered} answers, {rate:.0} a second");
            (before, report) = (answered, Instant::now());
        }
    }
}

fn report(figures: &DnsFigures, time: Duration) {
    let sent = read(&figures.sent);
    let line = |name: &str, count: u64| {
        let share = (count * 100).checked_div(sent).unwrap_or(0);
        println!("{name:<14} {count} [{share}%]");
    };
    println!();
    println!("{:<14} {sent}", "queries:");
    line("answers:", figures.answered());
    line("time-outs:", read(&figures.timed_out));
    for (name, count) in RCODES.iter().zip(&figures.rcodes) {
        if read(count) > 0 {
            line(&format!("{name}:"), read(count));
        }
    }
    for (name, count) in [
        ("truncated:", &figures.truncated),
        ("unexpected:", &figures.unexpected),
        ("not sent:", &figures.unsent),
    ] {
        if read(count) > 0 {
            println!("{name:<14} {}", read(count));
        }
    }
    println!("{:<14} {:.3}", "seconds:", time.as_secs_f64());
    let rate = times::per_second(figures.answered(), time);
    println!("{:<14} {rate:.3}", "answers/sec:");
    println!("{:<14} {}", "us:", times::line(&figures.times()));
    println!();
}

fn report_json(figures: &DnsFigures, time: Duration) -> Result<(), Failure> {
    let rcodes = RCODES.iter().zip(&figures.rcodes);
    let rcodes: serde_json::Map<String, Value> = rcodes
        .filter(|(_, count)| read(count) > 0)
        .map(|(name, count)| ((*name).to_owned(), read(count).into()))
        .collect();
    let report = serde_json::json!({
        "queries": read(&figures.sent),
        "answers": figures.answered(),
        "rcodes": rcodes,
        "truncated": read(&figures.truncated),
        "timed_out": read(&figures.timed_out),
        "unexpected": read(&figures.unexpected),
        "not_sent": read(&figures.unsent),
        "bytes": read(&figures.bytes),
        "seconds": time.as_secs_f64(),
        "answers_per_second": times::per_second(figures.answered(), time),
        "latency_us": times::json(&figures.times()),
    });
    crate::output::print(&format!("{report}\n"))
}
