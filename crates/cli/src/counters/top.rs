//! `slipstack top`, `ff_top`: how busy engines are.

use std::collections::HashMap;
use std::process::ExitCode;

use clap::{ArgMatches, Command};
use serde::Serialize;
use slipstack_attach::admin;
use slipstack_config::Settings;

use super::engines::{Sample, Which, json_line};
use super::meter::{Interval, pace, repeat, with_options};
use crate::failure::Failure;
use crate::names::is_fstack_tool;
use crate::output::{is_printed, table};

pub fn command() -> Command {
    let command = Command::new("top")
        .about(
            "Show how busy each engine is, its loops, packets and connections, as F-Stack's \
            ff_top",
        )
        .long_about(
            "\
    Shows for each engine, interval by interval: the share of time without work (idle), with\n\
    work of the stack (sys), and with work of a program that has the engine inside (usr: its own\n\
    work and that of the stack in its thread); loops, and those that found nothing; packets and\n\
    connections. As ff_top it prints F-Stack's table.",
        )
        .after_help(
            "Examples:\n  slipstack top\n  slipstack top -d 5 -n 12 --json\n  ff_top -p 0 \
            -P 3",
        );
    with_options(command)
}

/// An engine in one interval.
#[derive(Debug, Serialize)]
struct Row {
    interface: String,
    engine: u16,
    pid: u32,
    program: String,
    instance: Option<String>,
    idle_percent: f64,
    sys_percent: f64,
    usr_percent: f64,
    loops: u64,
    loops_idle: u64,
    rx_packets_per_second: u64,
    tx_packets_per_second: u64,
    connections: u32,
}

pub fn run(settings: &Settings, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let is_fstack = is_fstack_tool();
    let which = Which::chosen(matches, is_fstack)?;
    let has_sum = matches.contains_id("processes");
    repeat(settings, which, pace(matches), |interval| {
        let rows = rows(settings, interval)?;
        is_printed(&match (matches.get_flag("json"), is_fstack) {
            (true, _) => json_line(&rows)?,
            (false, true) => fstack_text(&rows, has_sum, interval.has_head),
            (false, false) => text(&rows),
        })
    })?;
    Ok(ExitCode::SUCCESS)
}

fn rows(settings: &Settings, interval: &Interval) -> Result<Vec<Row>, Failure> {
    let mut flows = HashMap::new();
    for report in admin::status(settings).map_err(crate::sockets::failed)? {
        for engine in report.engines {
            let place = (report.device.interface.clone(), engine.slot);
            flows.insert(place, engine.flows);
        }
    }
    // The keeper's stack has no loop of its own.
    let engines = interval.added.iter().filter(|it| it.engine.slot != 0);
    let row = |it: &Sample| {
        let place = (it.interface.clone(), it.engine.slot);
        row(interval, it, flows.get(&place).copied().unwrap_or(0))
    };
    Ok(engines.map(row).collect())
}

fn row(interval: &Interval, sample: &Sample, connections: u32) -> Row {
    let time = interval.time.as_nanos() as f64;
    let busy = (sample.value("engine_busy_ns") as f64 / time * 100.0).min(100.0);
    let is_instance = sample.engine.instance.is_some();
    Row {
        interface: sample.interface.clone(),
        engine: sample.engine.slot,
        pid: sample.engine.pid,
        program: sample.engine.program.clone(),
        instance: sample.engine.instance.clone(),
        idle_percent: rounded(100.0 - busy),
        sys_percent: rounded(if is_instance { busy } else { 0.0 }),
        usr_percent: rounded(if is_instance { 0.0 } else { busy }),
        loops: sample.value("engine_turns"),
        loops_idle: sample.value("engine_turns_idle"),
        rx_packets_per_second: interval.per_second(sample.value("rx_frames")),
        tx_packets_per_second: interval.per_second(sample.value("tx_frames")),
        connections,
    }
}

fn rounded(percent: f64) -> f64 {
    (percent * 100.0).round() / 100.0
}

fn text(rows: &[Row]) -> String {
    let head = [
        "engine", "pid", "program", "instance", "idle%", "sys%", "usr%", "loops", "empty", "rx/s",
        "tx/s", "conns",
    ];
    let cells = rows.iter().map(|row| {
        vec![
            format!("{}/{}", row.interface, row.engine),
            row.pid.to_string(),
            row.program.clone(),
            row.instance.clone().unwrap_or_else(|| "–".to_owned()),
            format!("{:.2}", row.idle_percent),
            format!("{:.2}", row.sys_percent),
            format!("{:.2}", row.usr_percent),
            row.loops.to_string(),
            row.loops_idle.to_string(),
            row.rx_packets_per_second.to_string(),
            row.tx_packets_per_second.to_string(),
            row.connections.to_string(),
        ]
    });
    format!("{}\n", table(&head, &cells.collect::<Vec<_>>()))
}

/// Returns the table of F-Stack's tool, with a column of processes and their sum if several were
/// requested.
fn fstack_text(rows: &[Row], has_sum: bool, has_head: bool) -> String {
    let rule = |columns: usize| format!("|{}---------------|\n", "---------|".repeat(columns));
    let line = |first: &str, cells: [f64; 3], loops: u64| {
        let [idle, sys, usr] = cells;
        let first = if has_sum {
            format!("|{first:>9}")
        } else {
            String::new()
        };
        format!("{first}|{idle:>8.2}%|{sys:>8.2}%|{usr:>8.2}%|{loops:>15}|\n")
    };
    let mut text = String::new();
    if has_head {
        let first = if has_sum { "|  proc_id" } else { "" };
        let rule = rule(if has_sum { 4 } else { 3 });
        text = format!(
            "{rule}{first}|{:>9}|{:>9}|{:>9}|{:>15}|\n{rule}",
            "idle", "sys", "usr", "loop"
        );
    }
    let (mut sums, mut loops) = ([0.0; 3], 0);
    for (number, row) in rows.iter().enumerate() {
        let cells = [row.idle_percent, row.sys_percent, row.usr_percent];
        let name = row.instance.as_ref().filter(|it| it.parse::<u32>().is_ok());
        let name = name.map_or_else(|| number.to_string(), String::clone);
        text.push_str(&line(&name, cells, row.loops));
        for (sum, cell) in sums.iter_mut().zip(cells) {
            *sum += cell;
        }
        loops += row.loops;
    }
    if has_sum {
        text.push_str(&line("total", sums, loops));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::engines::tests::sample;
    use super::*;

    fn one(instance: Option<&str>) -> Row {
        let values = [("engine_busy_ns", 250_000_000), ("engine_turns", 1234)];
        let interval = Interval {
            added: Vec::new(),
            time: Duration::from_secs(1),
            has_head: true,
        };
        row(&interval, &sample(1, instance, &values), 3)
    }

    #[test]
    fn f_stacks_table_is_as_its_tool_prints_it() {
        let text = fstack_text(&[one(Some("0"))], false, true);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "|---------|---------|---------|---------------|");
        assert_eq!(lines[1], "|     idle|      sys|      usr|           loop|");
        assert_eq!(lines[3], "|   75.00%|   25.00%|    0.00%|           1234|");
        let text = fstack_text(&[one(Some("0")), one(Some("1"))], true, false);
        assert_eq!(
            text.lines().last(),
            Some("|    total|  150.00%|   50.00%|    0.00%|           2468|")
        );
    }

    #[test]
    fn an_engine_in_a_program_works_in_the_programs_time() {
        let row = one(None);
        assert_eq!((row.sys_percent, row.usr_percent), (0.0, 25.0));
    }
}
