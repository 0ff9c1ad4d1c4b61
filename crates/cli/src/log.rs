//! The log of processes that are ours: keeper, instance and servers in an engine.

use std::io::stderr;

use slipstack_config::LogLevel;
use slipstack_keeper::log::FILTER_TARGET;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Writes events to standard error from now on, those of `--log` and above. A line that standard
/// error does not take (a full file system, a limit of file sizes) is lost.
pub fn start(level: LogLevel) {
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
