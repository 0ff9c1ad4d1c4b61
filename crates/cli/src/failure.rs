//! Why a command refuses, and the settings that every command begins with.

use clap::ArgMatches;
use slipstack_config::{ConfigError, Layers, Settings};

use crate::args;

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
pub fn settings(matches: &ArgMatches) -> Result<(Layers, Settings), Failure> {
    let layers = args::layers(matches)?;
    let settings = Settings::from_layers(&layers)?;
    Ok((layers, settings))
}
