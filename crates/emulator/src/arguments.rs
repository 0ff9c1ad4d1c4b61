//! The command line.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::Parser;
use slipstack_sim::link::{LinkParams, spec};

/// Joins two interfaces by an emulated link with rate, delay, loss, queue and more.
///
/// Frames that come in on one interface go out on the other. An interface is the name of an
/// existing Ethernet interface (a veth, say), or tap:NAME for a TAP that is made and ends with this
/// program. Give the interfaces no addresses, and switch segmentation and checksum offload off at
/// whoever sends to them, too: a frame longer than an MTU cannot be one frame of a wire.
#[derive(Parser, Debug)]
#[command(name = "slipstack-link", version, after_help = words_help())]
pub struct Arguments {
    /// Interface, or tap:NAME
    pub left: String,
    /// Interface, or tap:NAME
    pub right: String,
    /// Properties of the link, in both directions; see below
    #[arg(value_name = "NAME=VALUE")]
    pub both: Vec<String>,
    /// Different in the direction to LEFT (may be given several times)
    #[arg(long, value_name = "NAME=VALUE")]
    pub to_left: Vec<String>,
    /// Different in the direction to RIGHT (may be given several times)
    #[arg(long, value_name = "NAME=VALUE")]
    pub to_right: Vec<String>,
    /// A change of both directions so long after the start, such as 5s:cut=yes (several times)
    #[arg(long, value_name = "TIME:NAME=VALUE")]
    pub at: Vec<String>,
    /// Answer packets above mtu= with an ICMP error from this address; those of its family
    #[arg(long, value_name = "ADDRESS")]
    pub router: Option<IpAddr>,
    /// LEFT is an access port: its frames are in this VLAN on the link, which it does not see
    #[arg(long, value_name = "VLAN", value_parser = clap::value_parser!(u16).range(1..4095))]
    pub left_access: Option<u16>,
    /// RIGHT is an access port
    #[arg(long, value_name = "VLAN", value_parser = clap::value_parser!(u16).range(1..4095))]
    pub right_access: Option<u16>,
    /// Seed of everything that is drawn at random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// End after so long; otherwise at SIGINT or SIGTERM
    #[arg(long = "for", value_name = "TIME")]
    pub limit: Option<String>,
    /// Write what passes each interface to PREFIX-left.pcap and PREFIX-right.pcap
    #[arg(long, value_name = "PREFIX")]
    pub pcap: Option<PathBuf>,
    /// Write the counters as JSON to this file at the end
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Say the rates so often, on standard error
    #[arg(long, value_name = "TIME")]
    pub every: Option<String>,
    /// Frames that fall due within this time of each other may leave together
    #[arg(long, value_name = "TIME", default_value = "50us")]
    pub grain: String,
}

fn words_help() -> String {
    let mut text = String::from("Parameters of a link:\n");
    for (form, meaning) in spec::WORDS {
        let _ = writeln!(text, "  {form:24} {meaning}");
    }
    text.push_str(
        "\nBITS and BYTES take k, M, G; TIME needs ns, us, ms or s; SHARE is a percentage.\n\n\
         Example: slipstack-link a b rate=100M delay=20ms loss=0.1% queue=250k --to-left loss=0",
    );
    text
}

/// The arguments, understood.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    pub to_left: LinkParams,
    pub to_right: LinkParams,
    /// Nanoseconds after the start; both directions.
    pub changes: Vec<(u64, LinkParams, LinkParams)>,
    pub limit_ns: Option<u64>,
    pub every_ns: Option<u64>,
    pub grain_ns: u64,
}

