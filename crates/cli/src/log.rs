//! The log of Slipstack's own processes: keeper, instance, servers in an engine, and `run` before
//! it becomes the program.

use std::fs::{File, OpenOptions};
use std::io::{Write as _, stderr};
use std::path::Path;
use std::sync::Mutex;

use slipstack_config::{LogLevel, Settings};
use slipstack_keeper::log::FILTER_TARGET;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::failure::Failure;
use crate::output;

/// Writes events of `level` and above to `file`, or to standard error, from now on. A line that
/// cannot be written (a full file system, a limit of file sizes) is lost.
pub fn start(level: LogLevel, file: Option<&Path>) -> Result<(), Failure> {
    let writer = match file {
        None => BoxMakeWriter::new(stderr),
        Some(file) => BoxMakeWriter::new(Mutex::new(open(file)?)),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_target(false)
        .log_internal_errors(false)
        .with_writer(writer);
    let subscriber = tracing_subscriber::registry()
        .with(wanted(level))
        .with(lines);
    // Only a second call could fail.
    let _ = subscriber.try_init();
    Ok(())
}

/// Writes a sentence of `level` to the configured place, if that level is enabled.
pub fn say(settings: &Settings, level: LogLevel, sentence: &str) {
    if settings.log < level {
        return;
    }
    let line = format!("slipstack: {}", output::harmless(sentence));
    let file = settings.log_file.as_deref().map(open);
    let is_filed = file.is_some_and(|file| file.is_ok_and(|mut it| writeln!(it, "{line}").is_ok()));
    if !is_filed {
        output::say(&line);
    }
}

fn open(file: &Path) -> Result<File, Failure> {
    let opened = OpenOptions::new().create(true).append(true).open(file);
    opened.map_err(|error| {
        let name = file.display();
        Failure::new(format!("--log-file {name} cannot be written: {error}"))
    })
}

fn wanted(level: LogLevel) -> Targets {
    let (most, filter) = match level {
        LogLevel::Off => (LevelFilter::OFF, LevelFilter::OFF),
        LogLevel::Error => (LevelFilter::ERROR, LevelFilter::INFO),
        LogLevel::Warn => (LevelFilter::WARN, LevelFilter::INFO),
        LogLevel::Info => (LevelFilter::INFO, LevelFilter::INFO),
        LogLevel::Debug => (LevelFilter::DEBUG, LevelFilter::INFO),
    };
    Targets::new()
        .with_default(most)
        .with_target(FILTER_TARGET, filter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn each_level_includes_those_before_it() {
        let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG];
        let all = [
            LogLevel::Off,
            LogLevel::Error,
            LogLevel::Warn,
            LogLevel::Info,
            LogLevel::Debug,
        ];
        for (written, log) in all.into_iter().enumerate() {
            let would = |level: &Level| wanted(log).would_enable("slipstack_keeper", level);
            assert_eq!(levels.iter().filter(|level| would(level)).count(), written);
            assert!(levels[..written].iter().all(would), "{log:?}");
        }
    }

    #[test]
    fn matches_of_filter_rules_are_written_unless_all_is_off() {
        for log in [
            LogLevel::Error,
            LogLevel::Warn,
            LogLevel::Info,
            LogLevel::Debug,
        ] {
            assert!(
                wanted(log).would_enable(FILTER_TARGET, &Level::INFO),
                "{log:?}"
            );
        }
        assert!(!wanted(LogLevel::Off).would_enable(FILTER_TARGET, &Level::INFO));
    }
}
