//! `slipstack htstress`.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clap::ArgMatches;
use slipstack_apps::load::stress::{Stress, StressFigures, StressOptions};

use super::generator::{generate, interval, resolve};
use super::{sweep, times};
use crate::failure::Failure;

/// Interval of checks of the progress.
const LOOK: Duration = Duration::from_millis(50);

/// The parts of a URL.
struct Url {
    host: String,
    path: String,
}

fn parse(target: &str) -> Result<Url, Failure> {
    let rest = target.strip_prefix("http://").unwrap_or(target);
    if target.starts_with("https://") {
        return Err(Failure::new(
            "https is not supported: http://HOST[:PORT]/PATH",
        ));
    }
    let (host, path) = match rest.find('/') {
        Some(at) => (&rest[..at], &rest[at..]),
        None => (rest, "/"),
    };
    if host.is_empty() || target.contains(|c: char| c.is_control() || c == ' ') {
        return Err(Failure::new(format!(
            "{target} is no URL: http://HOST[:PORT]/PATH"
        )));
    }
    Ok(Url {
        host: host.to_owned(),
        path: path.to_owned(),
    })
}

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    if matches.get_one::<String>("udaddr").is_some() {
        return Err(Failure::new("-u: unix domain sockets are not supported"));
    }
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let number = |name: &str| *matches.get_one::<u64>(name).unwrap_or(&0);
    let url = parse(&text("target").unwrap_or_default())?;
    let (is_v4, is_v6) = (matches.get_flag("ipv4"), matches.get_flag("ipv6"));
    let target = resolve(&url.host, 80, |addr| {
        (!is_v4 || addr.is_ipv4()) && (!is_v6 || addr.is_ipv6())
    })?;
    let keeps_alive = matches.get_flag("keep-alive");
    let host = text("host").unwrap_or_else(|| url.host.clone());
    let request = match keeps_alive {
        true => format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", url.path),
        false => format!("GET {} HTTP/1.0\r\nHost: {host}\r\n\r\n", url.path),
    };
    let last = |name: &str| sweep::counts(matches, name).last().copied().unwrap_or(1);
    let engines = last("threads").max(1) as usize;
    let options = StressOptions {
        target,
        request: request.into_bytes(),
        concurrency: last("concurrency").max(1) as usize,
        keeps_alive,
        interval_ns: matches
            .get_one::<u64>("rate")
            .map(|rate| interval(*rate, engines)),
        is_debugged: matches.get_flag("debug"),
    };
    let figures = Arc::new(StressFigures::new(number("number")));
    let began = OnceLock::new();
    let is_over = AtomicBool::new(false);
    let (outcome, time) = {
        let (figures, is_over) = (&figures, &is_over);
        std::thread::scope(|scope| {
            let is_json = matches.get_flag("json");
            let follow = move || {
                if !is_json {
                    follow(figures, is_over);
                }
            };
            let outcome = generate(matches, engines, &|| {
                // By now the signals are held that end the process: they are not this thread's.
                began.get_or_init(|| {
                    scope.spawn(follow);
                    Instant::now()
                });
                Stress::new(options.clone(), Arc::clone(figures))
            });
            // Without the thread that reports, which ends a moment later.
            let time = began.get().map_or(Duration::ZERO, Instant::elapsed);
            is_over.store(true, Ordering::SeqCst);
            (outcome, time)
        })
    };
    outcome?;
    match matches.get_flag("json") {
        true => report_json(&figures, time)?,
        false => report(&figures, time),
    }
    Ok(ExitCode::SUCCESS)
}

/// Says how far it is, ten times.
fn follow(figures: &StressFigures, is_over: &AtomicBool) {
    let step = (figures.number / 10).max(1);
    let mut next = 0;
    while !is_over.load(Ordering::SeqCst) {
        let done = figures.done();
        if figures.number > 0 && done >= next {
            println!("{} requests", done / step * step);
            next = (done / step + 1) * step;
        }
        std::thread::sleep(LOOK);
    }
}

fn report(figures: &StressFigures, time: Duration) {
    let done = figures.done();
    let line = |name: &str, count: &AtomicU64| {
        let count = count.load(Ordering::Relaxed);
        let share = (count * 100).checked_div(done).unwrap_or(0);
        println!("{name:<14} {count} [{share}%]");
    };
    println!();
    println!("{:<14} {done}", "requests:");
    line("good requests:", &figures.good);
    line("bad requests:", &figures.bad);
    line("socket errors:", &figures.socket_errors);
    println!("{:<14} {:.3}", "seconds:", time.as_secs_f64());
    let rate = times::per_second(done, time);
    println!("{:<14} {rate:.3}", "requests/sec:");
    println!("{:<14} {}", "us:", times::line(&figures.times()));
    println!();
}

fn report_json(figures: &StressFigures, time: Duration) -> Result<(), Failure> {
    let count = |place: &AtomicU64| place.load(Ordering::Relaxed);
    let seconds = time.as_secs_f64();
    let report = serde_json::json!({
        "requests": figures.done(),
        "good": count(&figures.good),
        "bad": count(&figures.bad),
        "socket_errors": count(&figures.socket_errors),
        "seconds": seconds,
        "requests_per_second": times::per_second(figures.done(), time),
        "latency_us": times::json(&figures.times()),
    });
    crate::output::print(&format!("{report}\n"))
}
