//! Names under which the command is installed beside `slipstack`: `fstack`, `ff_netstat` and so on.

use std::ffi::OsString;
use std::path::Path;

/// Returns whether the command was called by the name of one of F-Stack's tools.
pub fn is_fstack_tool() -> bool {
    let name = std::env::args_os().next();
    let name = name
        .as_deref()
        .and_then(|word| Path::new(word).file_name()?.to_str());
    name.is_some_and(|name| name.starts_with("ff_"))
}

/// Returns the command line as if it had begun with `slipstack`.
pub fn words() -> Vec<OsString> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let name = words
        .first()
        .and_then(|word| Path::new(word).file_name()?.to_str());
    let command = match name {
        Some("fstack") => Some("instance"),
        Some(name) => name.strip_prefix("ff_"),
        None => None,
    };
    let Some(command) = command else {
        return words;
    };
    let head = ["slipstack".into(), OsString::from(command)];
    head.into_iter()
        .chain(words.iter().skip(1).cloned())
        .collect()
}
