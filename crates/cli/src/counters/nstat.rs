//! `slipstack nstat`: counters by Linux's names, and their increase since the last run.

use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use serde_json::{Map, Value, json};
use slipstack_config::Settings;

use super::engines::{Sample, Values, Which, samples};
use super::history::History;
use super::linux::named;
use super::pattern::is_match;
use crate::failure::Failure;
use crate::output::print;
use crate::sockets::{engine, flag};

pub fn command() -> Command {
    Command::new("nstat")
        .about("Show the counters of running stacks by Linux's names, as iproute2's nstat")
        .long_about(
            "\
    Shows what the engines of a device have counted, together, by the names of /proc/net/snmp\n\
    and /proc/net/netstat; counters that Linux does not have follow by their own names. Without\n\
    -a it is what was added since the last look of this user (kept in /tmp, or in the file\n\
    that SLIPSTACK_NSTAT_HISTORY names).",
        )
        .after_help(
            "Examples:\n  slipstack nstat\n  slipstack nstat -az 'Tcp*'\n  slipstack nstat -as \
             --json",
        )
        .arg(flag("absolute", 'a', "Values since the engines began").long("ignore"))
        .arg(flag("zeros", 'z', "Include counters that are zero").long("zeros"))
        .arg(flag("keep", 's', "Do not store the values shown").long("noupdate"))
        .arg(flag("silent", 'n', "Only remember").long("nooutput"))
        .arg(flag("reset", 'r', "Forget all stored values").long("reset"))
        .arg(flag("json", 'j', "Print JSON").long("json"))
        .arg(flag("pretty", 'p', "JSON in lines of its own").long("pretty"))
        .arg(engine())
        .arg(
            Arg::new("patterns")
                .value_name("PATTERN")
                .num_args(0..)
                .help("Names to be shown, with * and ?"),
        )
}

pub fn run(settings: &Settings, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let is_set = |name: &str| matches.get_flag(name);
    let which = Which::chosen(matches, false)?;
    let samples = samples(settings, which)?;
    let mut history = match is_set("absolute") && is_set("keep") {
        true => None,
        false => Some(History::open()?),
    };
    if let (Some(history), true) = (&mut history, is_set("reset")) {
        history.forget();
    }
    if !is_set("silent") {
        let before = history.as_ref().filter(|_| !is_set("absolute"));
        show(matches, &named(&sum(&samples, before)))?;
    }
    if let Some(history) = history.filter(|_| !is_set("keep")) {
        history.keep(&samples, which == Which::All)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All engines together, since the last look if there was one.
fn sum(samples: &[Sample], before: Option<&History>) -> Values {
    let mut sum = Values::new();
    for sample in samples {
        let values = match before {
            Some(history) => history.since(sample),
            None => sample.values.clone(),
        };
        for (name, value) in values {
            *sum.entry(name).or_default() += value;
        }
    }
    sum
}

fn show(matches: &ArgMatches, counters: &[(String, u64)]) -> Result<(), Failure> {
    let patterns: Vec<&String> = matches.get_many("patterns").unwrap_or_default().collect();
    let is_meant = |name: &str| patterns.is_empty() || patterns.iter().any(|it| is_match(it, name));
    let has_zeros = matches.get_flag("zeros");
    let shown = counters
        .iter()
        .filter(|(name, value)| (has_zeros || *value > 0) && is_meant(name));
    if matches.get_flag("json") {
        let rows: Map<String, Value> = shown
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        let all = json!({ "slipstack": rows });
        return match matches.get_flag("pretty") {
            true => print(&format!("{all:#}\n")),
            false => print(&format!("{all}\n")),
        };
    }
    let mut text = String::from("#slipstack\n");
    for (name, value) in shown {
        text.push_str(&format!("{name:<32}{value}\n"));
    }
    print(&text)
}
