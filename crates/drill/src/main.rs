//! `slipstack-drill SCRIPT…`: runs packetdrill scripts on the stack, in virtual time.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use slipstack_drill::{run, script};

/// Run packetdrill scripts on the stack, in virtual time, without root or network.
#[derive(Parser)]
#[command(name = "slipstack-drill", version)]
struct Options {
    /// Scripts, or folders in which every .pkt file is one.
    #[arg(required = true)]
    scripts: Vec<PathBuf>,
    /// Ignore packets after the last packet of a script (as packetdrill).
    #[arg(long)]
    ignore_rest: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut scripts = Vec::new();
    for path in options.scripts {
        if let Err(error) = find(path.clone(), &mut scripts) {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    if scripts.is_empty() {
        eprintln!("there is no script (.pkt) in what was named");
        return ExitCode::FAILURE;
    }
    let mut failed = 0;
    for (number, path) in scripts.iter().enumerate() {
        let outcome = std::fs::read_to_string(path)
            .map_err(|error| error.to_string())
            .and_then(|text| script::parse(&text).map_err(|error| error.to_string()))
            .and_then(|script| {
                let address = run::address(number);
                run::run(&script, address, options.ignore_rest)
                    .map_err(|failure| failure.to_string())
            });
        match outcome {
            Ok(()) => println!("ok      {}", path.display()),
            Err(reason) => {
                failed += 1;
                println!("FAILED  {}: {reason}", path.display());
            }
        }
    }
    println!("{} passed, {failed} failed", scripts.len() - failed);
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn find(path: PathBuf, scripts: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !path.is_dir() {
        scripts.push(path);
        return Ok(());
    }
    let entries: Result<Vec<_>, _> = std::fs::read_dir(&path)?.collect();
    let mut paths: Vec<_> = entries?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let is_script = path.extension().is_some_and(|extension| extension == "pkt");
        if path.is_dir() || is_script {
            find(path, scripts)?;
        }
    }
    Ok(())
}
