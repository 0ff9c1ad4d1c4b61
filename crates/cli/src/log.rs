//! The log of processes that are ours: keeper, instance and servers in an engine.

use std::io::stderr;

use slipstack_config::Log;
use slipstack_keeper::log::FILTER_TARGET;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Writes events to standard error from now on, those of `--log` and above. A line that standard
/// error does not take (a full file system, a limit of file sizes) is lost.
pub fn start(level: Log) {
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_target(false)
        .log_internal_errors(false)
        .with_writer(stderr);
    let subscriber = tracing_subscriber::registry()
        .with(wanted(level))
        .with(lines);
    // Only a second call could fail.
    let _ = subscriber.try_init();
}

fn wanted(level: Log) -> Targets {
    let (most, filter) = match level {
        Log::Off => (LevelFilter::OFF, LevelFilter::OFF),
        Log::Error => (LevelFilter::ERROR, LevelFilter::INFO),
        Log::Warn => (LevelFilter::WARN, LevelFilter::INFO),
        Log::Info => (LevelFilter::INFO, LevelFilter::INFO),
        Log::Debug => (LevelFilter::DEBUG, LevelFilter::INFO),
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
        let all = [Log::Off, Log::Error, Log::Warn, Log::Info, Log::Debug];
        for (written, log) in all.into_iter().enumerate() {
            let would = |level: &Level| wanted(log).would_enable("slipstack_keeper", level);
            assert_eq!(levels.iter().filter(|level| would(level)).count(), written);
            assert!(levels[..written].iter().all(would), "{log:?}");
        }
    }

    #[test]
    fn matches_of_filter_rules_are_written_unless_all_is_off() {
        for log in [Log::Error, Log::Warn, Log::Info, Log::Debug] {
            assert!(
                wanted(log).would_enable(FILTER_TARGET, &Level::INFO),
                "{log:?}"
            );
        }
        assert!(!wanted(Log::Off).would_enable(FILTER_TARGET, &Level::INFO));
    }
}
