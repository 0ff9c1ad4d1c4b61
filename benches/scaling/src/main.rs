//! A server of one to many engines with a constant number of requests per engine, to measure the
//! cost of a request and to find memory that one engine writes and another reads.
//!
//! `scripts/scaling` counts the instructions of [`server::server_turn`], reads a trace of all
//! memory accesses between [`marks`], and has pairs of engines run on processors of their own.

mod fleet;
mod handover;
mod hosts;
mod marks;
mod nic;
mod pairs;
mod server;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use fleet::{Fleet, Plan};
use server::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// A web server of cached files.
    Http,
    /// A proxy that uses connections to its backend again.
    Proxy,
    /// Pairs of a web server and its generator, each on a processor of its own, in real time.
    Pairs,
    /// Frames that one engine hands to another, in real time.
    Handover,
}

#[derive(Debug, Parser)]
#[command(about = "A server of many engines, with requests per engine constant")]
struct Options {
    what: What,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=126))]
    engines: u16,
    /// Requests of each connection, or bursts of frames.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Makes a store to memory that engines share end the process.
    #[arg(long)]
    trap: bool,
    /// Has the card put frames into the queue beside theirs, which the trap must notice.
    #[arg(long)]
    misroute: bool,
    /// Has the card's hash alone decide on queues, as it does for cards without flow rules; the
    /// engines choose the ports of their own connections by it.
    #[arg(long)]
    hash_alone: bool,
    /// Tells the engines a key that is not the card's.
    #[arg(long, requires = "hash_alone")]
    wrong_key: bool,
    /// Chooses the key of the card's hash.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bytes of a frame that is handed over.
    #[arg(long, default_value_t = 60)]
    size: usize,
    /// Time for which pairs run.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// The processor of the first pair.
    #[arg(long, default_value_t = 0)]
    first: usize,
}

fn run(options: &Options) -> Result<(), Failure> {
    if options.what == What::Pairs {
        return pairs::run(options.engines.into(), options.first, options.seconds);
    }
    if options.what == What::Handover {
        return handover::run(options.size, options.rounds);
    }
    let plan = Plan {
        engines: options.engines.into(),
        is_proxy: options.what == What::Proxy,
        is_trapped: options.trap,
        is_misrouted: options.misroute,
        is_hash_alone: options.hash_alone,
        has_wrong_key: options.wrong_key,
        seed: options.seed,
    };
    let mut fleet = Fleet::new(plan)?;
    println!("marks at {:#x}", marks::address());
    let requests = fleet.run(options.rounds)?;
    println!("{requests} requests to {} engines", options.engines);
    if options.hash_alone {
        println!("{} frames at wrong queues", fleet.away());
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slipstack-scaling: {error}");
            ExitCode::FAILURE
        }
    }
}
