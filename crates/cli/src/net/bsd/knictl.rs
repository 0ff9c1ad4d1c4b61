//! `slipstack knictl`, `ff_knictl`: which ports of shared addresses the kernel keeps.

use std::fmt::Write as _;

use slipstack_channel::control::net::{Change, KernelShare, Listed, ShareAction};
use slipstack_config::{PortRange, Settings, parse_ports};

use super::take_engine;
use crate::failure::Failure;
use crate::net::target::Target;
use crate::net::words::Words;
use crate::output::print;

/// The request in the words.
#[derive(Default)]
struct Asked {
    engine: u32,
    action: Option<ShareAction>,
    tcp: Option<Vec<(u16, u16)>>,
    udp: Option<Vec<(u16, u16)>>,
    shows: bool,
    is_json: bool,
}

pub fn run(settings: &Settings, words: &[String]) -> Result<(), Failure> {
    let mut words = Words::new("knictl", words);
    let asked = parse(&mut words)?;
    let target = Target::find(settings, asked.engine)?;
    let share = target.network()?.share;
    let is_change = asked.action.is_some() || asked.tcp.is_some() || asked.udp.is_some();
    if is_change && asked.shows {
        return Err(Failure::new(
            "knictl: -n shows and -a, --tcp and --udp change: give one of them",
        ));
    }
    let not_shared = || {
        Failure::new(
            "knictl: the kernel does not share the stack's addresses; start it with --kni reject \
             or --kni accept",
        )
    };
    let mut share = share.ok_or_else(not_shared)?;
    if !is_change {
        return print(&match asked.is_json {
            true => json(&share),
            false => text(&share),
        });
    }
    share.action = asked.action.unwrap_or(share.action);
    share.tcp = asked.tcp.unwrap_or(share.tcp);
    share.udp = asked.udp.unwrap_or(share.udp);
    target.change(vec![Change::SetShare(share)])
}

fn parse(words: &mut Words<'_>) -> Result<Asked, Failure> {
    let mut asked = Asked::default();
    while words.peek().is_some() {
        if let Some(engine) = take_engine(words, "-p")? {
            asked.engine = engine;
            continue;
        }
        // All engines of a device go by the same: how many there are does not matter.
        if take_engine(words, "-P")?.is_some() {
            continue;
        }
        match words.next() {
            Some("-n") => asked.shows = true,
            Some("--json" | "-j") => asked.is_json = true,
            Some("-a") => asked.action = Some(action(words)?),
            Some("--tcp") => asked.tcp = Some(ports(words, "--tcp")?),
            Some("--udp") => asked.udp = Some(ports(words, "--udp")?),
            Some(other) => return Err(words.unknown(other)),
            None => {}
        }
    }
    Ok(asked)
}

fn action(words: &mut Words<'_>) -> Result<ShareAction, Failure> {
    let word = words.value("-a")?;
    let names = ShareAction::NAMES.join(", ");
    ShareAction::from_name(&word.to_ascii_lowercase())
        .ok_or_else(|| Failure::new(format!("knictl: -a wants one of {names}")))
}

/// A list of ports; `none` is the empty one.
fn ports(words: &mut Words<'_>, option: &str) -> Result<Vec<(u16, u16)>, Failure> {
    let word = words.value(option)?;
    if word == "none" {
        return Ok(Vec::new());
    }
    let must = |must: String| Failure::new(format!("knictl: {option} must be {must}"));
    let ranges = parse_ports(word).map_err(must)?;
    Ok(ranges.iter().map(|it| (it.first, it.last)).collect())
}

fn list(ranges: &[(u16, u16)]) -> String {
    let range = |&(first, last): &(u16, u16)| PortRange { first, last }.to_string();
    let texts: Vec<String> = ranges.iter().map(range).collect();
    texts.join(",")
}

fn text(share: &KernelShare) -> String {
    let listed = match share.listed {
        Listed::Stack => "listed ports to the stack, the others to the kernel",
        Listed::Kernel => "listed ports to the kernel, the others to the stack",
    };
    let mut text = format!("action  {}\n", share.action.name());
    let _ = writeln!(text, "method  {} ({listed})", share.listed.name());
    for (name, ranges) in [("tcp", &share.tcp), ("udp", &share.udp)] {
        let ports = match ranges.is_empty() {
            true => "none".to_owned(),
            false => list(ranges),
        };
        let _ = writeln!(text, "{name}     {ports}");
    }
    if share.rates != [0; 3] {
        let [console, general, kernel] = share.rates;
        let _ = writeln!(
            text,
            "rates   console {console}, general {general}, kernel {kernel} packets a second"
        );
    }
    text
}

fn json(share: &KernelShare) -> String {
    let value = serde_json::json!({
        "action": share.action.name(),
        "method": share.listed.name(),
        "tcp": list(&share.tcp),
        "udp": list(&share.udp),
        "rates": share.rates,
    });
    format!("{value}\n")
}
