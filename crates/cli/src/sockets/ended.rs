//! `ss -E`: connections as they end.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use slipstack_attach::inquiry::{self, EngineAnswer};
use slipstack_channel::control::net::{EndedRow, Filter, Inquiry};
use slipstack_config::Settings;

use super::{Socket, User, failed, is_set, ss};
use crate::failure::Failure;
use crate::output::is_printed;

/// Interval between two inquiries.
const INTERVAL: Duration = Duration::from_millis(200);
/// An answer reaches further back than the last inquiry, by more than an engine takes for one.
const OVERLAP: Duration = Duration::from_secs(1);

/// Lists connections that end until the command is ended. Engines are asked again and again, so
/// that it goes on with those that come, and with another keeper.
pub fn watch(settings: &Settings, filter: &Filter, matches: &ArgMatches) -> Result<(), Failure> {
    let slot = matches.get_one::<u16>("engine");
    let mut seen = Seen::default();
    let mut has_head = !is_set(matches, "headless");
    let mut last: Option<Instant> = None;
    loop {
        let age = last.map_or(Duration::ZERO, |last| last.elapsed() + OVERLAP);
        let is_first = last.replace(Instant::now()).is_none();
        let inquiry = Inquiry::Ended {
            filter: filter.clone(),
            has_figures: is_set(matches, "info") || is_set(matches, "json"),
            age_ms: u32::try_from(age.as_millis()).unwrap_or(u32::MAX),
        };
        let answers = match inquiry::inquire(settings, &inquiry) {
            Err(error) if is_first => return Err(failed(error)),
            // The keeper has just ended; another one answers the next inquiry.
            answers => answers.unwrap_or_default(),
        };
        let mut ended = seen.new_ones(&answers)?;
        ended.retain(|it| slot.is_none_or(|slot| it.engine == *slot));
        if !ended.is_empty() || (has_head && !is_set(matches, "json")) {
            let text = match is_set(matches, "json") {
                true => json_lines(&ended)?,
                false => ss::text(&ended, (filter, has_head), matches),
            };
            has_head = false;
            if !is_printed(&text)? {
                return Ok(());
            }
        }
        std::thread::sleep(INTERVAL);
    }
}

fn json_lines(ended: &[Socket]) -> Result<String, Failure> {
    let mut text = String::new();
    for socket in ended {
        let line = serde_json::to_string(socket).map_err(|e| Failure::new(e.to_string()))?;
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

/// The number of the last connection of each engine that has been shown: by device, slot, process.
#[derive(Default)]
struct Seen(HashMap<(String, u16, u32), u64>);

impl Seen {
    /// Returns the connections that no former answer had.
    fn new_ones(&mut self, answers: &[EngineAnswer]) -> Result<Vec<Socket>, Failure> {
        let mut ended = Vec::new();
        for EngineAnswer {
            interface,
            engine,
            text,
        } in answers
        {
            let key = (interface.clone(), engine.slot, engine.pid);
            for line in text.lines() {
                let Ok(EndedRow { number, row }) = serde_json::from_str(line) else {
                    return Err(Failure::new(
                        "an engine sent an answer that is not understood; use one version of \
                         slipstack",
                    ));
                };
                let last = self.0.entry(key.clone()).or_default();
                if number <= *last {
                    continue;
                }
                *last = number;
                let is_own = engine.slot != 0 && engine.pid != 0 && engine.instance.is_none();
                ended.push(Socket {
                    row,
                    interface: interface.clone(),
                    engine: engine.slot,
                    users: is_own
                        .then(|| User {
                            pid: engine.pid,
                            program: engine.program.clone(),
                            fd: -1,
                        })
                        .into_iter()
                        .collect(),
                });
            }
        }
        Ok(ended)
    }
}
