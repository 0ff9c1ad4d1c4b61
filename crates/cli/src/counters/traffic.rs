//! `slipstack traffic`, `ff_traffic`: packets and bytes of engines.

use std::process::ExitCode;

use clap::{ArgMatches, Command};
use serde::Serialize;
use slipstack_config::Settings;

use super::engines::{Sample, Which, json_line, samples};
use super::meter::{Interval, pace, repeat, with_options};
use crate::failure::Failure;
use crate::names::is_fstack_tool;
use crate::output::{is_printed, print, table};
use crate::sockets::flag;

pub fn command() -> Command {
    let command = Command::new("traffic")
        .about(
            "Show packets and bytes per second of each engine and of all, as F-Stack's \
            ff_traffic",
        )
        .long_about(
            "\
    Shows for each engine what it receives and sends in a second, interval by interval; engine 0\n\
    is the keeper. A frame that the device has joined, or will cut, is one packet. As ff_traffic\n\
    it prints F-Stack's table, of sums per interval.",
        )
        .after_help(
            "Examples:\n  slipstack traffic\n  slipstack traffic -s --json\n  ff_traffic -p 0 -P 3 \
             -d 10",
        )
        .arg(flag("single", 's', "Totals since the beginning, once"));
    with_options(command)
}

/// F-Stack's counters of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
}

impl Traffic {
    pub fn of(sample: &Sample) -> Traffic {
        Traffic {
            rx_packets: sample.value("rx_frames"),
            rx_bytes: sample.value("rx_bytes"),
            tx_packets: sample.value("tx_frames"),
            tx_bytes: sample.value("tx_bytes"),
            rx_dropped: sample.value("device_rx_overrun"),
            tx_dropped: sample.value("engine_tx_full") + sample.value("device_tx_dropped"),
        }
    }

    pub fn sum(all: impl IntoIterator<Item = Traffic>) -> Traffic {
        let zero = Traffic::default();
        all.into_iter().fold(zero, |sum, it| Traffic {
            rx_packets: sum.rx_packets + it.rx_packets,
            rx_bytes: sum.rx_bytes + it.rx_bytes,
            tx_packets: sum.tx_packets + it.tx_packets,
            tx_bytes: sum.tx_bytes + it.tx_bytes,
            rx_dropped: sum.rx_dropped + it.rx_dropped,
            tx_dropped: sum.tx_dropped + it.tx_dropped,
        })
    }

    fn each(self, change: impl Fn(u64) -> u64) -> Traffic {
        let [
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes,
            rx_dropped,
            tx_dropped,
        ] = self.cells().map(change);
        Traffic {
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes,
            rx_dropped,
            tx_dropped,
        }
    }

    fn cells(self) -> [u64; 6] {
        [
            self.rx_packets,
            self.rx_bytes,
            self.tx_packets,
            self.tx_bytes,
            self.rx_dropped,
            self.tx_dropped,
        ]
    }
}

/// An engine's traffic, or that of all.
#[derive(Debug, Serialize)]
struct Row {
    /// "total" of all together.
    engine: String,
    /// The number in F-Stack's table.
    #[serde(skip)]
    process: String,
    pid: Option<u32>,
    program: String,
    #[serde(flatten)]
    traffic: Traffic,
}

