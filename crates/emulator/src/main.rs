//! `slipstack-link`: joins two interfaces by an emulated link, in real time.
//!
//! The link is the simulator's model; this program adds the clock, the interfaces and the report.

mod access;
mod arguments;
mod bridge;
mod clock;
mod observer;
mod report;
mod side;

use std::fs::File;
use std::io::Write;
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
    let mut report_file = match &arguments.report {
        Some(path) => {
            Some(File::create(path).map_err(|error| format!("{}: {error}", path.display()))?)
        }
        None => None,
    };
    clock::sharpen();
    let mut bridge = Bridge::open(arguments, &plan)?;
    eprintln!(
        "slipstack-link: {} <-> {} joined",
        arguments.left, arguments.right
    );
    let outcome = bridge.run(&stop, plan.limit_ns);
    let report = bridge.report();
    print!("{}", report::text(&report));
    if let Some(file) = &mut report_file {
        let text = report::json(&report).to_string();
        file.write_all(text.as_bytes())
            .map_err(|error| format!("writing the report: {error}"))?;
    }
    outcome
}
