//! `slipstack locality`: whether connections stay on the engine on which they began.

use std::process::ExitCode;

use clap::{ArgMatches, Command};
use serde::Serialize;
use slipstack_config::Settings;

use super::engines::{Sample, Which, process_argument, samples};
use crate::failure::Failure;
use crate::output::{print, table};
use crate::sockets;

pub fn command() -> Command {
    Command::new("locality")
        .about(
            "Show for each engine which connections stayed on it and which came from another \
            one",
        )
        .long_about(
            "\
        Shows for each engine since it began: connections that were accepted and made on it, how\n\
        many of the latter have a port that the card puts into another engine's queue (away),\n\
        connections that came from and went to another engine, how many took the place of an\n\
        earlier one (pool), and frames that reached an engine without their flow (strays), were\n\
        handed from engine to engine (posted, received) or were lost on that way.",
        )
        .after_help("Examples:\n  slipstack locality\n  slipstack locality --engine 2 --json")
        .arg(process_argument())
        .arg(sockets::engine())
        .arg(sockets::json())
}

/// Origin of the connections and frames of an engine.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Row {
    interface: String,
    engine: u16,
    pid: u32,
    program: String,
    instance: Option<String>,
    /// Completed handshakes of its own listeners.
    accepted: u64,
    /// Connections that its programs have made.
    connected: u64,
    /// Connections begun from a port whose frames the card puts into another engine's queue, since
    /// none was left.
    away: u64,
    /// From another engine: before they were accepted (its listener's program did not accept), and
    /// after that (a thread of this engine uses them).
    moved_in: u64,
    moved_out: u64,
    /// Moves that could not be taken; their peers were reset.
    refused: u64,
    /// Connections that took the place of an earlier one instead of new memory.
    pool: u64,
    strays: u64,
    posted: u64,
    received: u64,
    lost: u64,
}

impl Row {
    fn of(sample: &Sample) -> Row {
        let engine = |name: &str| sample.value(&format!("engine_{name}"));
        let accepted = sample.value("tcp_accepted");
        let connected = engine("connected");
        let moved_in = engine("passed_in") + engine("carried_in");
        let begun = accepted + connected + moved_in;
        Row {
            interface: sample.interface.clone(),
            engine: sample.engine.slot,
            pid: sample.engine.pid,
            program: sample.engine.program.clone(),
            instance: sample.engine.instance.clone(),
            accepted,
            connected,
            away: sample.value("tcp_connects_away"),
            moved_in,
            moved_out: engine("passed_out") + engine("carried_out"),
            refused: engine("passed_refused"),
            pool: begun.saturating_sub(sample.value("tcp_places")),
            strays: engine("strays"),
            posted: engine("local_posted"),
            received: engine("local_received"),
            lost: engine("local_lost"),
        }
    }

    fn cells(&self) -> Vec<String> {
        let numbers = [
            self.accepted,
            self.connected,
            self.away,
            self.moved_in,
            self.moved_out,
            self.refused,
            self.pool,
            self.strays,
            self.posted,
            self.received,
            self.lost,
        ];
        let mut cells = vec![
            format!("{}/{}", self.interface, self.engine),
            self.pid.to_string(),
            self.program.clone(),
        ];
        cells.extend(numbers.map(|number| number.to_string()));
        cells
    }
}

pub fn run(settings: &Settings, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let samples = samples(settings, Which::chosen(matches, false)?)?;
    // The keeper's stack has no connections of programs.
    let engines = samples.iter().filter(|it| it.engine.slot != 0);
    let rows: Vec<Row> = engines.map(Row::of).collect();
    if matches.get_flag("json") {
        let text = serde_json::to_string_pretty(&rows);
        print(&format!(
            "{}\n",
            text.map_err(|error| Failure::new(error.to_string()))?
        ))?;
    } else {
        let head = [
            "engine", "pid", "program", "accepted", "made", "away", "in", "out", "refused", "pool",
            "strays", "posted", "received", "lost",
        ];
        print(&table(
            &head,
            &rows.iter().map(Row::cells).collect::<Vec<_>>(),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::super::engines::tests::sample;
    use super::*;

    #[test]
    fn connections_beyond_the_allocated_places_reused_earlier_ones() {
        let values = [
            ("tcp_accepted", 90),
            ("engine_connected", 8),
            ("engine_passed_in", 1),
            ("engine_carried_in", 1),
            ("tcp_places", 30),
        ];
        let row = Row::of(&sample(1, None, &values));
        assert_eq!((row.moved_in, row.pool), (2, 70));
        let none = Row::of(&sample(1, None, &[("tcp_places", 3)]));
        assert_eq!(none.pool, 0);
    }
}
