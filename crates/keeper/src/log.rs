//! A keeper's messages: lines on standard error, which is its log.

use std::io::Write as _;

/// Says a line. Where the log takes none (a full file system, a limit of file sizes), it is lost:
/// `eprintln!` would end the keeper, and its successor after it.
pub(crate) fn say(line: impl std::fmt::Display) {
    let line = format!("{line}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
