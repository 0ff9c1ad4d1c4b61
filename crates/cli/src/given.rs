//! The settings that every command starts with.

use clap::ArgMatches;
use slipstack_config::{Layers, Settings};

use crate::args;
use crate::failure::Failure;

/// The values in force for a command: command line over environment over file over default.
pub fn settings(matches: &ArgMatches) -> Result<(Layers, Settings), Failure> {
    let layers = args::layers(matches)?;
    let settings = Settings::from_layers(&layers)?;
    Ok((layers, settings))
}

/// Returns the settings of a command for running stacks: an interface selects one, and needs
/// nothing beside it.
pub fn asking(matches: &ArgMatches) -> Result<Settings, Failure> {
    Ok(Settings::naming(&args::layers(matches)?)?)
}
