//! `slipstack capture`: the frames of a device in use, written to a file.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;
use slipstack_attach::capture::{self, Plan, Summary};

use crate::failure::Failure;
use crate::given::asking;
use crate::output::say;

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let settings = asking(matches)?;
    let path: &PathBuf = matches
        .get_one("file")
        .ok_or_else(|| Failure::new("a capture needs a file"))?;
    let plan = Plan {
        host: matches.get_one("host").copied(),
        port: matches.get_one("port").copied(),
        frames_max: matches.get_one("count").copied(),
        time_max: matches
            .get_one::<u32>("seconds")
            .map(|seconds| Duration::from_secs(u64::from(*seconds))),
    };
    if is_stdout(path) && io::stdout().is_terminal() {
        return Err(Failure::new(
            "a capture cannot be written to a terminal; name a file, or send it through a pipe to \
             a reader",
        ));
    }
    let ready =
        capture::listen(&settings, &plan).map_err(|error| Failure::new(error.to_string()))?;
    let out = open(path)?;
    say(&format!("capturing on {}", ready.interface()));
    let summary = ready
        .write_to(out, &plan)
        .map_err(|error| Failure::new(error.to_string()))?;
    say(&sentence(&summary));
    Ok(ExitCode::SUCCESS)
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

fn open(path: &Path) -> Result<Box<dyn Write>, Failure> {
    if is_stdout(path) {
        return Ok(Box::new(io::stdout()));
    }
    match File::create(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(Failure::new(format!(
            "cannot write {}: {error}",
            path.display()
        ))),
    }
}

fn sentence(summary: &Summary) -> String {
    let mut text = format!(
        "{} frames received and {} sent",
        summary.inbound, summary.outbound
    );
    if summary.lost > 0 {
        text.push_str(&format!(
            "; {} more arrived too fast and are missing",
            summary.lost
        ));
    }
    if summary.is_cut_short {
        text.push_str("; the device is gone");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_reports_missing_frames() {
        let summary = Summary {
            inbound: 3,
            outbound: 4,
            lost: 0,
            is_cut_short: false,
        };
        assert_eq!(sentence(&summary), "3 frames received and 4 sent");
        let summary = Summary {
            lost: 2,
            is_cut_short: true,
            ..summary
        };
        assert_eq!(
            sentence(&summary),
            "3 frames received and 4 sent; 2 more arrived too fast and are missing; \
             the device is gone"
        );
    }
}
