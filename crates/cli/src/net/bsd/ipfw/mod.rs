//! `slipstack ipfw`, `ff_ipfw`: the packet filter, and the rules that choose a FIB.

mod batch;
mod ends;
mod fib;
mod firewall;
mod grammar;
mod list;
mod names;
mod rules;
mod sets;
mod states;
mod tables;
#[cfg(test)]
mod tests;
mod text;
mod wanted;

use slipstack_config::Settings;

use super::take_engine;
use crate::failure::Failure;
use crate::net::target::Target;
use crate::net::words::Words;
use firewall::Firewall;
pub use wanted::{difference, wanted};

/// Format of the time of a rule's last match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Times {
    #[default]
    None,
    /// As ctime() writes it, in UTC.
    Text,
    /// Seconds since 1970.
    Seconds,
}

/// Name by which the command was called.
#[derive(Clone, Debug, Default)]
struct Style {
    is_quiet: bool,
    is_forced: bool,
    /// Nothing is changed.
    is_test: bool,
    has_counts: bool,
    has_names: bool,
    has_sets: bool,
    times: Times,
    is_compact: bool,
    is_brief: bool,
    has_states: bool,
    has_states_alone: bool,
    has_expired: bool,
    has_address_values: bool,
    is_json: bool,
}

/// Reads the options; those that were given several together too.
fn options(words: &mut Words<'_>, style: &mut Style) -> Result<Option<u32>, Failure> {
    let mut engine = None;
    while words.peek().is_some_and(|word| word.starts_with('-')) {
        if let Some(number) = take_engine(words, "-P")? {
            engine = Some(number);
            continue;
        }
        if words.take("--json") {
            style.is_json = true;
            continue;
        }
        let word = words.next().unwrap_or_default();
        let letters = word.strip_prefix('-').unwrap_or_default();
        if letters.is_empty() {
            return Err(words.unknown(word));
        }
        for letter in letters.chars() {
            option(letter, style).ok_or_else(|| refusal(letter))?;
        }
    }
    Ok(engine)
}

fn option(letter: char, style: &mut Style) -> Option<()> {
    let on = match letter {
        'q' => &mut style.is_quiet,
        'f' => &mut style.is_forced,
        'n' => &mut style.is_test,
        'a' => &mut style.has_counts,
        'N' => &mut style.has_names,
        'S' => &mut style.has_sets,
        'c' => &mut style.is_compact,
        'd' => &mut style.has_states,
        'D' => &mut style.has_states_alone,
        'e' => &mut style.has_expired,
        'i' => &mut style.has_address_values,
        'b' => {
            style.is_compact = true;
            &mut style.is_brief
        }
        't' => {
            style.times = Times::Text;
            return Some(());
        }
        'T' => {
            style.times = Times::Seconds;
            return Some(());
        }
        _ => return None,
    };
    *on = true;
    Some(())
}

fn refusal(letter: char) -> Failure {
    let why = match letter {
        'p' => "files are read as they are, without a preprocessor",
        's' => "there are no pipes to be sorted",
        'h' => "see slipstack ipfw --help",
        _ => return Failure::new(format!("ipfw: what is \"-{letter}\"?")),
    };
    Failure::new(format!("ipfw: -{letter} is not supported: {why}"))
}

pub fn run(settings: &Settings, words: &[String]) -> Result<(), Failure> {
    let mut words = Words::new("ipfw", words);
    let mut style = Style::default();
    let engine = options(&mut words, &mut style)?.unwrap_or(0);
    let target = match Target::find(settings, engine) {
        Ok(target) => Some(target),
        // Reading needs no confirmation.
        Err(_) if style.is_test => None,
        Err(failure) => return Err(failure),
    };
    let mut firewall = Firewall::new(settings, target, style)?;
    match words.peek() {
        Some(path) if path.contains('/') => {
            words.next();
            words.end()?;
            batch::run(&mut firewall, path)
        }
        _ => firewall.command(words),
    }
}
