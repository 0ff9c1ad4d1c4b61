//! Load generator for the benchmarks: one thread, non-blocking sockets through libc
//! (so that it can itself run on Slipstack), either as fast as the server answers
//! (closed loop) or at a fixed rate (open loop, latency counted from the moment a
//! request was due, so that a stalled server cannot hide its stall).
//!
//! Prints one JSON object.

mod connection;
mod datagrams;
mod pace;
mod protocol;
mod report;
mod run;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use protocol::Mode;

/// Sends requests to one server and reports rate and latency as JSON.
#[derive(Parser, Clone, Debug)]
#[command(name = "slipstack-load", version)]
pub struct Options {
    /// Server address, for example 10.0.0.1:80
    pub target: SocketAddr,
    /// Kind of load
    #[arg(long, value_enum, default_value = "http")]
    pub mode: Mode,
    /// Connections open at a time
    #[arg(short, long, default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub connections: u32,
    /// Requests in flight on each connection (redis modes) or socket (datagrams)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub pipeline: u32,
    /// Requests per second over all connections; 0 = as fast as answers come
    #[arg(short, long, default_value_t = 0)]
    pub rate: u32,
    /// Measured seconds
    #[arg(short, long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Seconds before the measurement begins
    #[arg(long, default_value_t = 0.5)]
    pub warmup: f64,
    /// HTTP path
    #[arg(long, default_value = "/")]
    pub path: String,
    /// Bytes of a redis value or an echo message
    #[arg(long, default_value_t = 3)]
    pub size: u32,
}

impl Options {
    pub fn measured(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(0.01, 3600.0))
    }

    pub fn warm(&self) -> Duration {
        Duration::from_secs_f64(self.warmup.clamp(0.0, 60.0))
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match options.mode {
        Mode::Datagrams => datagrams::run(&options),
        _ => run::run(&options),
    };
    match result {
        Ok(report) => {
            println!("{}", report.to_json());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("slipstack-load: {}: {error}", options.target);
            ExitCode::FAILURE
        }
    }
}
