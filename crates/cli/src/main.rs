//! The `slipstack` command.

mod admin;
mod args;
mod capture;
mod host;
mod instance;
mod keeper;
mod output;
mod program;
mod run;

use std::process::ExitCode;

use clap::ArgMatches;
use slipstack_config::{ConfigError, Layers, Settings};

/// Exit codes: 0 done, 1 refused or failed (one sentence on standard error), 2 wrong usage.
fn main() -> ExitCode {
    let matches = args::command().get_matches();
    let Some((name, matches)) = matches.subcommand() else {
        return ExitCode::from(2);
    };
    let outcome = match name {
        "run" => run::run(matches),
        "instance" => instance::run(matches),
        "keeper" => keeper::run(matches),
        "status" => admin::status(matches),
        "why" => admin::why(matches),
        "stop" => admin::stop(matches),
        "capture" => capture::run(matches),
        _ => return ExitCode::from(2),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            output::say(&format!("slipstack: {failure}"));
            ExitCode::FAILURE
        }
    }
}

/// Why a command refuses: one sentence for the user.
pub struct Failure(String);

impl Failure {
    pub fn new(sentence: impl Into<String>) -> Failure {
        Failure(sentence.into())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure(error.to_string())
    }
}

/// The values in force for a command: command line over environment over file over default.
fn settings(matches: &ArgMatches) -> Result<(Layers, Settings), Failure> {
    let layers = args::layers(matches)?;
    let settings = Settings::from_layers(&layers)?;
    Ok((layers, settings))
}
