//! A hundred and a million established connections in one stack: memory of each, and the cost of a
//! request, to a hundred of them and to all.

use std::process::ExitCode;
use std::time::Instant;

use slipstack_sim::crowd::{Crowd, Refused};
use slipstack_stack::IDLE_BYTES;

const FEW: u32 = 100;
const ROUNDS: u32 = 500_000;
/// Highest ratio of a request's cost among many connections to its cost among few.
const RATIO_MAX: f64 = 1.3;
const USAGE: &str = "usage: scale [--connections N]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let many = match &arguments[..] {
        [] => Some(1_000_000),
        [name, value] if name == "--connections" => value.parse().ok().filter(|&n| n >= FEW),
        _ => None,
    };
    let Some(many) = many else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match compare(many) {
        Ok(ratio) if ratio <= RATIO_MAX => ExitCode::SUCCESS,
        Ok(_) => {
            eprintln!("scale: more than {RATIO_MAX} times the cost among few");
            ExitCode::FAILURE
        }
        Err(refused) => {
            eprintln!("scale: {refused:?}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the cost of a request among many connections, as a multiple of its cost without them.
fn compare(many: u32) -> Result<f64, Refused> {
    let few_ns = ask(&mut Crowd::new(FEW)?, FEW)?;
    println!("{FEW} connections: {few_ns:.0} ns for a request and its answer");
    let before = resident_bytes();
    let begin = Instant::now();
    let mut crowd = Crowd::new(many)?;
    let seconds = begin.elapsed().as_secs_f64();
    let grown = resident_bytes().saturating_sub(before);
    let each = grown / u64::from(many);
    println!(
        "{} connections: opened in {seconds:.1} s, {IDLE_BYTES} bytes each in the stack, {} MiB \
         resident ({} bytes each)",
        crowd.established(),
        grown >> 20,
        each.saturating_sub(Crowd::PEER_BYTES as u64),
    );
    // The first peers again, now among many connections.
    let among_ns = ask(&mut crowd, FEW)?;
    println!(
        "{FEW} of {many}: {among_ns:.0} ns for a request and its answer, {:.2} times as much",
        among_ns / few_ns
    );
    // Every peer, in random order, so that nothing of a connection is in a cache.
    let many_ns = ask(&mut crowd, many)?;
    println!(
        "all of {many}: {many_ns:.0} ns for a request and its answer, {:.2} times as much",
        many_ns / few_ns
    );
    let rested = resident_bytes().saturating_sub(before);
    println!("after these requests: {} MiB resident", rested >> 20);
    Ok(among_ns / few_ns)
}

/// Requests of peers in no order; gives the time of one.
fn ask(crowd: &mut Crowd, connections: u32) -> Result<f64, Refused> {
    let mut state = 1u64;
    let mut pick = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (((state >> 32) * u64::from(connections)) >> 32) as u32
    };
    let begin = Instant::now();
    for _ in 0..ROUNDS {
        crowd.round(pick())?;
    }
    Ok(begin.elapsed().as_nanos() as f64 / f64::from(ROUNDS))
}

/// Returns the resident bytes of this process; 0 if unknown.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1);
    pages
        .and_then(|n| n.parse().ok())
        .map_or(0, |n: u64| n * 4096)
}
