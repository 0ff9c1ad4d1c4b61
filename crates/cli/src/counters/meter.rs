//! Periodic readings of counters: the common part of `top`, `traffic` and `netstat -w`.

use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command};
use slipstack_config::Settings;

use super::engines::{Sample, Which, last_process_argument, process_argument, samples};
use crate::failure::Failure;
use crate::sockets;

/// Lines between two heads of a table.
const LINES_PER_HEAD: usize = 40;

/// Interval of the looks.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub delay: Duration,
    /// Number of intervals; 0: until the command is ended.
    pub count: u64,
}

/// The counters between two looks, of the engines that were there at both.
pub struct Interval {
    pub added: Vec<Sample>,
    pub time: Duration,
    /// The table's head is due.
    pub has_head: bool,
}

impl Interval {
    /// Returns the rate of a counter that has grown by `added`.
    pub fn per_second(&self, added: u64) -> u64 {
        (added as f64 / self.time.as_secs_f64()).round() as u64
    }
}

/// The options of `top` and `traffic`.
pub fn with_options(command: Command) -> Command {
    command
        .arg(process_argument())
        .arg(last_process_argument())
        .arg(sockets::engine())
        .arg(
            Arg::new("delay")
                .short('d')
                .value_name("SECONDS")
                .value_parser(seconds)
                .default_value("1")
                .help("Interval"),
        )
        .arg(
            Arg::new("count")
                .short('n')
                .value_name("N")
                .value_parser(clap::value_parser!(u64))
                .default_value("0")
                .help("End after N intervals; 0: at Ctrl-C"),
        )
        .arg(sockets::json())
}

/// A time as F-Stack's tools take it: 0 is one second. Parts of seconds are taken too.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(0.0) => Ok(Duration::from_secs(1)),
        Ok(seconds) if (0.01..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("it is not a number of seconds from 0.01 to 86400".to_owned()),
    }
}

pub fn pace(matches: &ArgMatches) -> Pace {
    Pace {
        delay: matches.get_one("delay").copied().unwrap_or_default(),
        count: matches.get_one("count").copied().unwrap_or(0),
    }
}

/// Shows each interval, until all are over or `show` returns `false` because there is no reader any
/// more.
pub fn repeat(
    settings: &Settings,
    which: Which,
    pace: Pace,
    mut show: impl FnMut(&Interval) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut before = (Instant::now(), samples(settings, which)?);
    let (mut shown, mut lines) = (0, 0);
    loop {
        std::thread::sleep(pace.delay);
        let now = (Instant::now(), samples(settings, which)?);
        let earlier = |it: &Sample| before.1.iter().find(|old| old.key() == it.key());
        let added = now.1.iter();
        let interval = Interval {
            added: added
                .filter_map(|it| Some(it.since(earlier(it)?)))
                .collect(),
            time: now.0 - before.0,
            has_head: lines == 0,
        };
        let is_read = show(&interval)?;
        shown += 1;
        if !is_read || shown == pace.count {
            return Ok(());
        }
        // One for each engine, one for their sum, one between.
        lines += interval.added.len() + 2;
        if lines >= LINES_PER_HEAD {
            lines = 0;
        }
        before = now;
    }
}
