//! `ip -batch FILE`: a command for each line.

use std::io::Read as _;

use slipstack_config::Settings;

use super::options::Options;
use crate::failure::Failure;
use crate::net::target::Target;
use crate::net::words::Words;

/// Runs the commands of a file, `-` for standard input; the first that fails ends it. Consecutive
/// addresses and routes are applied whole or not at all.
pub(super) fn run(settings: &Settings, options: Options, file: &str) -> Result<(), Failure> {
    let text = read(file).map_err(|error| Failure::new(format!("ip: {file}: {error}")))?;
    let target = Target::find(settings, options.engine)?.gathering();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let is_comment = words.first().is_none_or(|word| word.starts_with('#'));
        if is_comment {
            continue;
        }
        super::one(&target, options, Words::new("ip", &words)).map_err(|failure| {
            let place = format!("Command failed {file}:{}", number + 1);
            Failure::new(format!("{failure}\n{place}"))
        })?;
    }
    target.send_gathered()
}

fn read(file: &str) -> std::io::Result<String> {
    if file != "-" {
        return std::fs::read_to_string(file);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}
