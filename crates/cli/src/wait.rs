//! `slipstack wait`: waits until a program listens, or an instance is ready.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use slipstack_attach::admin;
use slipstack_channel::Transport;
use slipstack_channel::control::StatusReport;

use crate::failure::Failure;
use crate::given::settings;

const PAUSE: Duration = Duration::from_millis(20);

/// The event that is waited for.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Port(u16),
    Address(SocketAddr),
    Instance(String),
}

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (_, settings) = settings(matches)?;
    let target = target(matches)?;
    let protocol = if matches.get_flag("udp") {
        Transport::Udp
    } else {
        Transport::Tcp
    };
    let seconds = matches.get_one("seconds").copied().unwrap_or(30_u32);
    let until = Instant::now() + Duration::from_secs(seconds.into());
    loop {
        // A keeper that is just starting is no failure.
        let reports = admin::status(&settings).unwrap_or_default();
        if reports
            .iter()
            .any(|report| is_there(report, &target, protocol))
        {
            return Ok(ExitCode::SUCCESS);
        }
        if Instant::now() >= until {
            let others = what_there_is(&reports);
            return Err(Failure::new(match target {
                Target::Instance(name) => format!("no instance {name} after {seconds} s"),
                Target::Port(port) => {
                    format!("nothing listens on port {port} after {seconds} s; {others}")
                }
                Target::Address(ip) => {
                    format!("nothing listens on {ip} after {seconds} s; {others}")
                }
            }));
        }
        std::thread::sleep(PAUSE);
    }
}

fn target(matches: &ArgMatches) -> Result<Target, Failure> {
    if let Some(name) = matches.get_one::<String>("instance") {
        return Ok(Target::Instance(name.clone()));
    }
    let text = matches
        .get_one::<String>("target")
        .map_or("", String::as_str);
    parse(text).ok_or_else(|| Failure::new(format!("'{text}' is neither a port nor ADDRESS:PORT")))
}

fn parse(text: &str) -> Option<Target> {
    match (text.parse::<u16>(), text.parse::<SocketAddr>()) {
        (Ok(port), _) => Some(Target::Port(port)),
        (_, Ok(address)) => Some(Target::Address(address)),
        _ => None,
    }
}

fn is_there(report: &StatusReport, target: &Target, protocol: Transport) -> bool {
    let listens = |port: u16, ip: Option<IpAddr>| {
        report.ports.iter().any(|it| {
            let is_address = ip.is_none_or(|ip| it.address == ip || it.address.is_unspecified());
            it.protocol == protocol && it.port == port && is_address
        })
    };
    match target {
        Target::Port(port) => listens(*port, None),
        Target::Address(address) => listens(address.port(), Some(address.ip())),
        Target::Instance(name) => report.instances.iter().any(|it| it.name == *name),
    }
}

/// Returns the ports that programs listen on instead, for the message of a wait in vain.
fn what_there_is(reports: &[StatusReport]) -> String {
    if reports.is_empty() {
        return "no stack runs".to_owned();
    }
    let ports = reports.iter().flat_map(|report| &report.ports);
    let names: BTreeSet<(u16, &str)> = ports
        .map(|it| match it.protocol {
            Transport::Tcp => (it.port, ""),
            Transport::Udp => (it.port, "/udp"),
        })
        .collect();
    let names: Vec<String> = names
        .iter()
        .map(|(port, protocol)| format!("{port}{protocol}"))
        .collect();
    match names.as_slice() {
        [] => "no port is listened on".to_owned(),
        names => format!("listened on: {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_of_wait_is_a_port_number() {
        assert_eq!(parse("80"), Some(Target::Port(80)));
        assert_eq!(
            parse("[fd00::1]:80"),
            "[fd00::1]:80".parse().ok().map(Target::Address)
        );
        assert_eq!(parse("web"), None);
    }
}
