//! `slipstack arp` and `ndp`: neighbours in the words of FreeBSD.

use std::net::IpAddr;
use std::process::ExitCode;

use clap::{ArgMatches, Command};
use serde::Serialize;
use slipstack_attach::admin;
use slipstack_channel::control::net::{Answer, Client, Query};
use slipstack_config::Settings;

use super::{flag, fstack_process, json, print_json};
use crate::failure::Failure;
use crate::output::print;

pub fn command(name: &'static str, family: &'static str) -> Command {
    let about = format!("List the {family} neighbours of running stacks, as F-Stack's ff_{name}");
    let letter = if name == "arp" { 'p' } else { 'C' };
    Command::new(name)
        .about(about)
        .after_help(format!(
            "Examples:\n  slipstack {name} -a\n  ff_{name} -{letter} 0 -an"
        ))
        .arg(flag("all", 'a', "All of them, as without it"))
        .arg(flag(
            "numeric",
            'n',
            "Taken for scripts: addresses are always numbers",
        ))
        .arg(fstack_process().short(letter))
        .arg(json())
}

/// A neighbour with its interface and link-layer address.
#[derive(Debug, Serialize)]
struct Neighbour {
    ip: IpAddr,
    mac: String,
    interface: String,
}

pub fn run(settings: &Settings, matches: &ArgMatches, is_v4: bool) -> Result<ExitCode, Failure> {
    let failed = |error: String| Failure::new(error);
    let mut found = Vec::new();
    for path in admin::control_sockets(settings).map_err(|e| failed(e.to_string()))? {
        let client = Client::connect(&path).map_err(|e| failed(e.to_string()))?;
        let ask = |query| client.ask(query).map_err(|e| failed(e.to_string()));
        let (Answer::Network(state), Answer::Neighbours(all)) =
            (ask(Query::Network)?, ask(Query::Neighbours)?)
        else {
            return Err(failed(
                "the keeper gave an answer that does not fit".to_owned(),
            ));
        };
        for (vlan, ip, mac) in all.into_iter().filter(|(_, ip, _)| ip.is_ipv4() == is_v4) {
            let interface = state.interfaces.iter().find(|it| it.vlan == vlan);
            found.push(Neighbour {
                ip,
                mac: mac.map(|byte| format!("{byte:02x}")).join(":"),
                interface: interface.map_or_else(String::new, |it| it.name.clone()),
            });
        }
    }
    found.sort_by_key(|it| it.ip);
    if matches.get_flag("json") {
        return print_json(&found);
    }
    let mut text = String::new();
    if !is_v4 {
        text.push_str(&format!(
            "{:<40} {:<18} {}\n",
            "Neighbor", "Linklayer Address", "Netif"
        ));
    }
    for it in &found {
        text.push_str(&match is_v4 {
            true => format!(
                "? ({}) at {} on {} [ethernet]\n",
                it.ip, it.mac, it.interface
            ),
            false => format!("{:<40} {:<18} {}\n", it.ip, it.mac, it.interface),
        });
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}
