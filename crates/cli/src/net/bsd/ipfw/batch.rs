//! `ipfw FILE`: commands, one a line, applied all or not at all.

use super::firewall::{Batch, Firewall};
use super::options;
use crate::failure::Failure;
use crate::net::words::Words;

pub fn run(firewall: &mut Firewall<'_>, path: &str) -> Result<(), Failure> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| Failure::new(format!("ipfw: {path}: {error}")))?;
    hold(firewall, path, &text)?;
    firewall.send_batch()
}

/// Reads the commands, and holds their changes back.
pub fn hold(firewall: &mut Firewall<'_>, path: &str, text: &str) -> Result<(), Failure> {
    firewall.batch = Some(Batch::default());
    for (at, line) in text.lines().enumerate() {
        run_line(firewall, line)
            .map_err(|failure| Failure::new(format!("{path}:{}: {failure}", at + 1)))?;
    }
    Ok(())
}

fn run_line(firewall: &mut Firewall<'_>, line: &str) -> Result<(), Failure> {
    let line = line.split('#').next().unwrap_or("");
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let mut words = Words::new("ipfw", &words);
    if words.peek().is_none() {
        return Ok(());
    }
    let before = firewall.style.clone();
    let _ = options(&mut words, &mut firewall.style)?;
    let made = match words.peek() {
        Some("add" | "delete" | "flush" | "set" | "table") => firewall.command(words),
        Some(other) => Err(Failure::new(format!(
            "ipfw: \"{other}\" does not stand in a file: add, delete, flush, set and table do"
        ))),
        None => Err(words.missing("a command")),
    };
    firewall.style = before;
    made
}
