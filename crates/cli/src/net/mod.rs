//! Commands that show and change the network of a running stack, in the grammars of iproute2
//! ([`ip`]) and of FreeBSD ([`bsd`]). Both make changes of the control protocol.

pub mod bsd;
pub mod ip;
pub mod names;
mod target;
mod words;

use clap::ArgMatches;
use slipstack_config::Settings;

use crate::failure::Failure;
use crate::given::asking;

/// Runs a command of its own grammar: `words` follow its name.
pub fn run(
    matches: &ArgMatches,
    command: fn(&Settings, &[String]) -> Result<(), Failure>,
) -> Result<std::process::ExitCode, Failure> {
    let settings = asking(matches)?;
    let words = matches.get_many::<String>("words");
    let words: Vec<String> = words.unwrap_or_default().cloned().collect();
    command(&settings, &words)?;
    Ok(std::process::ExitCode::SUCCESS)
}
