//! `slipstack-link`: joins two interfaces by an emulated link, in real time.
//!
//! The link is the simulator's model; this program adds the clock, the interfaces and the report.

mod arguments;
mod bridge;
mod clock;
mod observer;
mod report;
mod side;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;

use arguments::{Arguments, Plan};
use bridge::Bridge;

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("slipstack-link: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let plan = Plan::of(arguments)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| format!("handling signals: {error}"))?;
    }
    clock::sharpen();
    let mut bridge = Bridge::open(arguments, &plan)?;
    eprintln!(
        "slipstack-link: {} <-> {} joined",
        arguments.left, arguments.right
    );
    let outcome = bridge.run(&stop, plan.limit_ns);
    let report = bridge.report();
    if let Some(path) = &arguments.report {
        std::fs::write(path, report::json(&report).to_string())
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    print!("{}", report::text(&report));
    outcome
}