pub fn run(settings: &Settings, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let is_fstack = is_fstack_tool();
    let which = Which::chosen(matches, is_fstack)?;
    let (is_json, has_sum) = (matches.get_flag("json"), matches.contains_id("processes"));
    if matches.get_flag("single") {
        let rows = rows(&samples(settings, which)?, Traffic::of);
        print(&match (is_json, is_fstack) {
            (true, _) => json_line(&rows)?,
            (false, true) => fstack_single(&rows, has_sum),
            (false, false) => text(&rows),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    repeat(settings, which, pace(matches), |interval: &Interval| {
        let per_second = |it: &Sample| Traffic::of(it).each(|n| interval.per_second(n));
        is_printed(&match (is_json, is_fstack) {
            (true, _) => json_line(&rows(&interval.added, per_second))?,
            (false, true) => {
                let rows = rows(&interval.added, Traffic::of);
                fstack_text(&rows, has_sum, interval.has_head)
            }
            (false, false) => text(&rows(&interval.added, per_second)),
        })
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A row for each engine and one for their sum.
fn rows(samples: &[Sample], traffic: impl Fn(&Sample) -> Traffic) -> Vec<Row> {
    let mut rows: Vec<Row> = samples
        .iter()
        .enumerate()
        .map(|(number, it)| {
            let name = it.engine.instance.as_ref();
            let name = name.filter(|name| name.parse::<u32>().is_ok());
            Row {
                engine: format!("{}/{}", it.interface, it.engine.slot),
                process: name.map_or_else(|| number.to_string(), String::clone),
                pid: Some(it.engine.pid),
                program: it.engine.program.clone(),
                traffic: traffic(it),
            }
        })
        .collect();
    rows.push(Row {
        engine: "total".to_owned(),
        process: "total".to_owned(),
        pid: None,
        program: String::new(),
        traffic: Traffic::sum(rows.iter().map(|row| row.traffic)),
    });
    rows
}

fn text(rows: &[Row]) -> String {
    let head = [
        "engine",
        "pid",
        "program",
        "rx packets",
        "rx bytes",
        "tx packets",
        "tx bytes",
        "rx dropped",
        "tx dropped",
    ];
    let cells = rows.iter().map(|row| {
        let pid = row.pid.map(|pid| pid.to_string()).unwrap_or_default();
        let mut cells = vec![row.engine.clone(), pid, row.program.clone()];
        cells.extend(row.traffic.cells().map(|n| n.to_string()));
        cells
    });
    format!("{}\n", table(&head, &cells.collect::<Vec<_>>()))
}

/// One line of F-Stack's -s for a process, or one for each of several and for their sum.
fn fstack_single(rows: &[Row], has_sum: bool) -> String {
    let line = |row: &Row| {
        let cells = row.traffic.cells();
        match has_sum {
            true => {
                let cells = cells.map(|n| format!("{n:>20},"));
                format!("{:>9},{}\n", row.process, cells.concat())
            }
            false => format!("{}\n", cells.map(|n| n.to_string()).join(",")),
        }
    };
    let shown = if has_sum {
        rows
    } else {
        &rows[..rows.len() - 1]
    };
    shown.iter().map(line).collect()
}

fn fstack_text(rows: &[Row], has_sum: bool, has_head: bool) -> String {
    let line = |first: &str, cells: [String; 6]| {
        let first = if has_sum {
            format!("|{first:>9}")
        } else {
            String::new()
        };
        let cells = cells.map(|cell| format!("{cell:>20}|"));
        format!("{first}|{}\n", cells.concat())
    };
    let mut text = String::new();
    if has_head {
        let rule = line("---------", [(); 6].map(|()| "-".repeat(20)));
        let names = [
            "rx packets",
            "rx bytes",
            "tx packets",
            "tx bytes",
            "rx dropped",
            "tx dropped",
        ];
        let names = names.map(str::to_owned);
        text = format!("{rule}{}{rule}", line("proc_id", names));
    }
    let shown = if has_sum {
        rows
    } else {
        &rows[..rows.len() - 1]
    };
    for row in shown {
        text.push_str(&line(
            &row.process,
            row.traffic.cells().map(|n| n.to_string()),
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::engines::tests::sample;
    use super::*;

    #[test]
    fn f_stacks_lines_begin_as_its_tool_prints_them() {
        let one = sample(1, Some("0"), &[("rx_frames", 3), ("rx_bytes", 300)]);
        let rows = rows(&[one.clone(), one], Traffic::of);
        assert_eq!(fstack_single(&rows[..2], false), "3,300,0,0,0,0\n");
        let several = fstack_single(&rows, true);
        assert!(
            several.starts_with("        0,                   3,"),
            "{several}"
        );
        assert!(several.contains("    total,                   6,                 600,"));
        let table = fstack_text(&rows, true, true);
        assert!(
            table.starts_with("|---------|--------------------|"),
            "{table}"
        );
        assert!(table.contains("|  proc_id|          rx packets|            rx bytes|"));
    }
}