impl Plan {
    pub fn of(arguments: &Arguments) -> Result<Self, String> {
        let mut both = LinkParams::default();
        apply_all(&mut both, &arguments.both)?;
        let (mut to_left, mut to_right) = (both, both);
        apply_all(&mut to_left, &arguments.to_left)?;
        apply_all(&mut to_right, &arguments.to_right)?;
        let duration = |text: &Option<String>| text.as_deref().map(time).transpose();
        let plan = Self {
            to_left,
            to_right,
            changes: changes(&arguments.at, to_left, to_right)?,
            limit_ns: duration(&arguments.limit)?,
            every_ns: duration(&arguments.every)?,
            grain_ns: time(&arguments.grain)?,
        };
        let later = plan
            .changes
            .iter()
            .flat_map(|(_, left, right)| [left, right]);
        for params in [&plan.to_left, &plan.to_right].into_iter().chain(later) {
            params.check().map_err(|error| error.to_string())?;
        }
        if arguments.router.is_some() && !plan.may_refuse() {
            return Err("--router has nothing to say without mtu=".into());
        }
        Ok(plan)
    }
}

impl Plan {
    /// Is there an MTU, now or later?
    fn may_refuse(&self) -> bool {
        let later = self
            .changes
            .iter()
            .flat_map(|(_, left, right)| [left, right]);
        [&self.to_left, &self.to_right]
            .into_iter()
            .chain(later)
            .any(|params| params.mtu != LinkParams::default().mtu)
    }
}

fn apply_all(params: &mut LinkParams, words: &[String]) -> Result<(), String> {
    words.iter().try_for_each(|word| params.apply(word))
}

/// Each change adds to those before it; those of one moment are one.
fn changes(
    words: &[String],
    mut to_left: LinkParams,
    mut to_right: LinkParams,
) -> Result<Vec<(u64, LinkParams, LinkParams)>, String> {
    let mut parsed = Vec::with_capacity(words.len());
    for word in words {
        let (at, change) = word
            .split_once(':')
            .ok_or(format!("\"{word}\" is not of the form TIME:NAME=VALUE"))?;
        parsed.push((time(at)?, change));
    }
    parsed.sort_by_key(|(at, _)| *at);
    let mut changes = Vec::with_capacity(parsed.len());
    for (at, change) in parsed {
        to_left.apply(change)?;
        to_right.apply(change)?;
        changes.pop_if(|(last, ..): &mut (u64, LinkParams, LinkParams)| *last == at);
        changes.push((at, to_left, to_right));
    }
    Ok(changes)
}

fn time(text: &str) -> Result<u64, String> {
    spec::time(text).ok_or(format!(
        "\"{text}\" is no time: a number and ns, us, ms or s"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(words: &str) -> Result<Plan, String> {
        let words = ["slipstack-link", "a", "b"]
            .into_iter()
            .chain(words.split_whitespace());
        let arguments = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
        Plan::of(&arguments)
    }

    #[test]
    fn the_directions_of_a_link_may_differ_and_scheduled_changes_add_up() {
        let plan =
            plan("rate=10M delay=5ms --to-left delay=7ms --at 2s:cut=no --at 1s:cut=yes --for 3s")
                .unwrap();
        assert_eq!(plan.to_left.delay_ns, 7_000_000);
        assert_eq!(plan.to_right.delay_ns, 5_000_000);
        let cuts: Vec<_> = plan
            .changes
            .iter()
            .map(|(at, l, r)| (*at, l.is_cut, r.is_cut))
            .collect();
        assert_eq!(
            cuts,
            [(1_000_000_000, true, true), (2_000_000_000, false, false)]
        );
        assert_eq!(plan.changes[1].1.delay_ns, 7_000_000);
        assert_eq!(plan.limit_ns, Some(3_000_000_000));
    }

    #[test]
    fn invalid_arguments_are_refused() {
        for words in [
            "queue=10k",
            "rate=10",
            "--at 1:cut=yes",
            "--at 1s",
            "delay=5",
            "--for 3",
            "--grain x",
            "--router 10.0.0.1",
        ] {
            assert_eq!(plan(words).is_err(), words != "rate=10", "{words}");
        }
        // Changes at one moment are checked together, once all of them are applied.
        assert!(plan("--at 1s:queue=10k --at 1s:rate=1M").is_ok());
    }
}
