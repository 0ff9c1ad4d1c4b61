//! `slipstack reload`: makes the network of a running stack what its configuration says now.

use std::collections::HashMap;
use std::net::IpAddr;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use slipstack_attach::inquiry;
use slipstack_channel::control::net::{
    Answer, Change, Client, ClientError, FilterChange, FilterState, FilterWanted, Inquiry,
    NetworkState, Query, RuleAction, RuleEntry,
};
use slipstack_config::sysctl::{self, SysctlError};
use slipstack_config::{Layers, OPTION, Scope, Settings, Source};

use crate::args::with_options;
use crate::failure::Failure;
use crate::given::settings;
use crate::net::bsd::ipfw;
use crate::output::{print, say};
use crate::sockets::{json, print_json};

pub fn command() -> Command {
    let command = Command::new("reload")
        .about("Apply the configuration to the network of a running stack")
        .long_about(
            "\
            Reads the configuration again, shows what differs from the running network \
            (addresses,\n\
            VLANs, routes, rules, forwarding, ports shared with the kernel, sysctls, packet \
            filter), and\n\
            changes it whole or not at all. Give it the options with which the stack was started. \
            Connections go\n\
            on as long as their address stays. What was set by other commands and is not in the\n\
            configuration is undone; options that hold from the start on are not looked at.",
        )
        .after_help(
            "Examples:\n  \
             slipstack reload --config /etc/slipstack.toml --dry-run\n  \
             slipstack reload --name web\n  \
             slipstack reload --config config.ini",
        )
        .arg(
            Arg::new("dry-run")
                .long("dry-run")
                .short('n')
                .action(ArgAction::SetTrue)
                .help("Only show the changes"),
        )
        .arg(json());
    with_options(
        command,
        &[Scope::Instance, Scope::RunAndInstance, Scope::All],
    )
}

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let plan = Plan::of(matches)?;
    match matches.get_flag("json") {
        true => print_json(&plan.json()?).map(drop)?,
        false => print(&plan.text())?,
    }
    if !matches.get_flag("dry-run") {
        plan.apply()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the configuration again at SIGHUP and applies the differences.
pub fn at_hang_up(matches: &ArgMatches) {
    let done = Plan::of(matches).and_then(|plan| {
        plan.apply()?;
        Ok(plan.text())
    });
    match done {
        Ok(text) => text
            .lines()
            .for_each(|line| say(&format!("slipstack: reload: {line}"))),
        Err(failure) => say(&format!("slipstack: reload: {failure}")),
    }
}

/// The differences from the running network.
struct Plan {
    client: Client,
    changes: Vec<Change>,
    /// The new packet filter, and its differences.
    filter: Option<(FilterState, String)>,
}

impl Plan {
    fn of(matches: &ArgMatches) -> Result<Plan, Failure> {
        let (layers, settings) = settings(matches)?;
        let failed = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
        let path = slipstack_attach::admin::control_socket(&settings).map_err(|it| failed(&it))?;
        let client = Client::connect(&path).map_err(|error| failed(&error))?;
        let Answer::Network(now) = client.ask(Query::Network).map_err(|it| failed(&it))? else {
            return Err(Failure::new("the keeper's answer is not understood"));
        };
        let wanted = slipstack_attach::planned(&settings, &now).map_err(|error| failed(&error))?;
        let mut changes = now
            .changes_to(&wanted)
            .map_err(|error| Failure::new(format!("{error}; nothing was changed")))?;
        if !changes.is_empty() && !names_network(&layers) {
            return Err(Failure::new(
                "the configuration names no address (--ip, --vlan); give reload the options with \
                 which the stack was started, such as --config FILE; nothing was changed",
            ));
        }
        changes.extend(tunings(&settings, &now)?);
        Ok(Plan {
            client,
            changes,
            filter: ipfw::difference(&settings, &wanted)?,
        })
    }

    fn text(&self) -> String {
        let filter = self.filter.as_ref().map_or("", |(_, text)| text);
        match (self.changes.as_slice(), filter) {
            ([], "") => "nothing changes\n".to_owned(),
            (changes, filter) => {
                let lines: String = changes.iter().map(line).collect();
                lines + filter
            }
        }
    }

    fn json(&self) -> Result<Vec<serde_json::Value>, Failure> {
        let changes = self.changes.iter().map(serde_json::to_value);
        let changes: Result<Vec<_>, _> = changes.collect();
        let mut all = changes.map_err(|error| Failure::new(error.to_string()))?;
        if let Some((_, text)) = &self.filter {
            let lines: Vec<&str> = text.lines().collect();
            all.push(serde_json::json!({ "Filter": lines }));
        }
        Ok(all)
    }

    /// Applies the filter first, so that the new network is filtered from the beginning. Each of
    /// the two is changed whole or not at all.
    fn apply(&self) -> Result<(), Failure> {
        let refused = |error: ClientError| Failure::new(format!("{error}; nothing was changed"));
        if let Some((filter, _)) = &self.filter {
            let change = FilterChange::Replace(FilterWanted::from(filter.clone()));
            let made = self.client.ask(Query::SetFilter(vec![change]));
            made.map_err(refused)?;
        }
        if !self.changes.is_empty() {
            let made = self.client.ask(Query::Set(self.changes.clone()));
            made.map_err(|error| match self.filter {
                None => refused(error),
                Some(_) => Failure::new(format!("{error}; only the filter was changed")),
            })?;
        }
        Ok(())
    }
}

/// Returns whether the configuration says which addresses there are.
fn names_network(layers: &Layers) -> bool {
    let options = [&OPTION.addresses, &OPTION.vlans, &OPTION.is_autoconfigured];
    let mut sources = options.iter().map(|option| layers.source(option.name));
    sources.any(|source| !matches!(source, Source::Default))
}

/// Numbers of a running engine's stack by their names.
type Numbers = HashMap<String, u32>;

/// Returns the numbers of each engine of the device but the keeper's own stack, which has no
/// programs.
fn running_numbers(settings: &Settings) -> Vec<Numbers> {
    let answers = inquiry::inquire(settings, &Inquiry::Tunables).unwrap_or_default();
    let engines = answers.iter().filter(|answer| answer.engine.slot != 0);
    engines
        .map(|answer| {
            let lines = answer.text.lines();
            lines
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect()
        })
        .collect()
}

/// The sysctls that have not been set to their values in the running stack.
fn tunings(settings: &Settings, now: &NetworkState) -> Result<Vec<Change>, Failure> {
    let mut changes = Vec::new();
    let engines = match settings.sysctls.is_empty() {
        true => Vec::new(),
        false => running_numbers(settings),
    };
    for setting in &settings.sysctls {
        let numbers =
            sysctl::find(setting.name).and_then(|row| sysctl::live_changes(row, &setting.value));
        let numbers = match numbers {
            Ok(numbers) => numbers,
            Err(error @ SysctlError::AtStart { .. }) => {
                say(&format!("slipstack: {setting} is ignored: {error}"));
                continue;
            }
            Err(error) => return Err(Failure::new(error.to_string())),
        };
        for (name, value) in numbers {
            let current = now.tunables.iter().find(|(known, _)| known == name);
            // Engines that were started with it have it without a notification.
            let is_so = match current {
                Some((_, number)) => *number == value,
                None => {
                    let mut engines = engines.iter();
                    engines.len() > 0 && engines.all(|numbers| numbers.get(name) == Some(&value))
                }
            };
            if !is_so {
                changes.push(Change::Tune {
                    name: name.to_owned(),
                    value,
                });
            }
        }
    }
    Ok(changes)
}

/// Returns a change as a line, removals marked by `-` and additions by `+`.
fn line(change: &Change) -> String {
    let line = match change {
        Change::AddVlan { name, id, .. } => format!("+ interface {name}, VLAN {id}"),
        Change::SetPriorities { name, priorities } => {
            format!("interface {name}: priorities {priorities:?}")
        }
        Change::DelInterface { name } => format!("- interface {name}"),
        Change::SetMtu { name, mtu } => format!("+ MTU {mtu} of {name}"),
        Change::SetUp { name, is_up } => {
            let how = if *is_up { "up" } else { "down" };
            format!("+ interface {name} is {how}")
        }
        Change::AddAddress {
            interface,
            address: (ip, len),
            ..
        } => format!("+ address {ip}/{len} on {interface}"),
        Change::DelAddress { interface, ip, .. } => format!("- address {ip} on {interface}"),
        Change::AddRoute { route, .. } => {
            format!("+ route {}", route_words(route.to, route.via, route.table))
        }
        Change::DelRoute(key) => format!("- route {}", route_words(key.to, key.via, key.table)),
        Change::AddRule(rule) => format!("+ rule {}", rule_words(rule)),
        Change::DelRule(rule) => format!("- rule {}", rule_words(rule)),
        Change::SetForwarding(is_on) => {
            format!("{} forwarding", if *is_on { '+' } else { '-' })
        }
        Change::ConnectAllTables(is_on) => {
            let sign = if *is_on { '+' } else { '-' };
            format!("{sign} own networks in every table")
        }
        Change::SetShare(share) => {
            let ranges = |all: &[(u16, u16)]| {
                let all = all.iter().map(|(first, last)| format!("{first}-{last}"));
                all.collect::<Vec<_>>().join(",")
            };
            let (tcp, udp) = (ranges(&share.tcp), ranges(&share.udp));
            format!("+ ports listed: TCP {tcp}, UDP {udp}; {:?}", share.action)
        }
        Change::Tune { name, value } => format!("+ {name} = {value}"),
        Change::AddNeighbour { entry, .. } => format!("+ neighbour {}", entry.ip),
        Change::DelNeighbour { ip, .. } => format!("- neighbour {ip}"),
    };
    format!("{line}\n")
}

fn route_words((ip, len): (IpAddr, u8), via: Option<IpAddr>, table: u32) -> String {
    let via = via.map(|ip| format!(" via {ip}")).unwrap_or_default();
    format!("{ip}/{len}{via} table {table}")
}

fn rule_words(rule: &RuleEntry) -> String {
    let net = |word: &str, net: Option<(IpAddr, u8)>| {
        net.map(|(ip, len)| format!(" {word} {ip}/{len}"))
            .unwrap_or_default()
    };
    let mark = rule
        .mark
        .map(|(mark, mask)| format!(" fwmark {mark:#x}/{mask:#x}"));
    let end = match rule.action {
        RuleAction::Lookup => format!("table {}", rule.table),
        other => format!("{other:?}").to_lowercase(),
    };
    format!(
        "{}{}{}{} {end}",
        rule.priority,
        net("from", rule.from),
        net("to", rule.to),
        mark.unwrap_or_default(),
    )
}
