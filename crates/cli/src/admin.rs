//! `slipstack status`, `why` and `stop`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;
use serde::Serialize;
use slipstack_attach::admin;
use slipstack_channel::control::{
    DeviceSummary, ProgramReport, SocketReport, StatusReport, WhyReport,
};
use slipstack_channel::report::Why;
use slipstack_config::Settings;

use crate::failure::Failure;
use crate::given::settings;
use crate::output::{is_printed, print, say, table};

pub fn status(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (_, settings) = settings(matches)?;
    if let Some(interval) = matches.get_one::<Duration>("watch") {
        watch(&settings, *interval, matches.get_flag("json"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let reports = admin::status(&settings).map_err(|error| Failure::new(error.to_string()))?;
    let abandoned = admin::abandoned(&settings).unwrap_or_default();
    for error in &abandoned {
        say(&format!("slipstack: {error}"));
    }
    if matches.get_flag("json") {
        print_json(&reports)?;
    } else if reports.is_empty() && abandoned.is_empty() {
        print("nothing runs on Slipstack\n")?;
        say_elsewhere(&settings);
    } else {
        let texts: Vec<String> = reports.iter().map(status_text).collect();
        print(&texts.join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the status again whenever it has changed, until the command is ended.
fn watch(settings: &Settings, interval: Duration, is_json: bool) -> Result<(), Failure> {
    let mut shown = String::new();
    loop {
        let reports = admin::status(settings);
        // A keeper may end while it answers: its successor or nobody answers the next time.
        let reports = match shown.is_empty() {
            true => reports.map_err(|error| Failure::new(error.to_string()))?,
            false => reports.unwrap_or_default(),
        };
        let text = match (is_json, reports.is_empty()) {
            (true, _) => {
                let line = serde_json::to_string(&reports);
                line.map_err(|error| Failure::new(error.to_string()))? + "\n"
            }
            (false, true) => "nothing runs on Slipstack\n\n".to_owned(),
            (false, false) => reports.iter().map(|it| status_text(it) + "\n").collect(),
        };
        if text != shown && !is_printed(&text)? {
            return Ok(());
        }
        shown = text;
        std::thread::sleep(interval);
    }
}

/// Names stacks of other network namespaces, if there is none in this one.
fn say_elsewhere(settings: &Settings) {
    for (interface, pid) in admin::elsewhere(settings).unwrap_or_default() {
        say(&format!(
            "slipstack: a stack runs on {interface} of another network namespace; \
             ask there: nsenter --net=/proc/{pid}/ns/net slipstack status"
        ));
    }
}

pub fn why(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (_, settings) = settings(matches)?;
    let pid: u32 = matches.get_one("pid").copied().unwrap_or(0);
    if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
        return Err(Failure::new(format!("there is no process {pid}")));
    }
    let report = admin::why(&settings, pid).map_err(|error| Failure::new(error.to_string()))?;
    if matches.get_flag("json") {
        print_json(&report)?;
    } else {
        print(&why_text(&report))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub fn stop(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (_, settings) = settings(matches)?;
    let target = matches.get_one::<String>("target").map(String::as_str);
    let stopped =
        admin::stop(&settings, target).map_err(|error| Failure::new(error.to_string()))?;
    for name in &stopped.names {
        print(&format!("stopped {name}\n"))?;
    }
    match stopped.refusal {
        Some(refusal) => return Err(Failure::new(refusal.to_string())),
        None if stopped.names.is_empty() => print("nothing runs on Slipstack\n")?,
        None => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn print_json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failure::new(error.to_string()))?;
    print(&format!("{text}\n"))
}

fn status_text(report: &StatusReport) -> String {
    let device = &report.device;
    let of_further = || device.further.iter().flat_map(|it| &it.addresses);
    let own = device.addresses.iter();
    let own = own.filter(|address| !of_further().any(|other| other == *address));
    let addresses: Vec<String> = own.map(|(ip, len)| format!("{ip}/{len}")).collect();
    let mut text = format!("{}  {}", device.interface, addresses.join(" "));
    for gateway in &device.gateways {
        let _ = write!(text, "  gateway {gateway}");
    }
    for host in &device.hosts {
        let _ = write!(text, "  host {host}");
    }
    let _ = writeln!(
        text,
        "  mtu {}  slots {} of {}  keeper {}",
        device.mtu, device.slots_leased, device.slots, report.keeper_pid
    );
    for it in &device.further {
        let addresses = it.addresses.iter();
        let addresses: String = addresses.map(|(ip, len)| format!("  {ip}/{len}")).collect();
        let _ = writeln!(text, "{}{addresses}  mtu {}", it.interface, it.mtu);
    }
    text.push_str(&device_line(&device.device));
    for mechanism in &device.mechanisms {
        let _ = writeln!(text, "{mechanism}");
    }
    if let Some(trouble) = &device.trouble {
        let _ = writeln!(text, "{}: {trouble}", device.interface);
    }
    if report.orphans > 0 {
        let _ = writeln!(
            text,
            "{} connections of ended programs are being completed",
            report.orphans
        );
    }
    for route in &device.routes {
        let _ = writeln!(text, "route {route}");
    }
    for rule in &device.rules {
        let _ = writeln!(text, "rule {rule}");
    }
    section(&mut text, &engines(report));
    section(&mut text, &programs(report));
    section(&mut text, &sockets(report));
    section(&mut text, &ports(report));
    if report.is_truncated {
        text.push_str("\n(the lists are longer than shown)\n");
    }
    text
}

fn section(text: &mut String, lines: &str) {
    if !lines.is_empty() {
        text.push('\n');
        text.push_str(lines);
    }
}

fn filled(head: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        String::new()
    } else {
        table(head, rows)
    }
}

fn engines(report: &StatusReport) -> String {
    let rows = report.engines.iter().map(|engine| {
        let place = match &engine.instance {
            Some(name) => format!("instance {name}"),
            None => "in the program".into(),
        };
        vec![
            engine.slot.to_string(),
            engine.pid.to_string(),
            match engine.thread {
                0 => "–".into(),
                thread => format!("{thread} {}", engine.thread_name),
            },
            engine.cores.clone(),
            engine.program.clone(),
            place,
            engine.flows.to_string(),
            engine.ports.to_string(),
        ]
    });
    filled(
        &[
            "engine",
            "pid",
            "thread",
            "cores",
            "program",
            "place",
            "flows",
            "outgoing ports",
        ],
        &rows.collect::<Vec<_>>(),
    )
}

fn all_programs(report: &StatusReport) -> impl Iterator<Item = &ProgramReport> {
    let attached = report
        .instances
        .iter()
        .flat_map(|instance| &instance.programs);
    report.programs.iter().chain(attached)
}

fn programs(report: &StatusReport) -> String {
    let rows = all_programs(report).map(|program| {
        let stack = match (&program.instance, program.slot) {
            (Some(name), _) => format!("instance {name}"),
            (None, Some(slot)) => format!("engine {slot}"),
            (None, None) => "–".into(),
        };
        vec![
            program.pid.to_string(),
            program.uid.to_string(),
            program.program.clone(),
            stack,
            match program.is_concealed {
                true => "–".into(),
                false => count_of(program).to_string(),
            },
        ]
    });
    filled(
        &["pid", "uid", "program", "stack", "sockets"],
        &rows.collect::<Vec<_>>(),
    )
}

fn sockets(report: &StatusReport) -> String {
    let rows = all_programs(report).flat_map(|program| {
        program.sockets.iter().map(|socket| {
            let mut row = vec![program.pid.to_string()];
            row.extend(socket_row(socket));
            row.pop();
            row
        })
    });
    let mut text = filled(
        &["pid", "fd", "type", "place", "local", "remote"],
        &rows.collect::<Vec<_>>(),
    );
    text.extend(all_programs(report).filter_map(cut_line));
    text
}

/// Number of a program's sockets. A keeper of an older version does not tell it.
fn count_of(program: &ProgramReport) -> usize {
    program.sockets_count.max(program.sockets.len())
}

/// Returns a line about the sockets of a program that are not listed, if there are any.
fn cut_line(program: &ProgramReport) -> Option<String> {
    let (shown, count) = (program.sockets.len(), count_of(program));
    let pid = program.pid;
    (shown < count).then(|| format!("({shown} of the {count} sockets of {pid} are shown)\n"))
}

fn ports(report: &StatusReport) -> String {
    let rows = report.ports.iter().map(|port| {
        let pids: Vec<String> = port.pids.iter().map(u32::to_string).collect();
        vec![
            port.protocol.name().into(),
            format!("{}:{}", port.address, port.port),
            pids.join(" "),
        ]
    });
    filled(&["type", "listens on", "pids"], &rows.collect::<Vec<_>>())
}

fn socket_row(socket: &SocketReport) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".into());
    vec![
        or_dash(socket.fd.map(|fd| fd.to_string())),
        socket.kind.clone(),
        socket.place.clone(),
        or_dash(socket.local.map(|address| address.to_string())),
        or_dash(socket.remote.map(|address| address.to_string())),
        socket.why.clone(),
    ]
}

/// Returns whether a program without a control connection waits for its instance, or has been
/// forked and not needed a stack.
fn is_away(program: &ProgramReport) -> bool {
    let away = Why::Away.sentence();
    program.sockets.iter().any(|socket| socket.why == away)
}

/// Returns a line about the device's kind and the reason for it; empty if neither is known.
fn device_line(device: &DeviceSummary) -> String {
    match device.kind.as_str() {
        "" => String::new(),
        kind => format!("device {kind}: {}\n", device.why),
    }
}

fn why_text(report: &WhyReport) -> String {
    let program = &report.program;
    let addresses: Vec<String> = report
        .addresses
        .iter()
        .map(|(ip, len)| format!("{ip}/{len}"))
        .collect();
    let stack = match &program.instance {
        Some(name) => format!("instance {name}"),
        None => "a stack in the program".into(),
    };
    let place = match report.interface.as_str() {
        "" if is_away(program) => "a stack whose instance is away".to_owned(),
        "" => "no stack of its own (yet)".to_owned(),
        interface => format!("{stack} on {interface} with {}", addresses.join(" ")),
    };
    let mut text = format!("{} (pid {}) uses {place}\n", program.program, program.pid);
    text.push_str(&device_line(&report.device));
    if program.sockets.is_empty() {
        text.push_str("it has no sockets\n");
    } else {
        let rows: Vec<Vec<String>> = program.sockets.iter().map(socket_row).collect();
        text.push('\n');
        text.push_str(&table(
            &["fd", "type", "place", "local", "remote", "why"],
            &rows,
        ));
        text.extend(cut_line(program));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> SocketReport {
        SocketReport {
            fd: Some(5),
            place: "both".into(),
            kind: "tcp".into(),
            local: "0.0.0.0:80".parse().ok(),
            remote: None,
            why: "wildcard address: stack and kernel".into(),
        }
    }

    #[test]
    fn why_names_the_program_and_each_socket_with_its_reason() {
        let program = ProgramReport {
            pid: 7,
            uid: 0,
            program: "nginx".into(),
            slot: Some(1),
            instance: None,
            sockets: vec![socket()],
            sockets_count: 1,
            is_concealed: false,
        };
        let addresses = vec![("10.0.0.5".parse().unwrap(), 24)];
        let text = why_text(&WhyReport {
            program,
            interface: "eth1".into(),
            device: DeviceSummary::default(),
            addresses,
        });
        assert!(
            text.starts_with(
                "nginx (pid 7) uses a stack in the program on eth1 with 10.0.0.5/24\n"
            )
        );
        assert!(
            text.contains("5   tcp   both   0.0.0.0:80  –       wildcard address"),
            "{text}"
        );
    }

    #[test]
    fn status_tells_how_many_sockets_there_are_beside_those_that_are_listed() {
        let program = |count| ProgramReport {
            pid: 7,
            uid: 0,
            program: "nginx".into(),
            slot: Some(1),
            instance: None,
            sockets: vec![socket(); 2],
            sockets_count: count,
            is_concealed: false,
        };
        let text_of = |count| {
            status_text(&StatusReport {
                programs: vec![program(count)],
                ..StatusReport::default()
            })
        };
        let text = text_of(70);
        assert!(text.contains("nginx    engine 1  70"), "{text}");
        assert!(
            text.contains("(2 of the 70 sockets of 7 are shown)\n"),
            "{text}"
        );
        for count in [0, 2] {
            let text = text_of(count);
            assert!(text.contains("nginx    engine 1  2"), "{text}");
            assert!(!text.contains("are shown"), "{text}");
        }
    }

    #[test]
    fn an_empty_report_has_no_empty_tables() {
        assert_eq!(status_text(&StatusReport::default()).lines().count(), 1);
    }
}
